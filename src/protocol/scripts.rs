//! The Lua scripts.
//!
//! Each is a file under `lua/`, embedded when the crate is compiled. The table below names its keys and arguments, as the
//! parameters of the function that builds the call. `tests/scripts.rs` compares them with the file's header and body.

use std::sync::Arc;

use smallvec::smallvec;

use super::script::{Arg, Batch, Call, Script};

macro_rules! source {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $file))
    };
}

macro_rules! script {
    ($file:literal) => {
        Script::new($file, source!($file))
    };
    ($file:literal with $($shared:literal)+) => {{
        const LEN: usize = source!($file).len() $(+ source!($shared).len())+;
        const BYTES: [u8; LEN] = with_shared(source!($file).as_bytes(), &[$(source!($shared).as_bytes()),+]);
        const SOURCE: &str = match std::str::from_utf8(&BYTES) {
            Ok(source) => source,
            Err(_) => unreachable!(),
        };
        Script::new($file, SOURCE)
    }};
}

/// Inserts shared files after the first line of a script, because that line has to stay the first.
const fn with_shared<const LEN: usize>(script: &[u8], shared: &[&[u8]]) -> [u8; LEN] {
    let mut first_line = 0;
    while script[first_line] != b'\n' {
        first_line += 1;
    }
    let (first_line, rest) = script.split_at(first_line + 1);
    let (mut joined, mut at) = copy([0; LEN], 0, first_line);
    let mut index = 0;
    while index < shared.len() {
        (joined, at) = copy(joined, at, shared[index]);
        index += 1;
    }
    copy(joined, at, rest).0
}

/// Copies `part` into `joined` at a position. Returns `joined` and the position behind the copy.
const fn copy<const LEN: usize>(mut joined: [u8; LEN], at: usize, part: &[u8]) -> ([u8; LEN], usize) {
    let mut index = 0;
    while index < part.len() {
        joined[at + index] = part[index];
        index += 1;
    }
    (joined, at + index)
}

/// A row is `name(file; keys; arguments)`. After the file, `with` names the files that are inserted into it. For a batch the row
/// is `NAME(file; keys of a row; shared argument; arguments of a row)`.
macro_rules! scripts {
    (
        calls { $( $name:ident($file:literal $(with $($shared_file:literal)+)?; $($key:ident),*; $($arg:ident),*); )* }
        batches { $( $batch:ident($batch_file:literal $(with $($batch_shared:literal)+)?; $($row_key:ident),*; $shared:ident; $($row_arg:ident),*); )* }
    ) => {
        $(
            #[allow(clippy::too_many_arguments, reason = "the script has so many keys and arguments")]
            pub(crate) fn $name($($key: &Arc<str>,)* $($arg: impl Into<Arg>,)*) -> Call {
                static SCRIPT: Script = script!($file $(with $($shared_file)+)?);
                Call { script: &SCRIPT, keys: smallvec![$(Arc::clone($key)),*], args: smallvec![$($arg.into()),*] }
            }
        )*
        $( pub(crate) static $batch: Batch = Batch(script!($batch_file $(with $($batch_shared)+)?)); )*
    };
}

scripts! {
    calls {
        check("check.lua"; ; name, commands);
        fair_acquire("fair/acquire.lua" with "rlock/shared.lua" "fair/shared.lua"; lock, queue, scores, places, tickets, channel; owner, lease_ms, allowance_ms, java_wait_ms);
        fair_heartbeat("fair/heartbeat.lua" with "fair/shared.lua"; lock, queue, scores, places, tickets, channel; allowance_ms, java_wait_ms, owners);
        fair_release("fair/release.lua" with "rlock/shared.lua" "fair/shared.lua"; lock, queue, scores, places, tickets, channel; owner, keep, java_wait_ms);
        fenced_acquire("fenced/acquire.lua" with "rlock/shared.lua"; lock, counter; owner, lease_ms);
        inspect("inspect.lua" with "read/shared.lua"; lock; cursor);
        list("list.lua"; ; cursor, pattern, count, queue, counter, channel, rw_channel);
        read_acquire("read/acquire.lua" with "read/shared.lua"; lock, channel; owner, grant, lease_ms);
        read_reenter("read/reenter.lua" with "read/shared.lua"; lock, channel; owner, grant, want, lease_ms);
        read_release("read/release.lua" with "read/shared.lua"; lock, channel; owner, grant, keep, usual_ms);
        read_state("read/state.lua" with "read/shared.lua"; lock, channel; );
        rlock_acquire("rlock/acquire.lua" with "rlock/shared.lua"; lock; owner, lease_ms);
        rlock_reenter("rlock/reenter.lua"; lock; owner, want, lease_ms);
        rlock_release("rlock/release.lua" with "rlock/shared.lua"; lock; owner, keep, channel);
        rlock_state("rlock/state.lua" with "rlock/shared.lua"; lock; );
        self_test("self_test.lua"; ; key);
        write_acquire("write/acquire.lua" with "read/shared.lua"; lock, channel; writer, lease_ms, turn_ms);
        write_release("write/release.lua" with "read/shared.lua"; lock, channel; writer, keep);
        write_state("write/state.lua" with "read/shared.lua"; lock; );
    }
    batches {
        READ_RENEW("read/renew.lua" with "read/shared.lua"; lock, channel; lease_ms; owner, grant, keep_ms);
        RLOCK_RENEW("rlock/renew.lua"; lock; lease_ms; owner);
    }
}
