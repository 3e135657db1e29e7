//! The server time of single scripts over the number of waiters or readers of one lock.
//!
//! Each operation is measured on one lock per number, and the numbers take turns in rounds. The other waiters and readers
//! are written by hand, as other processes would have written them.

mod fair;
mod operation;
mod read;

use std::time::Duration;

use lockkeeper_testkit::Server;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, cmd, pipe};

use self::operation::{Operation, Prepared};
use crate::bare::scripts;
use crate::connection::{connect, load, run};
use crate::flavor::Flavor;
use crate::report::{Plot, Report, Table, number};
use crate::rounds::{Effort, interleave};
use crate::server_time::TimedCall;
use crate::stats::{Ratio, median};

/// How many waiters or readers the lock has.
const NUMBERS: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// The ratio compares the last number with this one, and not with the first: with one waiter or reader, the scripts have
/// special cases.
const FEW: usize = 1;

/// About the time of a call with the commands before it.
const CALL: Duration = Duration::from_micros(300);

/// Commands in one pipeline, while a state is written.
const PIPELINED: usize = 1_000;

pub fn measure(effort: Effort, report: &mut Report) {
    // Its locks are removed with FLUSHALL.
    let server = Server::start();
    let url = &server.url();
    report.section(
        "Fair lock scripts beside N waiters",
        "The server time of one script, while N waiters are in the queue of a fair lock. *Attempt again*, *heartbeat* and\n\
         *leave, from the middle* are of the waiter in the middle of the queue. *Release* is of the holder, and notifies the\n\
         first waiter.",
    );
    report.table(table(url, &fair::operations(false), "waiters", effort));
    report.text(
        "A script looks at the ends of the queue, and at single entries of hashes and sorted sets. So its cost does not\n\
         depend on N, with one exception: Redis finds a waiter that leaves from the middle with LREM, which scans the list\n\
         from the nearer end. N = 100 may cost a little more than N = 1000: Redis searches a sorted set of up to 128 entries\n\
         from its start.",
    );
    report.section(
        "Fair lock scripts beside N waiters and one Java client",
        "The same, with a Redisson client as the first in the queue. No waiter can acquire before it, so that operation is\n\
         not in the table.",
    );
    report.table(table(url, &fair::operations(true), "waiters", effort));
    report.text(
        "A heartbeat looks for the first waiter that is not a Java client. It reads up to a hundred entries of the list at\n\
         once, so its cost grows up to N = 100.",
    );
    report.section(
        "Read-write lock scripts beside N readers",
        "The server time of one script, while N readers with fixed leases hold the read lock. *Longest lease*: the lease of\n\
         the reader that releases is longer than those of all others. *Inspect* reads the first page of holders.",
    );
    report.table(table(url, &read::operations(), "readers", effort));
    report.text(
        "A script looks at no more than eight random readers, as long as some of them are alive. The larger the hash, the\n\
         less of it is in the processor's cache, so these operations become somewhat slower. A page of *inspect* has about a\n\
         hundred holders. Up to 512 fields, which Redis keeps in one block by default, it has all of them.",
    );
}

fn table(url: &str, operations: &[Operation], of: &str, effort: Effort) -> Table {
    let mut columns = vec!["operation".to_owned()];
    columns.extend(NUMBERS.iter().map(|number| format!("N = {number}, µs")));
    columns.push(format!("ratio of N = {} to {}", NUMBERS[NUMBERS.len() - 1], NUMBERS[FEW]));
    let x = NUMBERS.map(|number| number as f64).to_vec();
    let (x_title, y_title) = (format!("N, {of}"), "server time of one script, µs".to_owned());
    let mut table = Table { columns, rows: Vec::new(), plot: Some(Plot::Lines { x, x_title, y_title }) };
    let runtime = Flavor::CurrentThread.runtime();
    for operation in operations {
        let calls = runtime.block_on(prepare(url, operation, effort.count(CALL)));
        let samples = interleave(effort.rounds, calls.len(), |which| runtime.block_on(calls[which].micros()));
        let micros = samples.iter().map(|rounds| number(median(rounds.iter().copied()), 1));
        let ratio = Ratio::new(&samples[NUMBERS.len() - 1], &samples[FEW], |micros| *micros);
        table.rows.push([operation.name.into()].into_iter().chain(micros).chain([ratio.into()]).collect());
    }
    table
}

/// One call for each number. Each has a lock of its own.
async fn prepare(url: &str, operation: &Operation, calls: usize) -> Vec<TimedCall> {
    let mut server = connect(url).await;
    let () = run(&mut server, &cmd("FLUSHALL")).await;
    let sha = load(&mut server, &scripts::lockkeeper(operation.script)).await;
    let mut prepared = Vec::new();
    for number in NUMBERS {
        let Prepared { state, restore, keys, args, answer } =
            (operation.prepare)(&format!("scale:{number}"), number);
        write(&mut server, &state).await;
        let mut call = cmd("EVALSHA");
        call.arg(&sha).arg(keys.len()).arg(keys).arg(args);
        prepared.push(TimedCall::new(server.clone(), restore, call, answer, calls).await);
    }
    prepared
}

async fn write(server: &mut MultiplexedConnection, commands: &[Cmd]) {
    for commands in commands.chunks(PIPELINED) {
        let mut pipeline = pipe();
        for command in commands {
            pipeline.add_command(command.clone()).ignore();
        }
        let () = pipeline.query_async(server).await.expect("answers");
    }
}
