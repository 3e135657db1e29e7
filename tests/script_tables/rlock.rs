//! The table of an RLock: `rlock/acquire`, `show`, `release`, `renew` and `state`.

use super::{Call, common, ms, state};

const TABLE: &str = "
    Acquire. Only a free lock is granted. A lease is never made shorter.
    free                    | acquire A 30s   | granted      | A=1 30s                 | - | granted
    A=1 20s                 | acquire A 30s   | granted      | A=1 30s                 | - | granted
    A=1 60s                 | acquire A 30s   | granted      | A=1 60s                 | - | granted
    A=2 20s                 | acquire A 30s   | granted      | A=2 30s                 | - | granted
    A=1 endless             | acquire A 30s   | granted      | A=1 30s                 | - | granted
    B=1 20s                 | acquire A 30s   | 20s          | B=1 20s                 | - | 20s
    B=2 20s                 | acquire A 30s   | 20s          | B=2 20s                 | - | 20s
    B=1 endless             | acquire A 30s   | NO_KNOWN_END | B=1 endless             | - | NO_KNOWN_END
    J=1 20s                 | acquire A 30s   | 20s          | J=1 20s                 | - | 20s

    Acquire, and the key is something else. Nothing changes.
    B=1 mode=read 20s       | acquire A 30s   | OTHER_KIND   | B=1 mode=read 20s       | - | OTHER_KIND
    B:w=1 mode=write 20s    | acquire A 30s   | OTHER_KIND   | B:w=1 mode=write 20s    | - | OTHER_KIND
    mode=dark endless       | acquire A 30s   | NOT_A_LOCK   | mode=dark endless       | - | NOT_A_LOCK
    items=3 endless         | acquire A 30s   | NOT_A_LOCK   | items=3 endless         | - | NOT_A_LOCK
    item:1=2 20s            | acquire A 30s   | NOT_A_LOCK   | item:1=2 20s            | - | NOT_A_LOCK
    B=x 20s                 | acquire A 30s   | NOT_A_LOCK   | B=x 20s                 | - | NOT_A_LOCK
    B=1 items=3 20s         | acquire A 30s   | NOT_A_LOCK   | B=1 items=3 20s         | - | NOT_A_LOCK
    B=1 C=1 20s             | acquire A 30s   | NOT_A_LOCK   | B=1 C=1 20s             | - | NOT_A_LOCK

    Show a count. Only a hold that exists shows it, and its lease is never made shorter.
    A=1 20s                 | show A 2 30s | granted      | A=2 30s                 | - | granted
    A=1 60s                 | show A 2 30s | granted      | A=2 60s                 | - | granted
    A=2 20s                 | show A 2 30s | granted      | A=2 30s                 | - | granted
    A=3 20s                 | show A 2 30s | granted      | A=2 30s                 | - | granted
    A=9 20s                 | show A 10 30s | granted     | A=10 30s                | - | granted
    A=1 endless             | show A 2 30s | granted      | A=2 30s                 | - | granted
    A=1 items=3 20s         | show A 2 30s | granted      | A=2 items=3 30s         | - | granted
    free                    | show A 2 30s | LOST         | free                    | - | LOST
    B=1 20s                 | show A 2 30s | LOST         | B=1 20s                 | - | LOST
    B=1 mode=read 20s       | show A 2 30s | LOST         | B=1 mode=read 20s       | - | LOST
    items=3 endless         | show A 2 30s | LOST         | items=3 endless         | - | LOST

    Release. The test is one listener.
    A=1 20s                 | release A       | 1            | free                    | 0 | LOST
    A=2 20s                 | release A       | 1            | free                    | 0 | LOST
    A=1 endless             | release A       | 1            | free                    | 0 | LOST
    free                    | release A       | LOST         | free                    | - | LOST
    B=1 20s                 | release A       | LOST         | B=1 20s                 | - | LOST
    J=1 20s                 | release A       | LOST         | J=1 20s                 | - | LOST
    B=1 mode=read 20s       | release A       | LOST         | B=1 mode=read 20s       | - | LOST
    items=3 20s             | release A       | LOST         | items=3 20s             | - | LOST

    Release, and the key has more. Data stays without the expiry, which was the lease; another lock keeps its expiry.
    A=1 items=3 20s         | release A       | BESIDE_DATA  | items=3 endless         | 0 | LOST
    A=1 mode=dark 20s       | release A       | BESIDE_DATA  | mode=dark endless       | 0 | LOST
    A=1 B=1 20s             | release A       | 1            | B=1 20s                 | 0 | LOST
    A=1 B=1 mode=read 20s   | release A       | 1            | B=1 mode=read 20s       | 0 | LOST

    Renew. The count does not change, and a lease of 0 changes nothing.
    A=1 20s                 | renew 30s A     | RENEWED      | A=1 30s                 | - | RENEWED
    A=2 60s                 | renew 30s A     | RENEWED      | A=2 60s                 | - | RENEWED
    A=1 endless             | renew 30s A     | RENEWED      | A=1 30s                 | - | RENEWED
    A=1 20s                 | renew 0s A      | RENEWED      | A=1 20s                 | - | RENEWED
    A=1 endless             | renew 0s A      | RENEWED      | A=1 endless             | - | RENEWED
    free                    | renew 30s A     | LOST         | free                    | - | LOST
    B=1 20s                 | renew 30s A     | LOST         | B=1 20s                 | - | LOST
    text                    | renew 30s A     | LOST         | text                    | - | LOST

    State.
    free                    | state           | FREE         | free                    | - | FREE
    A=2 20s                 | state           | 20s          | A=2 20s                 | - | 20s
    A=1 endless             | state           | NO_KNOWN_END | A=1 endless             | - | NO_KNOWN_END
    B=1 mode=read 20s       | state           | OTHER_KIND   | B=1 mode=read 20s       | - | OTHER_KIND
    items=3 20s             | state           | NOT_A_LOCK   | items=3 20s             | - | NOT_A_LOCK
";

fn call(words: &[&str]) -> Call {
    match words {
        ["acquire", who, lease] => {
            ("rlock/acquire.lua", vec![state::LOCK.to_owned()], vec![state::owner(who), ms(lease)])
        }
        _ => common(words),
    }
}

#[test]
fn an_rlock_follows_its_table() {
    super::check(TABLE, call);
}
