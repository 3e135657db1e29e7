//! The table of a fair lock: `fair/acquire`, `release` and `heartbeat`. It is re-entered and renewed like an RLock.

use lockkeeper_testkit::Server;

use super::{Call, common, ms, state};

const TABLE: &str = "
    Acquire without a queue.
    free                              | acquire A 30s | granted       | A=1 30s                            | -      | granted
    A=1 20s                           | acquire A 30s | granted       | A=1 30s                            | -      | granted
    A=2 60s                           | acquire A 30s | granted       | A=2 60s                            | -      | granted
    A=1 20s; queue C                  | acquire A 30s | granted       | A=1 30s; queue C                   | -      | granted
    B=1 20s                           | acquire A 30s | QUEUED        | B=1 20s; queue A                   | -      | 20s
    B=1 endless                       | acquire A 30s | QUEUED        | B=1 endless; queue A               | -      | NO_KNOWN_END
    J=1 20s                           | acquire A 30s | QUEUED        | J=1 20s; queue A                   | -      | 20s
    B=1 20s                           | try A 30s     | NO_KNOWN_END  | B=1 20s                            | -      | NO_KNOWN_END

    Acquire, and the key is something else. Nothing changes.
    B=1 mode=read 20s                 | acquire A 30s | OTHER_KIND    | B=1 mode=read 20s                  | -      | OTHER_KIND
    items=3 endless                   | acquire A 30s | NOT_A_LOCK    | items=3 endless                    | -      | NOT_A_LOCK
    items=3 endless; queue A          | acquire A 30s | NOT_A_LOCK    | items=3 endless; queue A           | -      | NOT_A_LOCK

    Acquire, and others wait. Only the first waiter is granted a free lock, and it learns when the holder's lease ends.
    B=1 20s; queue C                  | acquire A 30s | QUEUED        | B=1 20s; queue C A                 | -      | NO_KNOWN_END
    B=1 20s; queue C.ahead            | acquire A 30s | QUEUED        | B=1 20s; queue C A                 | -      | NO_KNOWN_END
    B=1 20s; queue C+510s             | acquire A 30s | QUEUED        | B=1 20s; queue C+510s A            | -      | NO_KNOWN_END
    B=1 20s; queue C A                | acquire A 30s | NO_KNOWN_END  | B=1 20s; queue C A                 | -      | NO_KNOWN_END
    B=1 20s; queue A C                | acquire A 30s | 20s           | B=1 20s; queue A C                 | -      | 20s
    B=1 20s; queue C                  | try A 30s     | NO_KNOWN_END  | B=1 20s; queue C                   | -      | NO_KNOWN_END
    free; queue A                     | acquire A 30s | granted       | A=1 30s                            | -      | granted
    free; queue A C                   | acquire A 30s | granted       | A=1 30s; queue C                   | -      | granted
    free; queue A J                   | acquire A 30s | granted       | A=1 30s; queue J                   | -      | granted
    free; queue C                     | acquire A 30s | QUEUED        | free; queue C A                    | 0 to C | NO_KNOWN_END
    free; queue C A                   | acquire A 30s | NO_KNOWN_END  | free; queue C A                    | 0 to C | NO_KNOWN_END
    free; queue C                     | try A 30s     | NO_KNOWN_END  | free; queue C                      | 0 to C | NO_KNOWN_END

    Acquire behind dead waiters. Those in front of the first living one are removed; an attempt shows that its own waiter lives.
    free; queue C.dead                | acquire A 30s | granted       | A=1 30s                            | -      | granted
    free; queue C.dead D.dead A       | acquire A 30s | granted       | A=1 30s                            | -      | granted
    free; queue C.dead D A            | acquire A 30s | NO_KNOWN_END  | free; queue D A                    | 0 to D | NO_KNOWN_END
    free; queue D C.dead A            | acquire A 30s | NO_KNOWN_END  | free; queue D C.dead A             | 0 to D | NO_KNOWN_END
    free; queue A.dead                | acquire A 30s | granted       | A=1 30s                            | -      | granted
    B=1 20s; queue A.dead             | acquire A 30s | 20s           | B=1 20s; queue A                   | -      | 20s
    B=1 20s; queue C.dead             | acquire A 30s | QUEUED        | B=1 20s; queue A                   | -      | 20s
    free; queue J.dead                | acquire A 30s | granted       | A=1 30s                            | -      | granted
    free; queue J.dead C.dead A/1     | acquire A 30s | granted       | A=1 30s                            | -      | granted

    Acquire beside Java clients. A score is later by one longest wait of Java for each of them in front.
    free; queue J                     | acquire A 30s | QUEUED        | free; queue J A/1+510s             | 0 to J | NO_KNOWN_END
    free; queue J.noscore             | acquire A 30s | QUEUED        | free; queue J A/1+510s             | 0 to J | NO_KNOWN_END
    B=1 20s; queue J K                | acquire A 30s | QUEUED        | B=1 20s; queue J K A/2+810s        | -      | NO_KNOWN_END
    B=1 20s; queue C J                | acquire A 30s | QUEUED        | B=1 20s; queue C J A/1+510s        | -      | NO_KNOWN_END
    B=1 20s; queue J C/1+510s         | acquire A 30s | QUEUED        | B=1 20s; queue J C/1+510s A/1+510s | -      | NO_KNOWN_END
    B=1 20s; queue J C/1+510s K+600s  | acquire A 30s | QUEUED        | B=1 20s; queue J C/1+510s K+600s A/2+1110s | - | NO_KNOWN_END

    Acquire after another program removed keys. The waiter keeps its place if anything says where that is.
    B=1 20s; queue A.norecord         | acquire A 30s | 20s           | B=1 20s; queue A                   | -      | 20s
    B=1 20s; queue C A.norecord       | acquire A 30s | NO_KNOWN_END  | B=1 20s; queue C A                 | -      | NO_KNOWN_END
    B=1 20s; queue C A.noticket       | acquire A 30s | NO_KNOWN_END  | B=1 20s; queue C A                 | -      | NO_KNOWN_END
    B=1 20s; queue C A.noscore        | acquire A 30s | NO_KNOWN_END  | B=1 20s; queue C A.noscore         | -      | NO_KNOWN_END
    B=1 20s; queue C A.noscore.noticket | acquire A 30s | QUEUED      | B=1 20s; queue C A                 | -      | NO_KNOWN_END
    B=1 20s; queue C A.norecord.noscore.noticket D | acquire A 30s | QUEUED | B=1 20s; queue C D A         | -      | NO_KNOWN_END
    B=1 20s; queue A.noticket         | acquire A 30s | 20s           | B=1 20s; queue A.noticket          | -      | 20s
    B=1 20s; queue C A.norecord.noscore | acquire A 30s | NO_KNOWN_END | B=1 20s; queue C A                | -      | NO_KNOWN_END
    B=1 20s; queue C; missing A.norecord.noticket | acquire A 30s | QUEUED | B=1 20s; queue C A            | -      | NO_KNOWN_END
    free; missing A                   | acquire A 30s | granted       | A=1 30s                            | -      | granted
    B=1 20s; missing C                | acquire A 30s | QUEUED        | B=1 20s; queue C-30s A; list endless | -      | NO_KNOWN_END
    B=1 20s; queue D; missing C       | acquire A 30s | QUEUED        | B=1 20s; queue C-30s D A           | -      | NO_KNOWN_END
    free; queue D; missing A          | acquire A 30s | granted       | A=1 30s; queue D                   | -      | granted
    B=1 20s; queue J; missing C.noscore | acquire C 30s | 20s         | B=1 20s; queue C-30s J             | -      | 20s

    Release. It wakes the first living waiter. Fair locks do not count who hears the message.
    A=1 20s                           | release A     | 0             | free                               | -      | LOST
    A=2 20s; queue C D                | release A     | 0             | free; queue C D                    | 0 to C | LOST
    A=1 20s; queue J C/1              | release A     | 0             | free; queue J C/1                  | 0 to J | LOST
    A=1 20s; queue C.dead D           | release A     | 0             | free; queue D                      | 0 to D | LOST
    A=1 20s; queue C.dead J           | release A     | 0             | free; queue J                      | 0 to J | LOST
    A=1 20s; queue J.dead C/1         | release A     | 0             | free; queue C/1                    | 0 to C | LOST
    A=1 20s; queue J.noscore          | release A     | 0             | free; queue J                      | 0 to J | LOST
    A=1 20s; queue C.dead             | release A     | 0             | free                               | -      | LOST
    A=1 20s; queue D; missing C       | release A     | 0             | free; queue C-30s D                | 0 to C | LOST
    A=1 items=3 20s; queue C          | release A     | BESIDE_DATA   | items=3 endless; queue C           | 0 to C | LOST
    free                              | release A     | LOST          | free                               | -      | LOST
    B=1 20s                           | release A     | LOST          | B=1 20s                            | -      | LOST
    B=1 20s; queue C                  | release A     | LOST          | B=1 20s; queue C                   | -      | LOST
    items=3 20s                       | release A     | LOST          | items=3 20s                        | -      | LOST

    A waiter leaves the queue. If the lock is free, the next one is woken.
    B=1 20s; queue A                  | release A     | 0             | B=1 20s                            | -      | LOST
    B=1 20s; queue A C                | release A     | 0             | B=1 20s; queue C                   | -      | LOST
    B=1 20s; queue C A D              | release A     | 0             | B=1 20s; queue C D                 | -      | LOST
    B=1 20s; queue C D A              | release A     | 0             | B=1 20s; queue C D                 | -      | LOST
    B=1 20s; queue J A/1 K            | release A     | 0             | B=1 20s; queue J K                 | -      | LOST
    free; queue A                     | release A     | 0             | free                               | -      | LOST
    free; queue A C                   | release A     | 0             | free; queue C                      | 0 to C | LOST
    free; queue C A                   | release A     | 0             | free; queue C                      | 0 to C | LOST
    B=1 20s; queue C; missing A       | release A     | 0             | B=1 20s; queue C                   | -      | LOST
    B=1 20s; queue C A.norecord       | release A     | 0             | B=1 20s; queue C                   | -      | LOST
    B=1 20s; queue C A.noticket       | release A     | 0             | B=1 20s; queue C                   | -      | LOST

    Heartbeat. A waiter that has a place counts as alive. If the lock is free, the first waiter is woken, and told so.
    B=1 20s; queue A C                | heartbeat A   | PLACE_KEPT    | B=1 20s; queue A C                 | -      | PLACE_KEPT
    B=1 20s; queue A C                | heartbeat C A | PLACE_KEPT PLACE_KEPT | B=1 20s; queue A C         | -      | PLACE_KEPT PLACE_KEPT
    B=1 20s; queue A.dead C           | heartbeat A   | PLACE_KEPT    | B=1 20s; queue A C                 | -      | PLACE_KEPT
    free; queue A C                   | heartbeat C A | PLACE_KEPT FIRST_AND_FREE | free; queue A C        | 0 to A | PLACE_KEPT FIRST_AND_FREE
    free; queue A C                   | heartbeat C   | PLACE_KEPT    | free; queue A C                    | 0 to A | PLACE_KEPT
    free; queue J A/1+510s            | heartbeat A   | PLACE_KEPT    | free; queue J A/1+510s             | 0 to J | PLACE_KEPT
    items=3 endless; queue A          | heartbeat A   | PLACE_KEPT    | items=3 endless; queue A           | -      | PLACE_KEPT
    free                              | heartbeat A   | LOST          | free                               | -      | LOST
    B=1 20s; queue C                  | heartbeat A   | LOST          | B=1 20s; queue C                   | -      | LOST
    B=1 20s; queue A                  | heartbeat C A D | LOST PLACE_KEPT LOST | B=1 20s; queue A          | -      | LOST PLACE_KEPT LOST
    free; queue C                     | heartbeat A   | LOST          | free; queue C                      | 0 to C | LOST

    Heartbeat behind dead waiters.
    B=1 20s; queue C.dead A           | heartbeat A   | PLACE_KEPT    | B=1 20s; queue A                   | -      | PLACE_KEPT
    free; queue C.dead A              | heartbeat A   | FIRST_AND_FREE | free; queue A                     | 0 to A | FIRST_AND_FREE
    free; queue J.dead A/1            | heartbeat A   | FIRST_AND_FREE | free; queue A/1                   | 0 to A | FIRST_AND_FREE

    Heartbeat beside Java clients: it sets the scores anew, for Java clients at the head by their own scores.
    B=1 20s; queue J A/1              | heartbeat A   | PLACE_KEPT    | B=1 20s; queue J A/1+510s          | -      | PLACE_KEPT
    B=1 20s; queue C J A/1            | heartbeat A   | PLACE_KEPT    | B=1 20s; queue C J A/1+300s        | -      | PLACE_KEPT
    B=1 20s; queue C J A/1            | heartbeat A C | PLACE_KEPT PLACE_KEPT | B=1 20s; queue C J A/1+300s | -     | PLACE_KEPT PLACE_KEPT
    B=1 20s; queue A/1+510s           | heartbeat A   | PLACE_KEPT    | B=1 20s; queue A/1                 | -      | PLACE_KEPT
    B=1 20s; queue J.noscore A/1      | heartbeat A   | PLACE_KEPT    | B=1 20s; queue J A/1+510s          | -      | PLACE_KEPT

    Heartbeat after another program, or a Java client whose clock is ahead, removed keys.
    free; missing A                   | heartbeat A   | FIRST_AND_FREE | free; queue A                     | 0 to A | FIRST_AND_FREE
    B=1 20s; missing A C              | heartbeat C   | PLACE_KEPT    | B=1 20s; queue A-30s C               | -      | PLACE_KEPT
    B=1 20s; queue C; missing A       | heartbeat A   | PLACE_KEPT    | B=1 20s; queue A C                 | -      | PLACE_KEPT
    B=1 20s; queue J; missing A.noscore | heartbeat A | PLACE_KEPT    | B=1 20s; queue A J                 | -      | PLACE_KEPT
    B=1 20s; queue J C/1; missing A.noscore | heartbeat A | PLACE_KEPT | B=1 20s; queue A J C/1            | -      | PLACE_KEPT
    B=1 20s; queue J; missing A       | heartbeat A   | PLACE_KEPT    | B=1 20s; queue J; missing A+510s   | -      | PLACE_KEPT
    B=1 20s; queue C A; tickets A C   | heartbeat A   | PLACE_KEPT    | B=1 20s; queue A C                 | -      | PLACE_KEPT
    B=1 20s; queue J A.noscore; missing C | heartbeat A | PLACE_KEPT  | B=1 20s; queue J A.noscore; missing C | -   | PLACE_KEPT
    B=1 20s; queue J A.noscore/1      | heartbeat A   | PLACE_KEPT    | B=1 20s; queue J A.noscore/1       | -      | PLACE_KEPT
    B=1 20s; queue A.noscore          | heartbeat A   | PLACE_KEPT    | B=1 20s; queue A.noscore           | -      | PLACE_KEPT
    B=1 20s; queue C A.noticket       | heartbeat A   | LOST          | B=1 20s; queue C A.noticket        | -      | LOST
    B=1 20s; queue C A.norecord       | heartbeat A   | LOST          | B=1 20s; queue C A.norecord        | -      | LOST
    B=1 20s; queue A C; list endless  | heartbeat A   | PLACE_KEPT    | B=1 20s; queue A C                 | -      | PLACE_KEPT
    B=1 20s; queue A C; records endless | heartbeat A | PLACE_KEPT    | B=1 20s; queue A C                 | -      | PLACE_KEPT
";

const ALLOWANCE_MS: &str = "30000";
const JAVA_WAIT_MS: &str = "300000";

fn call(words: &[&str]) -> Call {
    use state::{CHANNEL, LOCK, QUEUE, RECORDS, SCORES, TICKETS};
    let keys = [LOCK, QUEUE, SCORES, RECORDS, TICKETS, CHANNEL].map(str::to_owned).to_vec();
    let (file, args) = match words {
        ["acquire", who, lease] => {
            ("fair/acquire.lua", vec![state::owner(who), ms(lease), ALLOWANCE_MS.to_owned()])
        }
        ["try", who, lease] => ("fair/acquire.lua", vec![state::owner(who), ms(lease), "0".to_owned()]),
        ["release", who] => ("fair/release.lua", vec![state::owner(who)]),
        ["heartbeat", waiters @ ..] => {
            let ids: Vec<String> = waiters.iter().map(|letter| state::owner(letter)).collect();
            let args = [ALLOWANCE_MS, JAVA_WAIT_MS, &ids.join(" ")].map(str::to_owned).to_vec();
            return ("fair/heartbeat.lua", keys, args);
        }
        _ => return common(words),
    };
    (file, keys, [args, vec![JAVA_WAIT_MS.to_owned()]].concat())
}

#[test]
fn a_fair_lock_follows_its_table() {
    super::check(TABLE, call);
}

/// A script reads the queue in parts of 100 waiters.
#[test]
fn a_waiter_counts_all_java_clients_in_front() {
    let server = Server::start();
    let run = |words: &[&str]| {
        let (file, keys, args) = call(words);
        let as_str = |list: &[String]| list.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        let (keys, args) = (as_str(&keys), as_str(&args));
        server.script(file, &keys.split(' ').collect::<Vec<_>>(), &args.split(' ').collect::<Vec<_>>());
    };
    for (count, is_behind_ours) in
        [(99, false), (100, true), (101, false), (101, true), (250, false), (250, true)]
    {
        server.run::<()>(&["FLUSHALL"]);
        if is_behind_ours {
            run(&["acquire", "B", "30s"]);
            run(&["acquire", "C", "30s"]);
        }
        let until = (server.now_ms() + 300_000).to_string();
        for number in 0..count {
            let java = format!("java:{number}");
            server.run::<()>(&["RPUSH", state::QUEUE, &java]);
            server.run::<()>(&["ZADD", state::SCORES, &until, &java]);
        }
        run(&["acquire", "A", "30s"]);
        let record: String = server.run(&["HGET", state::RECORDS, &state::owner("A")]);
        assert!(record.ends_with(&format!(" {count}")), "{record}, behind {count}");

        run(&["heartbeat", "A"]);
        let score: u64 = server.run(&["ZSCORE", state::SCORES, &state::owner("A")]);
        // From the time of the script on: one wait for each Java client, and one for the score of the first.
        let waits_ms = if is_behind_ours { 90_000 + 300_000 * count } else { 300_000 * (count + 1) };
        let expected = server.now_ms() + waits_ms;
        assert!(score <= expected && expected < score + 20_000, "{score}, not {expected}, behind {count}");
    }
}
