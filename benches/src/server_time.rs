//! The time that a server spends on one call of a script.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value, pipe};

use crate::info::script_micros;

/// Calls in one pipeline.
const PIPELINED: usize = 100;

/// One call of a script, repeated many times. Before each call, plain commands restore the state on the server. They
/// are not part of the measured time, which is that of EVALSHA.
pub struct TimedCall {
    server: MultiplexedConnection,
    pipeline: Pipeline,
    calls: usize,
}

impl TimedCall {
    /// Runs the call once, and checks how its answer begins as text.
    pub async fn new(
        mut server: MultiplexedConnection,
        restore: Vec<Cmd>,
        call: Cmd,
        answer: &str,
        calls: usize,
    ) -> Self {
        let mut once = pipe();
        for command in restore {
            once.add_command(command).ignore();
        }
        once.add_command(call.clone());
        let (found,): (Value,) = once.query_async(&mut server).await.expect("an answer");
        assert!(format!("{found:?}").starts_with(answer), "{found:?}, not {answer}: {call:?}");
        let mut pipeline = pipe();
        for command in (0..PIPELINED).flat_map(|_| once.cmd_iter()) {
            pipeline.add_command(command.clone()).ignore();
        }
        Self { server, pipeline, calls: calls.div_ceil(PIPELINED) * PIPELINED }
    }

    /// Microseconds of one call.
    pub async fn micros(&self) -> f64 {
        let mut server = self.server.clone();
        let before = script_micros(&mut server).await;
        for _ in 0..self.calls / PIPELINED {
            let () = self.pipeline.query_async(&mut server).await.expect("answers");
        }
        (script_micros(&mut server).await - before) / self.calls as f64
    }
}
