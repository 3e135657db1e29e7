//! The queues of fair locks, as the servers' replies tell them. Rule i: locks are granted in the order of the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockkeeper_testkit::lua;

use crate::trace::Script;

/// The queue of each lock on each server.
#[derive(Default)]
pub struct Queues(BTreeMap<(usize, String), Queue>);

#[derive(Default)]
struct Queue {
    waiters: Vec<Waiter>,
    /// The owner that was granted the lock last. A copy of its attempt is granted again.
    holder: String,
    /// All that ever queued or were granted the lock.
    seen: BTreeSet<String>,
    /// The same before data was lost: nobody knows which places and holds were lost.
    unknown: BTreeSet<String>,
}

struct Waiter {
    owner: String,
    /// It counts as alive until then, without another heartbeat.
    alive_until: Duration,
}

impl Queues {
    pub fn is_used(&self, server: usize) -> bool {
        self.0.range((server, String::new())..).next().is_some_and(|((at, _), _)| *at == server)
    }

    /// The server lost data.
    pub fn forget(&mut self, server: usize) {
        for ((at, _), queue) in &mut self.0 {
            if *at == server {
                queue.waiters.clear();
                queue.unknown.clone_from(&queue.seen);
                queue.holder.clear();
            }
        }
    }

    /// Returns what is wrong with the order, if something is.
    pub fn command(
        &mut self,
        now: Duration,
        server: usize,
        script: &Script<'_>,
        reply: &[u8],
    ) -> Option<String> {
        let verb = script.file.strip_prefix("fair/")?;
        let name = String::from_utf8_lossy(&script.keys[0]).into_owned();
        let Queue { waiters: queue, holder, seen, unknown } = self.0.entry((server, name)).or_default();
        let owner = script.arg(0);
        match verb {
            "acquire.lua" => match reply {
                reply if reply.strip_suffix(b"\r\n") == Some(named("QUEUED").as_bytes()) => {
                    let allowance: u64 = script.arg(2).parse().unwrap_or(0);
                    queue.retain(|waiter| waiter.owner != owner);
                    seen.insert(owner.to_owned());
                    queue.push(Waiter { owner: owner.to_owned(), alive_until: now + lives(allowance) });
                }
                b"$-1\r\n" if holder != owner => {
                    owner.clone_into(holder);
                    seen.insert(owner.to_owned());
                    let before = queue.iter().take_while(|waiter| waiter.owner != owner);
                    let passed = before.filter(|waiter| waiter.alive_until > now);
                    let passed: Vec<_> = passed.map(|waiter| waiter.owner.clone()).collect();
                    queue.retain(|waiter| waiter.owner != owner);
                    if !passed.is_empty() && !unknown.contains(owner) {
                        return Some(format!("{owner} was granted the lock before {passed:?}"));
                    }
                }
                _ => {}
            },
            "release.lua" if script.arg(1) == "0" => queue.retain(|waiter| waiter.owner != owner),
            "heartbeat.lua" if reply.starts_with(b"*") => {
                let allowance: u64 = script.arg(0).parse().unwrap_or(0);
                let (replies, lost) = (String::from_utf8_lossy(reply), named("LOST"));
                let replies = replies.split("\r\n").skip(1);
                for (owner, reply) in script.arg(2).split(' ').zip(replies) {
                    match queue.iter_mut().find(|waiter| waiter.owner == owner) {
                        Some(waiter) if reply != lost => waiter.alive_until = now + lives(allowance),
                        _ => queue.retain(|waiter| waiter.owner != owner),
                    }
                }
            }
            _ => {}
        }
        None
    }
}

/// A reply of a script, as the server sends it.
fn named(reply: &str) -> String {
    format!(":{}", lua::reply(reply))
}

fn lives(allowance: u64) -> Duration {
    Duration::from_millis(allowance + allowance / 3)
}
