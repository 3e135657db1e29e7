//! The server time of each script, beside that of Redisson's script for the same operation.

mod cases;

use std::time::Duration;

use redis::{Cmd, cmd};

use self::cases::{CASES, Call, Case};
use crate::bare::scripts;
use crate::connection::{connect, load};
use crate::flavor::Flavor;
use crate::report::{Cell, Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::server_time::TimedCall;
use crate::stats::{Ratio, median};

const OWNER: &str = "00000000-0000-4000-8000-000000000000:1";
const ANOTHER: &str = "00000000-0000-4000-8000-000000000000:2";

/// The record of a waiter that stays alive, and has no Java client before it.
const PLACE: &str = "9999999999999 0";

/// About the time of a call with the commands before it.
const CALL: Duration = Duration::from_micros(100);

pub fn measure(url: &str, effort: Effort, report: &mut Report) {
    report.section(
        "Server time of each script",
        "Microseconds of one EVALSHA, from `INFO commandstats`. Plain commands restore the situation before each call, and\n\
         do not count. No client is subscribed to the channels. Redisson sends a DEL after each unlock, which does not\n\
         count either.",
    );
    let runtime = Flavor::CurrentThread.runtime();
    let mut table = Table::new(["situation", "lockkeeper µs", "Redisson µs", "ratio to Redisson"])
        .plot_ratios("ratio to Redisson", 1);
    for case in &CASES {
        let calls = runtime.block_on(prepare(url, case, effort.count(CALL)));
        let samples = interleave(effort.rounds, calls.len(), |which| runtime.block_on(calls[which].micros()));
        let micros = |rounds: &Vec<f64>| number(median(rounds.iter().copied()), 1);
        let ratio = samples.get(1).map(|theirs| Ratio::new(&samples[0], theirs, |micros| *micros));
        table.row([
            case.what.into(),
            micros(&samples[0]),
            samples.get(1).map(micros).unwrap_or_default(),
            ratio.map(Cell::from).unwrap_or_default(),
        ]);
    }
    report.table(table);
}

/// Lockkeeper's call, and Redisson's if there is one.
async fn prepare(url: &str, case: &Case, count: usize) -> Vec<TimedCall> {
    let mut calls = vec![timed(url, &case.lockkeeper, scripts::lockkeeper, count).await];
    if let Some(theirs) = &case.redisson {
        calls.push(timed(url, theirs, scripts::redisson, count).await);
    }
    calls
}

async fn timed(url: &str, call: &Call, script: fn(&str) -> String, count: usize) -> TimedCall {
    let mut server = connect(url).await;
    let sha = load(&mut server, &script(call.script)).await;
    let restore = call.before.split(';').map(|command| words(Cmd::new(), command)).collect();
    let evalsha = words(cmd("EVALSHA").arg(sha).clone(), call.words);
    TimedCall::new(server, restore, evalsha, call.answer, count).await
}

fn words(mut command: Cmd, text: &str) -> Cmd {
    for word in text.split(' ') {
        command.arg(word.replace("OWNER", OWNER).replace("ANOTHER", ANOTHER).replace("PLACE", PLACE));
    }
    command
}
