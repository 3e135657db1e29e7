//! The queues of fair locks, as the servers' replies tell them. Rule i: locks are granted in the order of the queue. Rule q: no waiter loses
//! its place without a cause.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockkeeper_testkit::lua;

use crate::permits::texts;
use crate::plan::MS;
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
    /// The places, as the server has them. `None`: nobody knows them since data was lost.
    places: Option<Vec<String>>,
    /// Since when the first of them is the first.
    front_since: Duration,
    /// Until when each waiter counts as alive at least, by what the server told it last.
    alive_until: BTreeMap<String, Duration>,
    /// The waiter that was told last that it is the next, and when the lease ends for which it waits.
    told: Option<(String, Duration)>,
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
                (queue.places, queue.told) = (None, None);
                queue.alive_until.clear();
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
        let Queue { waiters: queue, holder, seen, unknown, .. } = self.0.entry((server, name)).or_default();
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
            "release.lua" => queue.retain(|waiter| waiter.owner != owner),
            "heartbeat.lua" if reply.starts_with(b"*") => {
                let allowance: u64 = script.arg(0).parse().unwrap_or(0);
                let (replies, lost) = (String::from_utf8_lossy(reply), named("LOST"));
                let replies = replies.split("\r\n").skip(1);
                for (owner, reply) in script.arg(1).split(' ').zip(replies) {
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

impl Queues {
    /// Since when the first waiter in the queue of a fair lock is the first.
    pub fn front_since(&self, server: usize, name: &str) -> Duration {
        self.0.get(&(server, name.to_owned())).map_or(Duration::ZERO, |queue| queue.front_since)
    }

    /// Asks a server about the queue of a fair lock, after a script. Returns what is wrong with a place.
    pub fn check_places(
        &mut self,
        now: Duration,
        server: usize,
        script: &Script<'_>,
        reply: &[u8],
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) -> Option<String> {
        let verb = script.file.strip_prefix("fair/")?;
        let name = String::from_utf8_lossy(&script.keys[0]).into_owned();
        let key = String::from_utf8_lossy(&script.keys[1]).into_owned();
        let places = texts(&ask(&["LRANGE", &key, "0", "-1"]));
        let Queue { places: before, front_since, alive_until, told, .. } =
            self.0.entry((server, name.clone())).or_default();
        let owner = script.arg(0);
        let mut problem = None;
        if before.as_ref().is_none_or(|before| before.first() != places.first()) {
            *front_since = now;
        }
        if let Some(before) = before {
            let left = before.iter().filter(|waiter| !places.contains(waiter));
            // It was granted the lock, or it left.
            let mut left = left.filter(|waiter| *waiter != owner || verb == "heartbeat.lua");
            let lives = |waiter: &&String| alive_until.get(*waiter).is_some_and(|until| now < *until);
            problem = left.find(lives).map(|waiter| format!("{waiter} lost its place"));
            let stay: Vec<_> = before.iter().filter(|waiter| places.contains(waiter)).collect();
            if stay.iter().zip(&places).any(|(before, now)| *before != now) || stay.len() > places.len() {
                problem = problem.or_else(|| Some(format!("places were {before:?}, and are {places:?}")));
            }
        }
        match verb {
            "acquire.lua" if reply.starts_with(b":") => {
                let allowance: u64 = script.arg(2).parse().unwrap_or(0);
                if places.iter().any(|waiter| waiter == owner) && allowance > 0 {
                    alive_until.insert(owner.to_owned(), now + lives(allowance));
                }
                let left: Option<u64> =
                    std::str::from_utf8(&reply[1..]).ok().and_then(|left| left.trim().parse().ok());
                let is_first = places.first().is_some_and(|first| first == owner);
                if reply.starts_with(b":-1\r") && is_first && !ask(&["PTTL", &name]).starts_with(b":-") {
                    problem = problem.or_else(|| {
                        Some(format!("{owner} is the next, and was not told until when it waits"))
                    });
                }
                if let Some(left) = left {
                    *told = Some((owner.to_owned(), now + Duration::from_millis(left)));
                }
            }
            "heartbeat.lua" if reply.starts_with(b"*") => {
                let allowance: u64 = script.arg(0).parse().unwrap_or(0);
                for owner in
                    script.arg(1).split(' ').filter(|owner| places.iter().any(|waiter| waiter == owner))
                {
                    alive_until.insert(owner.to_owned(), now + lives(allowance));
                }
            }
            _ => {}
        }
        alive_until.retain(|waiter, _| places.contains(waiter));
        *before = Some(places);
        problem
    }

    /// The waiters of a server that count as dead although they have a place.
    pub fn dead(&self, now: Duration, server: usize) -> Vec<String> {
        let here = self.0.iter().filter(|((at, _), _)| *at == server);
        let dead = here.flat_map(|(_, queue)| queue.alive_until.iter().filter(|(_, until)| **until < now));
        dead.map(|(waiter, _)| waiter.clone()).collect()
    }

    /// Whether the next waiter for a lock knows that its lease ended at this time.
    pub fn is_told(&self, server: usize, name: &str, ended: Duration) -> bool {
        let queue = self.0.get(&(server, name.to_owned()));
        queue.is_some_and(|queue| {
            let first = queue.places.as_ref().and_then(|places| places.first());
            let told = queue.told.as_ref();
            first.zip(told).is_some_and(|(first, (waiter, until))| {
                first == waiter && *until <= ended + 2 * MS && ended <= *until + 2 * MS
            })
        })
    }
}

/// A reply of a script, as the server sends it.
fn named(reply: &str) -> String {
    format!(":{}", lua::reply(reply))
}

fn lives(allowance: u64) -> Duration {
    Duration::from_millis(allowance + allowance / 3)
}
