//! The server's share: how long it works on each script, beside Redisson's for the same.

mod cases;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value, cmd, pipe};

use self::cases::{CASES, Call, Case};
use crate::bare::{self, scripts};
use crate::flavor::Flavor;
use crate::rounds::{Effort, interleave};
use crate::stats::{Ratio, median};
use crate::table::Table;

const OWNER: &str = "00000000-0000-4000-8000-000000000000:1";

/// It lasts; no Java client is before it.
const PLACE: &str = "9999999999999 0";

/// About the time of a call with all that comes before it.
const CALL: Duration = Duration::from_micros(100);

/// In one pipeline.
const TOGETHER: usize = 100;

/// A call, ready to be sent.
struct Ready {
    server: MultiplexedConnection,
    pipeline: Pipeline,
    calls: usize,
}

pub fn measure(url: &str, effort: Effort) {
    println!("\n## Time that the server works on a script\n");
    println!(
        "`INFO commandstats`: microseconds of an EVALSHA, each in a situation made anew. Nobody listens to what"
    );
    println!("is published. Redisson's unlock is followed by a DEL, which is not in this.\n");
    let runtime = Flavor::CurrentThread.runtime();
    let mut table = Table::new(["situation", "lockkeeper µs", "Redisson µs", "ratio to Redisson"]);
    for case in &CASES {
        let calls = runtime.block_on(ready(url, case, effort.count(CALL)));
        let samples = interleave(effort.rounds, calls.len(), |which| runtime.block_on(calls[which].micros()));
        let micros = |rounds: &Vec<f64>| format!("{:.1}", median(rounds.iter().copied()));
        let ratio =
            samples.get(1).map(|theirs| Ratio::new(&samples[0], theirs, |micros| *micros).to_string());
        table.row([
            case.what.to_owned(),
            micros(&samples[0]),
            samples.get(1).map(micros).unwrap_or_default(),
            ratio.unwrap_or_default(),
        ]);
    }
    print!("{table}");
}

async fn ready(url: &str, case: &Case, count: usize) -> Vec<Ready> {
    let server = bare::connection(url).await;
    let ours = Ready::new(server.clone(), &case.lockkeeper, scripts::lockkeeper, count).await;
    let mut calls = vec![ours];
    if let Some(theirs) = &case.redisson {
        calls.push(Ready::new(server, theirs, scripts::redisson, count).await);
    }
    calls
}

impl Ready {
    async fn new(
        mut server: MultiplexedConnection,
        call: &Call,
        script: fn(&str) -> String,
        count: usize,
    ) -> Self {
        let sha = bare::load(&mut server, &script(call.script)).await;
        let mut once = pipe();
        for command in call.before.split(';') {
            once.add_command(words(Cmd::new(), command)).ignore();
        }
        once.add_command(words(cmd("EVALSHA").arg(sha).clone(), call.words));
        let (answer,): (Value,) = once.query_async(&mut server).await.expect("an answer");
        let is_expected = format!("{answer:?}").starts_with(call.answer);
        assert!(is_expected, "{} {}: {answer:?}, not {}", call.script, call.words, call.answer);
        let mut pipeline = pipe();
        for command in (0..TOGETHER).flat_map(|_| once.cmd_iter()) {
            pipeline.add_command(command.clone()).ignore();
        }
        Self { server, pipeline, calls: count.div_ceil(TOGETHER) * TOGETHER }
    }

    /// Of one call.
    async fn micros(&self) -> f64 {
        let mut server = self.server.clone();
        let before = worked(&mut server).await;
        for _ in 0..self.calls / TOGETHER {
            let () = self.pipeline.query_async(&mut server).await.expect("answers");
        }
        (worked(&mut server).await - before) / self.calls as f64
    }
}

fn words(mut command: Cmd, text: &str) -> Cmd {
    for word in text.split(' ') {
        command.arg(word.replace("OWNER", OWNER).replace("PLACE", PLACE));
    }
    command
}

/// Microseconds that the server has worked on scripts, since it began.
pub async fn worked(server: &mut MultiplexedConnection) -> f64 {
    let facts: String = bare::run(server, cmd("INFO").arg("commandstats")).await;
    let Some(fact) = facts.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")) else { return 0.0 };
    let micros = fact.split(',').find_map(|part| part.strip_prefix("usec=")).expect("a known fact");
    micros.parse().expect("a number")
}
