//! The table of a fenced lock: `fenced/acquire`. It is re-entered, released and renewed like an RLock.

use super::{Call, common, ms, state};

const TABLE: &str = "
    Acquire. The token is one more than the last, and at least the server's clock.
    free                                  | acquire A 30s | clock            | A=1 30s; counter clock               | - | clock
    free; counter 7                       | acquire A 30s | clock            | A=1 30s; counter clock               | - | clock
    free; counter 0                       | acquire A 30s | clock            | A=1 30s; counter clock               | - | clock
    free; counter -5                      | acquire A 30s | clock            | A=1 30s; counter clock               | - | clock
    free; counter 9000000000000000        | acquire A 30s | 9000000000000001 | A=1 30s; counter 9000000000000001    | - | 9000000000000001
    free; counter 9223372036854775806     | acquire A 30s | 9223372036854775807 | A=1 30s; counter 9223372036854775807 | - | 9223372036854775807

    Acquire, and the counter cannot count. Nothing is granted.
    free; counter 9223372036854775807     | acquire A 30s | CANNOT_COUNT     | free; counter 9223372036854775807    | - | CANNOT_COUNT
    free; counter x                       | acquire A 30s | CANNOT_COUNT     | free; counter x                      | - | CANNOT_COUNT
    free; counter 1.5                     | acquire A 30s | CANNOT_COUNT     | free; counter 1.5                    | - | CANNOT_COUNT
    free; counter                         | acquire A 30s | CANNOT_COUNT     | free; counter                        | - | CANNOT_COUNT

    A copy that finds its own hold answers with its token.
    A=1 20s; counter 9000000000000000     | acquire A 30s | 9000000000000000 | A=1 30s; counter 9000000000000000    | - | 9000000000000000
    A=2 60s; counter 9000000000000000     | acquire A 30s | 9000000000000000 | A=2 60s; counter 9000000000000000    | - | 9000000000000000
    A=1 20s; counter 7                    | acquire A 30s | 7                | A=1 30s; counter 7                   | - | 7
    A=1 endless; counter 7                | acquire A 30s | 7                | A=1 30s; counter 7                   | - | 7
    A=1 20s; counter 9223372036854775807  | acquire A 30s | 9223372036854775807 | A=1 30s; counter 9223372036854775807 | - | 9223372036854775807
    A=1 20s                               | acquire A 30s | clock            | A=1 30s; counter clock               | - | clock
    A=1 20s; counter x                    | acquire A 30s | CANNOT_COUNT     | A=1 30s; counter x                   | - | CANNOT_COUNT
    A=1 20s; counter 0                    | acquire A 30s | CANNOT_COUNT     | A=1 30s; counter 0                   | - | CANNOT_COUNT
    A=1 20s; counter -5                   | acquire A 30s | CANNOT_COUNT     | A=1 30s; counter -5                  | - | CANNOT_COUNT
    A=1 20s; counter 9223372036854775808  | acquire A 30s | CANNOT_COUNT     | A=1 30s; counter 9223372036854775808 | - | CANNOT_COUNT
    A=1 20s; counter 10000000000000000000 | acquire A 30s | CANNOT_COUNT     | A=1 30s; counter 10000000000000000000 | - | CANNOT_COUNT
    A=1 20s; counter                      | acquire A 30s | CANNOT_COUNT     | A=1 30s; counter                     | - | CANNOT_COUNT

    The lock is held, or is something else. The counter does not change.
    B=1 20s; counter 7                    | acquire A 30s | 20s              | B=1 20s; counter 7                   | - | 20s
    B=2 endless; counter 7                | acquire A 30s | NO_KNOWN_END     | B=2 endless; counter 7               | - | NO_KNOWN_END
    J=1 20s; counter 7                    | acquire A 30s | 20s              | J=1 20s; counter 7                   | - | 20s
    B=1 20s                               | acquire A 30s | 20s              | B=1 20s                              | - | 20s
    B=1 20s; counter x                    | acquire A 30s | 20s              | B=1 20s; counter x                   | - | 20s
    B=1 mode=read 20s; counter 7          | acquire A 30s | OTHER_KIND       | B=1 mode=read 20s; counter 7         | - | OTHER_KIND
    items=3 endless; counter 7            | acquire A 30s | NOT_A_LOCK       | items=3 endless; counter 7           | - | NOT_A_LOCK
    B=1 C=1 20s; counter 7                | acquire A 30s | NOT_A_LOCK       | B=1 C=1 20s; counter 7               | - | NOT_A_LOCK

    A hold goes on and ends as that of an RLock. The counter stays.
    A=1 20s; counter 7                    | show A 2 30s | granted        | A=2 30s; counter 7                   | - | granted
    A=1 20s; counter 7                    | release A     | 1                | free; counter 7                      | 0 | LOST
    B=1 20s; counter 7                    | release A     | LOST             | B=1 20s; counter 7                   | - | LOST
";

fn call(words: &[&str]) -> Call {
    match words {
        ["acquire", who, lease] => {
            let keys = [state::LOCK, state::COUNTER].map(str::to_owned).to_vec();
            ("fenced/acquire.lua", keys, vec![state::owner(who), ms(lease)])
        }
        _ => common(words),
    }
}

#[test]
fn a_fenced_lock_follows_its_table() {
    super::check(TABLE, call);
}
