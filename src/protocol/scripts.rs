//! The Lua scripts.
//!
//! Each is a file under `lua/`, embedded when the crate is compiled. The table below names its keys and arguments, in the
//! order of the function that builds the call. `tests/scripts.rs` compares them with the file's header and body.

use std::sync::Arc;

use smallvec::smallvec;

use super::script::{Arg, Call, Script};

/// `build.rs` has joined the file with what its header includes.
macro_rules! script {
    ($file:literal) => {
        Script::new($file, script!(text $file))
    };
    ($file:literal of $most:literal) => {
        Script::with_batch($file, script!(text $file), $most, script!(text concat!($file, ".batch")))
    };
    (text $path:expr) => {
        include_str!(concat!(env!("OUT_DIR"), "/lua/", $path))
    };
}

/// A row is `name(file; keys; arguments)`, or `name(file of N; keys; arguments)`: one command can have so many calls of the script. After
/// `..` stands the name of further keys, of which a call has any number. For a batch, it is `NAME(file; keys of a row; shared argument;
/// arguments of a row)`.
macro_rules! scripts {
    (
        calls { $( $name:ident($file:literal $(of $most:literal)?; $($key:ident),* $(..$further:ident)?; $($arg:ident),*); )* }
        batches { $( $batch:ident($batch_file:literal; $($row_key:ident),*; $shared:ident; $($row_arg:ident),*); )* }
    ) => {
        $(
            #[allow(clippy::too_many_arguments, reason = "the script has so many keys and arguments")]
            pub(crate) fn $name(
                [$($key),*]: [&Arc<str>; <[&str]>::len(&[$(stringify!($key)),*])],
                $($further: impl IntoIterator<Item = Arc<str>>,)? $($arg: impl Into<Arg>,)*
            ) -> Call {
                static SCRIPT: Script = script!($file $(of $most)?);
                #[allow(unused_mut, reason = "most scripts have no further keys")]
                let mut call = Call {
                    script: &SCRIPT,
                    keys: smallvec![$(Arc::clone($key)),*],
                    args: smallvec![$($arg.into()),*],
                };
                $( call.keys.extend($further); )?
                call
            }
        )*
        $(
            pub(crate) static $batch: Script = script!($batch_file);
        )*

        #[cfg(test)]
        fn all() -> Vec<Script> {
            vec![$(script!($file $(of $most)?),)* $(script!($batch_file)),*]
        }
    };
}

scripts! {
    calls {
        announcement_read("announcements/read.lua"; announcement; );
        announcement_remove("announcements/remove.lua"; announcement; owner);
        announcement_write("announcements/write.lua"; lock, announcement; owner, text);
        check("check.lua"; key; name, commands);
        claims_acquire("claims/acquire.lua"; counter ..lock; owner, lease_ms, valid_until);
        client_read("clients/read.lua"; client; );
        client_write("clients/write.lua"; client; expiry_ms, text);
        fair_acquire("fair/acquire.lua" of 64; lock, queue, scores, records, tickets, channel; owner, lease_ms, allowance_ms, valid_until);
        fair_heartbeat("fair/heartbeat.lua"; lock, queue, scores, records, tickets, channel; allowance_ms, owners, valid_until);
        fair_release("fair/release.lua" of 64; lock, queue, scores, records, tickets, channel; owner);
        fair_waiters("fair/waiters.lua"; queue; );
        fenced_acquire("fenced/acquire.lua" of 64; lock, counter; owner, lease_ms, valid_until);
        inspect("inspect.lua"; lock; cursor);
        list("list.lua"; ; cursor, pattern, of_type);
        place("place.lua"; queue; waiter);
        read_acquire("read/acquire.lua" of 48; lock, channel; owner, grant, lease_ms, valid_until);
        read_confirm("read/confirm.lua" of 48; lock, channel; owner, grant, lease_ms, stop_ms, calm_ms, is_gap);
        read_release("read/release.lua" of 48; lock, channel; owner, grant, usual_ms);
        read_show("read/show.lua" of 64; lock, channel; owner, grant, count, lease_ms);
        read_state("read/state.lua" of 64; lock, channel; );
        rlock_acquire("rlock/acquire.lua" of 64; lock; owner, lease_ms, valid_until);
        rlock_release("rlock/release.lua" of 64; lock; owner, channel);
        rlock_show("rlock/show.lua" of 64; lock; owner, count, lease_ms);
        rlock_state("rlock/state.lua" of 64; lock; );
        self_test("self_test.lua"; key; other);
        semaphore_acquire("semaphore/acquire.lua" of 48; semaphore, permits; ids, total, lease_ms, channel, valid_until);
        semaphore_delete("semaphore/delete.lua"; semaphore, permits; total, channel);
        semaphore_holders("semaphore/holders.lua"; permits; after_ms);
        semaphore_release("semaphore/release.lua" of 48; semaphore, permits; ids, channel);
        semaphore_resize("semaphore/resize.lua"; semaphore, permits; total, channel);
        semaphore_state("semaphore/state.lua"; semaphore, permits; total);
        waiters("waiters.lua"; lock; channel);
        write_acquire("write/acquire.lua" of 64; lock, channel; writer, lease_ms, turn_ms, valid_until);
        write_release("write/release.lua" of 64; lock, channel; writer);
        write_state("write/state.lua" of 64; lock; );
    }
    batches {
        READ_RENEW("read/renew.lua"; lock, channel; lease_ms; owner, grant, keep_ms);
        RLOCK_RENEW("rlock/renew.lua"; lock; lease_ms; owner);
        SEMAPHORE_RENEW("semaphore/renew.lua"; permits; lease_ms; ids);
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_testkit::lua;

    use super::all;

    /// What tests and `scripts/lua` take for the text of a script is what a server gets.
    #[test]
    fn the_scripts_are_those_of_the_files() {
        assert_eq!(all().len(), lua::files().len());
        for script in all() {
            let text = lua::source(script.file);
            assert_eq!(script.form(false).source, text, "{}", script.file);
            assert_eq!(script.form(true).source, lua::sharded(&text), "{}", script.file);
        }
    }
}
