//! Which locks are free, which workers wait for them, and which use them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::locks::{Claim, How, NAMES};
use crate::permits::Permits;
use crate::plan::{Kind, MS, Plan};
use crate::trace::Script;

/// A lock on a server, as its keys say.
#[derive(Clone, Debug)]
struct Key {
    /// It is held until then, unless something happens. `None`: it is free.
    held_until: Option<Duration>,
    /// Since when readers hold it.
    read_since: Option<Duration>,
    free_since: Duration,
    /// Its lease ended, and nobody told the waiters.
    is_expired: bool,
    /// When it was last seen held.
    last_held: Duration,
    /// Calls and guards that use it.
    users: usize,
    /// Those of them that want to write.
    writers: usize,
    /// Since when there is an intent of a writer.
    intent_since: Option<Duration>,
    /// Until then, an intent stopped readers.
    stopped_until: Duration,
    /// Until then, readers were told to wait, if nothing wakes them.
    told_until: Duration,
    /// Since when nobody uses it, and nobody left anything behind.
    unused_since: Duration,
    /// Since when it is held although all who use it wait for it.
    guardless_since: Option<Duration>,
    permits: Permits,
}

/// Longer than any world.
const FOR_EVER: Duration = Duration::from_secs(1 << 40);

/// Where the calls of a process for a semaphore stand: the process, the server and the name.
type Line = (usize, usize, usize);

pub struct Wait {
    process: usize,
    claims: Vec<Claim>,
    begun_at: Duration,
    how: How,
    was_behind: bool,
    was_reported: bool,
}

pub struct Waits {
    keys: BTreeMap<(usize, usize), Key>,
    waits: BTreeMap<usize, Wait>,
    /// The last wait of each worker, after its end.
    ended: BTreeMap<usize, Wait>,
    /// Waits for permits that nobody polls. They keep their place in the line.
    parked: BTreeMap<usize, Wait>,
    /// When a call in each line last ended. The next one is served after that.
    moved_at: BTreeMap<Line, Duration>,
    /// Since when each process runs. `None`: it does not.
    running: Vec<Option<Duration>>,
    is_read_write: bool,
    writer_turn: Duration,
    /// How much longer a lock may stay free whose lease ended. Fair waiters learn it from their heartbeat. A writer waits for the
    /// reader whose lease ends last. If that reader releases, only the safety poll tells the writer that the others have ended.
    unnoticed: Duration,
    reported_orphans: bool,
}

impl Waits {
    pub fn new(plan: &Plan) -> Self {
        let key = Key {
            held_until: None,
            read_since: None,
            free_since: Duration::ZERO,
            is_expired: false,
            last_held: Duration::ZERO,
            users: 0,
            writers: 0,
            intent_since: None,
            stopped_until: Duration::ZERO,
            told_until: Duration::ZERO,
            unused_since: Duration::ZERO,
            guardless_since: None,
            permits: Permits::new(plan.permits),
        };
        let names = if plan.kind == Kind::Multi { 3 } else { plan.names };
        let all = (0..plan.servers).flat_map(|server| (0..names).map(move |name| (server, name)));
        Self {
            keys: all.map(|one| (one, key.clone())).collect(),
            waits: BTreeMap::new(),
            ended: BTreeMap::new(),
            parked: BTreeMap::new(),
            moved_at: BTreeMap::new(),
            running: vec![Some(Duration::ZERO); plan.processes],
            is_read_write: plan.kind == Kind::ReadWrite,
            writer_turn: plan.writer_turn,
            unnoticed: match plan.kind {
                Kind::ReadWrite | Kind::Semaphore => plan.safety_poll,
                _ if plan.is_fair() => plan.fair_allowance / 2,
                _ => Duration::ZERO,
            },
            reported_orphans: false,
        }
    }

    /// Asks a server about its keys, after a command.
    ///
    /// Returns whether one is held without expiry.
    pub fn update(&mut self, now: Duration, server: usize, ask: &mut dyn FnMut(&[&str]) -> Vec<u8>) -> bool {
        let mut has_no_expiry = false;
        for ((at, name), key) in &mut self.keys {
            if *at != server {
                continue;
            }
            key.expire(now);
            if self.is_read_write {
                let intent = format!("{{{}}}:lockkeeper_intent", NAMES[*name]);
                key.has_intent(now, number(&ask(&["PTTL", &intent])) >= 0, self.writer_turn);
            }
            let left = number(&ask(&["PTTL", NAMES[*name]]));
            match u64::try_from(left) {
                Ok(left) => key.held_until = Some(now + Duration::from_millis(left + 1)),
                Err(_) if left == -1 => {
                    key.held_until = Some(FOR_EVER);
                    has_no_expiry = true;
                }
                Err(_) => {
                    key.read_since = None;
                    if let Some(until) = key.held_until.take() {
                        key.free_since = now;
                        key.is_expired = until <= now + 2 * MS;
                    }
                }
            }
            if key.held_until.is_some() {
                key.last_held = now;
                if self.is_read_write {
                    let is_read = ask(&["HGET", NAMES[*name], "mode"]) == b"$4\r\nread\r\n";
                    key.read_since = is_read.then(|| key.read_since.unwrap_or(now));
                }
            }
        }
        has_no_expiry
    }

    /// Asks a server about its semaphores, after a command. Returns what is wrong.
    pub fn update_permits(
        &mut self,
        now: Duration,
        server: usize,
        script: &Script<'_>,
        ask: &mut dyn FnMut(&[&str]) -> Vec<u8>,
    ) -> Option<String> {
        let mut problem = None;
        for ((at, name), key) in &mut self.keys {
            if *at == server {
                key.expire(now);
                let sets_total =
                    script.file == "semaphore/resize.lua" && *script.keys[0] == *NAMES[*name].as_bytes();
                problem = key.permits.update(now, *name, sets_total, ask).or(problem);
                key.held_until = key.permits.last_end(now);
                if key.held_until.is_some() {
                    key.last_held = now;
                }
            }
        }
        problem
    }

    /// How many names there are.
    pub fn names(&self) -> usize {
        self.keys.keys().map(|(_, name)| name + 1).max().unwrap_or(0)
    }

    /// A server lost data.
    pub fn forget(&mut self, server: usize) {
        for ((at, _), key) in &mut self.keys {
            if *at == server {
                key.permits.forget();
            }
        }
    }

    /// The least and the greatest total of a semaphore since then.
    pub fn totals_since(&self, claim: &Claim, since: Duration) -> (i64, i64) {
        self.keys[&(claim.server, claim.name)].permits.totals_since(since)
    }

    pub fn begin(&mut self, now: Duration, worker: usize, process: usize, claims: &[Claim], how: How) {
        self.ended.remove(&worker);
        let was_behind = self.waits.values().any(|other| other.process == process && other.is_for(claims));
        let claims = claims.to_vec();
        let wait = Wait { process, claims, begun_at: now, how, was_behind, was_reported: false };
        self.waits.insert(worker, wait);
    }

    /// Returns whether the call was behind another one of its process.
    pub fn end(&mut self, now: Duration, worker: usize) -> bool {
        let Some(wait) = self.waits.remove(&worker) else { return false };
        self.moved_at.insert(wait.line(), now);
        // Perhaps it has a guard now.
        for claim in &wait.claims {
            if let Some(key) = self.keys.get_mut(&(claim.server, claim.name)) {
                key.guardless_since = None;
            }
        }
        let was_behind = wait.was_behind;
        self.ended.insert(worker, wait);
        was_behind
    }

    /// Whether a call of the worker is under way, or is not polled.
    pub fn is_waiting(&self, worker: usize) -> bool {
        self.waits.contains_key(&worker)
    }

    /// Since when the call that ended last had waited, if it stood in the queue of a lock that one owner holds alone.
    pub fn queued_since(&self, worker: usize) -> Option<Duration> {
        self.ended.get(&worker).filter(|wait| wait.is_queued()).map(|wait| wait.begun_at)
    }

    /// Whether the time of the call that ended last was up. Such a call attempts once more, wherever it stands.
    pub fn was_late(&self, now: Duration, worker: usize) -> bool {
        self.ended.get(&worker).is_some_and(|wait| wait.is_late(now))
    }

    /// Whether the time of a call is up. It leaves the queue, and returns a moment later.
    pub fn is_late(&self, now: Duration, worker: usize) -> bool {
        self.waits.get(&worker).is_some_and(|wait| wait.is_late(now))
    }

    /// Of the calls of a process that stand in the queue for a lock to have it alone: the one that began first.
    pub fn first_queued(&self, process: usize, claim: &Claim) -> Option<(usize, Duration)> {
        let is_it = |wait: &Wait| wait.is_queued() && wait.process == process && wait.is_for(&[*claim]);
        let queued = self.waits.iter().filter(|(_, wait)| is_it(wait));
        queued.map(|(worker, wait)| (*worker, wait.begun_at)).min_by_key(|(_, begun_at)| *begun_at)
    }

    /// Nobody polls the call.
    pub fn parks(&mut self, worker: usize) {
        let wait = self.waits.remove(&worker).filter(|wait| wait.claims[0].permits > 0);
        self.parked.extend(wait.map(|wait| (worker, wait)));
    }

    /// The call is polled again, or dropped.
    pub fn unparks(&mut self, now: Duration, worker: usize, continues: bool) {
        if let Some(wait) = self.parked.remove(&worker) {
            self.moved_at.insert(wait.line(), now);
            self.waits.extend(continues.then_some((worker, wait)));
        }
    }

    /// A worker begins or ends to use a lock, by a call or a guard.
    pub fn uses(&mut self, claims: &[Claim]) {
        for claim in claims {
            if let Some(key) = self.keys.get_mut(&(claim.server, claim.name)) {
                key.users += 1;
                key.writers += usize::from(!claim.is_shared);
            }
        }
    }

    pub fn used(&mut self, now: Duration, claims: &[Claim]) {
        for claim in claims {
            if let Some(key) = self.keys.get_mut(&(claim.server, claim.name)) {
                key.users -= 1;
                key.stopped(now, self.writer_turn);
                key.writers -= usize::from(!claim.is_shared);
                key.unused_since = key.unused_since.max(now);
            }
        }
    }

    /// Something is left behind on these locks, which ends by itself then.
    pub fn leaked(&mut self, claims: &[Claim], until: Duration) {
        for claim in claims {
            if let Some(key) = self.keys.get_mut(&(claim.server, claim.name)) {
                key.unused_since = key.unused_since.max(until);
            }
        }
    }

    pub fn runs(&mut self, process: usize, since: Option<Duration>) {
        self.running[process] = since;
    }

    pub fn is_running(&self, process: usize) -> bool {
        self.running[process].is_some()
    }

    /// Waiters that wait for longer than `limit` for a lock that is free. `is_hung`: there are futures that nobody polls. `is_told`: the next
    /// waiter knew that the lease of this lock ends at this time. `front_since`: the wait counts from then.
    pub fn overdue(
        &mut self,
        now: Duration,
        from: Duration,
        limit: Duration,
        is_hung: bool,
        is_told: &dyn Fn(&Claim, Duration) -> bool,
        front_since: &dyn Fn(&Claim) -> Duration,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for key in self.keys.values_mut() {
            key.stopped(now, self.writer_turn);
        }
        // Nobody knows which call of a line is the first. If there are enough permits for each of them, the first one gets its own.
        let mut most = BTreeMap::<Line, u32>::new();
        for wait in self.waits.values().chain(self.parked.values()) {
            let most = most.entry(wait.line()).or_default();
            *most = wait.claims[0].permits.max(*most);
        }
        for (worker, wait) in &mut self.waits {
            let permits = most[&wait.line()];
            let claims: Vec<_> = wait.claims.iter().map(|claim| Claim { permits, ..*claim }).collect();
            let moved = self.moved_at.get(&wait.line()).copied().filter(|_| is_hung || permits > 0);
            let Some(Some(running)) = self.running.get(wait.process) else { continue };
            let free = claims.iter().map(|claim| {
                self.keys.get(&(claim.server, claim.name)).and_then(|key| key.free_since(now, claim))
            });
            let Some(free) = free.collect::<Option<Vec<_>>>() else { continue };
            let front = claims.iter().map(front_since).max().unwrap_or_default();
            let since = free
                .into_iter()
                .chain([front])
                .max()
                .unwrap_or_default()
                .max(wait.begun_at)
                .max(moved.unwrap_or_default())
                .max(*running)
                .max(from);
            let is_expired = claims.iter().any(|claim| {
                self.keys.get(&(claim.server, claim.name)).is_some_and(|key| match claim.permits {
                    0 => key.is_expired || key.held_until.is_some(),
                    count => key.permits.counts_ended(count),
                })
            });
            let knows = |claim: &Claim| {
                let key = self.keys.get(&(claim.server, claim.name));
                key.is_some_and(|key| is_told(claim, key.held_until.unwrap_or(key.free_since)))
            };
            let is_told = !is_expired || claims.iter().all(|claim| claim.is_shared || knows(claim));
            let limit = if is_told { limit } else { limit + self.unnoticed };
            if !wait.was_reported && now > since + limit {
                wait.was_reported = true;
                found.push(format!("worker {worker} waits for a free lock since {since:?}"));
            }
        }
        found
    }

    /// Locks that are held for longer than `limit` although nobody has them.
    pub fn orphans(&mut self, now: Duration, from: Duration, limit: Duration) -> Vec<String> {
        if self.reported_orphans {
            return Vec::new();
        }
        let mut found = Vec::new();
        for ((server, name), key) in &mut self.keys {
            let is_held = key.held_until.is_some_and(|until| now < until);
            let is_here =
                |claim: &Claim| (claim.server, claim.name) == (*server, *name) && claim.permits == 0;
            let waiting = self.waits.values().filter(|wait| wait.claims.iter().any(is_here)).count();
            let is_guardless = is_held && key.users > 0 && key.users == waiting;
            key.guardless_since = is_guardless.then(|| key.guardless_since.unwrap_or(now));
            let is_unused = is_held && key.users == 0;
            let Some(since) = key.guardless_since.or_else(|| is_unused.then_some(Duration::ZERO)) else {
                continue;
            };
            let since = since.max(key.unused_since).max(from);
            if now > since + limit {
                found.push(format!(
                    "nobody has {} on server {server} since {since:?}, and it is held",
                    NAMES[*name]
                ));
            }
        }
        self.reported_orphans = !found.is_empty();
        found
    }

    /// Whether one of these locks was held at or after this time, or a writer stopped readers then.
    ///
    /// Of a semaphore: whether too few permits were available, or the call `was_behind` another one.
    pub fn was_held(&self, now: Duration, claims: &[Claim], since: Duration, was_behind: bool) -> bool {
        claims.iter().any(|claim| {
            let key = self.keys.get(&(claim.server, claim.name));
            key.is_some_and(|key| {
                if claim.permits > 0 {
                    let free = key.permits.free_since(now, claim.permits);
                    return was_behind || free.is_none_or(|free| free >= since);
                }
                claim.is_shared && key.stopped_until >= since
                    || key.held_until.unwrap_or_else(|| key.last_held.max(key.free_since)) >= since
            })
        })
    }
}

impl Wait {
    fn is_for(&self, claims: &[Claim]) -> bool {
        (self.claims[0].server, self.claims[0].name) == (claims[0].server, claims[0].name)
    }

    /// Whether it stands in the queue of one lock that one owner holds alone.
    fn is_queued(&self) -> bool {
        matches!(self.claims[..], [Claim { is_shared: false, permits: 0, .. }]) && self.how != How::Try
    }

    fn is_late(&self, now: Duration) -> bool {
        match self.how {
            How::For(limit) => self.begun_at + limit.mul_f64(0.998) <= now, // its clock drifts
            How::Lock | How::Try => false,
        }
    }

    fn line(&self) -> Line {
        (self.process, self.claims[0].server, self.claims[0].name)
    }
}

impl Key {
    fn expire(&mut self, now: Duration) {
        if let Some(until) = self.held_until
            && until < now
        {
            self.held_until = None;
            self.read_since = None;
            self.free_since = until;
            self.is_expired = true;
            self.last_held = until;
        }
    }

    /// An intent is on the server, or not. If it stays for longer than ten turns, another one followed.
    fn has_intent(&mut self, now: Duration, is_there: bool, turn: Duration) {
        self.stopped(now, turn);
        let since = self.intent_since.filter(|since| is_there && now <= *since + 10 * turn);
        self.intent_since = is_there.then(|| since.unwrap_or(now));
        self.stopped(now, turn);
    }

    /// An intent stops readers during its first turn, and only while somebody wants to write.
    fn stopped(&mut self, now: Duration, turn: Duration) {
        if let Some(since) = self.intent_since
            && self.writers > 0
        {
            self.told_until = since + turn + MS;
            self.stopped_until = self.stopped_until.max(now.min(self.told_until));
        }
    }

    /// Since when a writer, or a reader, or a call for so many permits can be granted it.
    fn free_since(&self, now: Duration, claim: &Claim) -> Option<Duration> {
        if claim.permits > 0 {
            return self.permits.free_since(now, claim.permits);
        }
        let is_shared = claim.is_shared;
        let since = match self.held_until {
            // Readers are admitted beside readers.
            Some(until) if now <= until + MS => self.read_since.filter(|_| is_shared)?,
            Some(until) => until,
            None => self.free_since,
        };
        if !is_shared {
            return Some(since);
        }
        // Nobody told the readers that a lease ended before the turn.
        let told = if self.is_expired { self.told_until } else { Duration::ZERO };
        Some(since.max(self.stopped_until).max(told))
    }
}

fn number(reply: &[u8]) -> i64 {
    let text = std::str::from_utf8(reply).unwrap_or("").trim_start_matches(':').trim_end();
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}
