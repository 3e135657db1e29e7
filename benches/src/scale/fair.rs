//! Operations on a fair lock with N waiters.

use redis::Cmd;

use super::operation::{CALLER, Operation, Prepared, command, other};

const LEASE_MS: &str = "699999";
const ALLOWANCE_MS: &str = "6000";
const JAVA_WAIT_MS: &str = "300000";

/// Milliseconds of a time in the far future.
const FAR: &str = "9999999999999";

const HOLDER: &str = "holder:1";
const JAVA: &str = "java:1";

/// The distance between the tickets of two waiters.
const STEP: usize = 10;

/// The keys of a fair lock, and whether a Java client is the first in its queue.
struct Queue {
    lock: String,
    list: String,
    scores: String,
    places: String,
    tickets: String,
    channel: String,
    has_java: bool,
}

pub fn operations(has_java: bool) -> Vec<Operation> {
    let operation = |name, script, prepare: fn(&Queue, usize) -> Prepared| Operation {
        name,
        script,
        prepare: Box::new(move |lock, waiters| prepare(&Queue::of(lock, has_java), waiters)),
    };
    let mut operations = vec![
        operation("queue", "fair/acquire.lua", queue),
        operation("attempt again", "fair/acquire.lua", attempt_again),
        operation("heartbeat of one waiter", "fair/heartbeat.lua", heartbeat),
        operation("leave, from the end", "fair/release.lua", leave_end),
        operation("leave, from the middle", "fair/release.lua", leave_middle),
        operation("release", "fair/release.lua", release),
    ];
    if !has_java {
        operations.push(operation("acquire, as the first waiter", "fair/acquire.lua", acquire));
    }
    operations
}

fn queue(queue: &Queue, waiters: usize) -> Prepared {
    let restore = vec![
        command(["LREM", &queue.list, "-1", CALLER]),
        command(["ZREM", &queue.scores, CALLER]),
        command(["HDEL", &queue.places, CALLER]),
        command(["ZREM", &queue.tickets, CALLER]),
    ];
    queue.prepared(queue.held_with(waiters, None), restore, &acquire_args(), "int(-4)")
}

fn attempt_again(queue: &Queue, waiters: usize) -> Prepared {
    let is_first = waiters == 1 && !queue.has_java;
    let answer = if is_first { "int(6" } else { "int(-1)" };
    queue.prepared(queue.held_with(waiters, Some(waiters / 2)), Vec::new(), &acquire_args(), answer)
}

fn heartbeat(queue: &Queue, waiters: usize) -> Prepared {
    let args = [ALLOWANCE_MS, JAVA_WAIT_MS, CALLER];
    queue.prepared(queue.held_with(waiters, Some(waiters / 2)), Vec::new(), &args, "array([int(1)")
}

fn leave_end(queue: &Queue, waiters: usize) -> Prepared {
    let others = waiters - 1;
    let mut restore = queue.entry(CALLER, others * STEP + 1);
    restore.push(command(["RPUSH", &queue.list, CALLER]));
    queue.prepared(queue.held_with(others, None), restore, &release_args(), "int(1)")
}

fn leave_middle(queue: &Queue, waiters: usize) -> Prepared {
    let others = waiters - 1;
    if others == 0 {
        return leave_end(queue, waiters);
    }
    let before = others / 2;
    let mut restore = queue.entry(CALLER, before * STEP + 1);
    restore.push(command(["LINSERT", &queue.list, "BEFORE", &other(before), CALLER]));
    queue.prepared(queue.held_with(others, None), restore, &release_args(), "int(1)")
}

fn release(queue: &Queue, waiters: usize) -> Prepared {
    queue.prepared(queue.with(waiters, None), queue.hold(CALLER), &release_args(), "int(1)")
}

fn acquire(queue: &Queue, waiters: usize) -> Prepared {
    let mut restore = queue.entry(CALLER, 0);
    restore.push(command(["LPUSH", &queue.list, CALLER]));
    restore.push(command(["DEL", &queue.lock]));
    queue.prepared(queue.with(waiters - 1, None), restore, &acquire_args(), "nil")
}

fn acquire_args() -> [&'static str; 4] {
    [CALLER, LEASE_MS, ALLOWANCE_MS, JAVA_WAIT_MS]
}

fn release_args() -> [&'static str; 3] {
    [CALLER, "0", JAVA_WAIT_MS]
}

impl Queue {
    fn of(lock: &str, has_java: bool) -> Self {
        Self {
            lock: lock.to_owned(),
            list: format!("redisson_lock_queue:{{{lock}}}"),
            scores: format!("redisson_lock_timeout:{{{lock}}}"),
            places: format!("lockkeeper_fair:{{{lock}}}"),
            tickets: format!("lockkeeper_fair_tickets:{{{lock}}}"),
            channel: format!("redisson_lock__channel:{{{lock}}}"),
            has_java,
        }
    }

    fn prepared(&self, state: Vec<Cmd>, restore: Vec<Cmd>, args: &[&str], answer: &'static str) -> Prepared {
        let keys = [&self.lock, &self.list, &self.scores, &self.places, &self.tickets, &self.channel];
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Prepared { state, restore, keys: keys.map(Clone::clone).to_vec(), args, answer }
    }

    fn hold(&self, owner: &str) -> Vec<Cmd> {
        vec![command(["HSET", &self.lock, owner, "1"]), command(["PEXPIRE", &self.lock, LEASE_MS])]
    }

    /// The lock, held by another owner, with waiters.
    fn held_with(&self, waiters: usize, caller: Option<usize>) -> Vec<Cmd> {
        [self.hold(HOLDER), self.with(waiters, caller)].concat()
    }

    /// So many waiters in the queue. The caller is one of them, if its place in the queue is given.
    fn with(&self, waiters: usize, caller: Option<usize>) -> Vec<Cmd> {
        let mut commands = Vec::new();
        if self.has_java {
            commands.push(command(["RPUSH", &self.list, JAVA]));
            commands.push(command(["ZADD", &self.scores, FAR, JAVA]));
        }
        for place in 0..waiters {
            let waiter = if caller == Some(place) { CALLER.to_owned() } else { other(place) };
            commands.push(command(["RPUSH", &self.list, &waiter]));
            commands.extend(self.entry(&waiter, (place + 1) * STEP));
        }
        commands
    }

    /// What the server keeps of a waiter beside its place in the list.
    fn entry(&self, waiter: &str, ticket: usize) -> Vec<Cmd> {
        let record = format!("{FAR} {}", u8::from(self.has_java));
        vec![
            command(["ZADD", &self.scores, FAR, waiter]),
            command(["HSET", &self.places, waiter, &record]),
            command(["ZADD", &self.tickets, &ticket.to_string(), waiter]),
        ]
    }
}
