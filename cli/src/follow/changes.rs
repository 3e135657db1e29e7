//! What differs between two looks at the locks.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper::LockInfo;
use serde::Serialize;

use crate::text::{holds, waiters, who};

/// Locks by their names.
pub(super) type Rows = BTreeMap<String, LockInfo>;

#[derive(Debug, Serialize)]
pub(super) struct Change<'a> {
    pub(super) name: &'a str,
    /// `present` at the first look, then `held`, `free`, `holders`, `holds`, `permits`, `expiry` or `waiters`.
    #[serde(rename = "change")]
    pub(super) what: &'static str,
    /// What people read. Nothing in it can move the cursor.
    #[serde(skip)]
    pub(super) text: String,
    /// The lock now. `None`: it is free.
    pub(super) lock: Option<&'a LockInfo>,
}

/// Returns what has changed, sorted by name.
pub(super) fn changes<'a>(before: &'a Rows, now: &'a Rows) -> Vec<Change<'a>> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let of_one = |name: &'a String| {
        let texts = match (before.get(name), now.get(name)) {
            (None, Some(now)) => begun(now),
            (Some(before), None) => vec![("free", format!("is free, was held by {}", owners(before)))],
            (Some(before), Some(now)) => between(before, now),
            (None, None) => Vec::new(),
        };
        texts.into_iter().map(move |(what, text)| Change { name, what, text, lock: now.get(name) })
    };
    names.into_iter().flat_map(of_one).collect()
}

fn begun(now: &LockInfo) -> Vec<(&'static str, String)> {
    let mut text = format!("is held by {} ({})", owners(now), now.kind);
    if waits(now) {
        text += &format!(", waiters: {}", waiters(now));
    }
    if now.remaining_lease.duration().is_none() {
        text += ", never ends: its key has no expiry";
    }
    vec![("held", text)]
}

fn between(before: &LockInfo, now: &LockInfo) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if ids(before) != ids(now) {
        let text = format!("is held by {} ({}), was held by {}", owners(now), now.kind, owners(before));
        all.push(("holders", text));
    } else if holds(before) != holds(now) {
        all.push(("holds", format!("holds {} → {}", holds(before), holds(now))));
    }
    let totals = |row: &LockInfo| row.permits;
    if let (Some(before), Some(now)) = (totals(before), totals(now))
        && before != now
    {
        all.push(("permits", format!("permits {before} → {now}")));
    }
    match (before.remaining_lease.duration(), now.remaining_lease.duration()) {
        (Some(_), None) => all.push(("expiry", "never ends: its key has no expiry".to_owned())),
        (None, Some(_)) => all.push(("expiry", "has an expiry again".to_owned())),
        _ => {}
    }
    if waiters(before) != waiters(now) {
        all.push(("waiters", format!("waiters {} → {}", waiters(before), waiters(now))));
    }
    all
}

fn waits(row: &LockInfo) -> bool {
    row.queued.unwrap_or_default() + row.listeners.unwrap_or_default() > 0
}

fn ids(row: &LockInfo) -> Vec<&str> {
    row.holders.iter().map(|holder| &*holder.owner).collect()
}

fn owners(row: &LockInfo) -> String {
    row.holders.iter().map(who).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockkeeper::RemainingLease;

    use super::*;
    use crate::text::tests::lock;

    fn row(holders: &[(&str, u64)], clients: u64) -> LockInfo {
        let mut lock = lock("lock", holders, 1);
        lock.listeners = Some(clients);
        lock
    }

    fn endless(mut lock: LockInfo) -> LockInfo {
        lock.remaining_lease = RemainingLease::Endless;
        lock
    }

    fn told(before: Option<LockInfo>, now: Option<LockInfo>) -> Vec<String> {
        let rows = |row: Option<LockInfo>| row.into_iter().map(|row| (row.name.clone(), row)).collect();
        let (before, now): (Rows, Rows) = (rows(before), rows(now));
        changes(&before, &now).iter().map(|change| format!("{}: {}", change.what, change.text)).collect()
    }

    #[test]
    fn each_change_is_told() {
        let held = || row(&[("a:1", 1)], 0);
        assert_eq!(told(None, Some(held())), ["held: is held by a:1 (rlock)"]);
        assert_eq!(told(Some(held()), None), ["free: is free, was held by a:1"]);
        assert_eq!(told(Some(held()), Some(row(&[("a:1", 2)], 0))), ["holds: holds 1 → 2"]);
        assert_eq!(told(Some(held()), Some(row(&[("a:1", 1)], 2))), ["waiters: waiters 0 → 2 clients"]);
        assert_eq!(
            told(Some(row(&[("a:1", 1)], 1)), Some(row(&[("b:1", 1)], 0))),
            ["holders: is held by b:1 (rlock), was held by a:1", "waiters: waiters 1 client → 0"]
        );
        let mut known = held();
        known.holders[0].identity = Some("report@worker-3:4711".to_owned());
        assert_eq!(told(None, Some(known)), ["held: is held by report@worker-3:4711 (a:1) (rlock)"]);
        assert_eq!(told(Some(held()), Some(endless(held()))), ["expiry: never ends: its key has no expiry"]);
        assert_eq!(
            told(None, Some(endless(row(&[("a:1", 1)], 1)))),
            ["held: is held by a:1 (rlock), waiters: 1 client, never ends: its key has no expiry"]
        );
    }

    /// Leases run down and are renewed all the time.
    #[test]
    fn the_time_that_is_left_is_no_change() {
        let mut later = row(&[("a:1", 1)], 0);
        later.remaining_lease = RemainingLease::For(Duration::from_millis(7));
        assert_eq!(told(Some(row(&[("a:1", 1)], 0)), Some(later)), [""; 0]);
    }
}
