//! Notices that the runtime of the program stands still.
//!
//! The thread of the watchdog renews the locks of such a program, so nothing else would show it. A task on the runtime answers the thread
//! whenever the thread looks at its list, that is, only while the client has holds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::base::clock::{self, Moment};
use crate::base::sync::lock;
use crate::base::task;
use crate::telemetry::{Counter, stalls};

/// Asks the runtime of the program whether it runs.
pub(super) struct Pulse {
    /// An answer that takes longer is reported: a third of the lease.
    patience: Duration,
    asks: Sender<()>,
    state: Arc<Mutex<State>>,
    stalls: Counter,
}

#[derive(Default)]
struct State {
    /// Since when there is no answer. `None`: the last question was answered.
    asked_at: Option<Moment>,
    /// A stall is reported when it has lasted for this long. Zero: it was not reported yet.
    again: Duration,
}

impl Pulse {
    /// Starts a task on the runtime of the caller. The task answers until this value is dropped.
    pub(super) fn start(lease: Duration) -> Self {
        let (asks, asked) = channel(1);
        let state = Arc::<Mutex<State>>::default();
        task::spawn(answer(asked, Arc::clone(&state)));
        Self { patience: lease / 3, asks, state, stalls: stalls() }
    }

    /// Asks. Reports a stall once, and again whenever it has become twice as long.
    pub(super) fn ask(&self, now: Moment) {
        if self.asks.is_closed() {
            return; // the runtime has ended, and guards live on
        }
        let stall = {
            let mut state = lock(&self.state);
            let stall = now.since(*state.asked_at.get_or_insert(now));
            let is_late = stall >= self.patience.max(state.again);
            is_late.then(|| (stall, std::mem::replace(&mut state.again, 2 * stall)))
        };
        let _ = self.asks.try_send(());
        let Some((stall, before)) = stall else { return };
        if before.is_zero() {
            self.stalls.increment(1);
        }
        tracing::warn!(
            stall = %shown(stall),
            "the runtime of this client stands still, its locks are kept: is a thread blocked?"
        );
    }
}

async fn answer(mut asked: Receiver<()>, state: Arc<Mutex<State>>) {
    while asked.recv().await.is_some() {
        let State { asked_at, again } = std::mem::take(&mut *lock(&state));
        if let Some(asked_at) = asked_at
            && !again.is_zero()
        {
            tracing::info!(stall = %shown(clock::now().since(asked_at)), "the runtime of this client runs again");
        }
    }
}

fn shown(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}
