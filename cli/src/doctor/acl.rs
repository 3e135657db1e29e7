//! `lockkeeper doctor --acl`: the rights that a user needs, as one command for `redis-cli`.

use crate::args::Use;

/// What each lock needs, on a single server and in a cluster. `%` stands for the beginning of the names.
const ALL: &str = "~%* ~lockkeeper_client:%* &redisson_lock__channel:{%* &redisson_lock__channel:%* +evalsha +eval +hello +ping +select +info +del \
                   +exists +get +hdel +hexists +hget +hrandfield +hscan +hset +persist +pexpire +pttl +publish +set +subscribe +time +unsubscribe \
                   +client|list +client|setname +client|tracking +cluster|nodes +cluster|slots +asking +spublish +ssubscribe +sunsubscribe";

const FENCED: &str = "~redisson_lock_token:{%* ~redisson_lock_token:%* +incr";

const READ_WRITE: &str =
    "~{%* ~redisson_rwlock:{%* ~redisson_rwlock:%* &redisson_rwlock:{%* &redisson_rwlock:%* +hgetall +hlen";

/// What a type of lock, or a use of locks, needs besides.
const fn of(kind: Use) -> [&'static str; 2] {
    match kind {
        Use::Rlock => ["", ""],
        Use::Fair => [
            "~redisson_lock__channel:{%* ~redisson_lock__channel:%* ~redisson_lock_queue:{%* ~redisson_lock_queue:%* ~redisson_lock_timeout:{%* \
             ~redisson_lock_timeout:%* ~lockkeeper_fair:{%* ~lockkeeper_fair:%* ~lockkeeper_fair_tickets:{%* ~lockkeeper_fair_tickets:%*",
            "+hlen +hmget +lindex +llen +lpop +lpush +lrange +lrem +rpush +zadd +zcard +zrange +zrank +zrem +zscore",
        ],
        Use::Read | Use::Write => [READ_WRITE, ""],
        Use::Fenced => [FENCED, ""],
        Use::Semaphore => {
            ["~{%* &redisson_sc:{%* &redisson_sc:%*", "+incrby +zadd +zcard +zrange +zrem +zscore"]
        }
        Use::Claim => ["~{%* ~lockkeeper_claims:{%* ~lockkeeper_claims:%*", "+incr"],
        Use::Leader => [
            FENCED,
            "~lockkeeper_announcement:{%* ~lockkeeper_announcement:%* &lockkeeper_announcement:{%* &lockkeeper_announcement:%*",
        ],
        Use::Linger => [READ_WRITE, "+pubsub|numsub +pubsub|shardnumsub"],
    }
}

/// The command, for locks whose names begin with the prefix.
pub(super) fn command(prefix: &str, kinds: &[Use]) -> String {
    let special = |char: char| if "*?[]\\".contains(char) { format!("\\{char}") } else { char.to_string() };
    let prefix: String = prefix.chars().map(special).collect();
    let mut words = Vec::new();
    for word in
        [ALL].into_iter().chain(kinds.iter().flat_map(|kind| of(*kind))).flat_map(str::split_whitespace)
    {
        let word = word.replace('%', &prefix);
        if !words.contains(&word) {
            words.push(word);
        }
    }
    format!("ACL SETUSER locker on >PASSWORD {}\n", words.join(" "))
}
