//! What is due when, and the task that runs it in batches: one for each duty of a client.
//!
//! A list has the items in the order of the times at which they are due. On each tick, the task takes off the items
//! that are due before the next tick, and groups them: one command serves up to a hundred items of a group. An item
//! that was added after the tick, and is due before the next one, is taken when it is due, without the others.
//! Otherwise a short lease would pull longer ones along each time. Each batch is a future of its own, so a slow answer
//! delays no other batch.

use std::collections::BTreeMap;
use std::future::pending;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::base::clock::{self, Moment};
use crate::base::jitter;
use crate::base::limits::limits;
use crate::base::sync::lock;
use crate::base::task;
use crate::base::timer::sleep;

/// Over how long a rush spreads its batches, so that not all are sent at once.
const RUSH: Duration = Duration::from_millis(100);

/// Between two ticks, the task takes items together that are due within this time.
const TOGETHER: Duration = Duration::from_millis(10);

/// What a scheduler does for its items, again and again.
pub(crate) trait Duty: Send + Sync + 'static {
    type Item: Send + Sync;
    /// What the items of one batch have in common.
    type Group: Clone + Ord + Send;

    /// How much too early an item can be taken, to fill a batch.
    fn ahead(&self) -> Duration;

    /// The task looks at its list. It does so in each tick while there are items.
    fn looks(&self, _now: Moment) {}

    /// Begins with an item that was taken off the list, where it had this key. `None`: there is nothing to do for the
    /// item.
    fn begin(&self, item: &Arc<Self::Item>, key: Key) -> Option<Self::Group>;

    /// Does what is due for the items of one group.
    fn run(&self, group: Self::Group, items: Vec<Arc<Self::Item>>) -> impl Future<Output = ()> + Send;

    /// A panic of the user's code ended [`begin`](Self::begin) or [`run`](Self::run) for this item. The item becomes due again.
    fn panicked(&self, item: &Arc<Self::Item>);
}

pub(crate) struct Scheduler<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// How often the task looks at the list, at least: timers stand still while the host is suspended.
    tick: Duration,
    /// Items for each command.
    batch_size: usize,
    list: Mutex<List<T>>,
    /// Wakes the task when it rests, and when it is to end.
    stir: Notify,
}

struct List<T> {
    due: BTreeMap<Key, Arc<T>>,
    /// The batches that are being run. Weak: if the task ends meanwhile, nobody removes them.
    running: Slab<Vec<Weak<T>>>,
    /// Distinguishes items that are due in the same nanosecond.
    next: NonZeroU64,
    /// When the task looks at the list next. `None`: the list is empty, and the task rests until an item comes.
    looks_at: Option<Moment>,
    /// When the next tick is.
    ticks_at: Moment,
    /// An item came since the task last looked. If the list is empty then, the task waits for one more tick: a program
    /// whose holds are short would otherwise wake the task with each of them.
    has_come: bool,
    /// Everything in the list is to be run now.
    is_rushed: bool,
    is_closed: bool,
}

/// The items of one group, for one command.
type Batch<D> = (<D as Duty>::Group, Vec<Arc<<D as Duty>::Item>>);

/// The position of an item in the list.
pub(crate) type Key = (Moment, NonZeroU64);

/// The state of one item in a scheduler. The item keeps its slot under the same mutex as the data from which its time
/// follows.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    due: Option<Key>,
    is_running: bool,
}

impl Slot {
    /// Begins to run the item, if it is still due with this key. False: the item was moved or removed after the task
    /// took it off the list.
    pub(crate) fn begin(&mut self, key: Key) -> bool {
        self.is_running = self.due == Some(key);
        if self.is_running {
            self.due = None;
        }
        self.is_running
    }

    /// Ends what [`begin`](Self::begin) began.
    pub(crate) const fn end(&mut self) {
        self.is_running = false;
    }

    /// Whether [`Scheduler::set`] has something to do.
    fn is_to_be_set(&self, due: Option<Moment>) -> bool {
        !self.is_running && self.due.map(|(due, _)| due) != due
    }

    /// Whether the item is due at some time, or running.
    pub(crate) const fn is_set(&self) -> bool {
        self.is_running || self.due.is_some()
    }
}

impl<T: Send + Sync + 'static> Scheduler<T> {
    pub(crate) fn new(tick: Duration) -> Self {
        let list = List {
            due: BTreeMap::new(),
            running: Slab::new(),
            next: NonZeroU64::MIN,
            looks_at: None,
            ticks_at: Moment::PAST,
            has_come: false,
            is_rushed: false,
            is_closed: false,
        };
        let (list, stir) = (Mutex::new(list), Notify::new());
        Self(Arc::new(Shared { tick, batch_size: limits().batch, list, stir }))
    }

    /// Starts the task. It ends when the scheduler is closed or dropped.
    pub(crate) fn start<D: Duty<Item = T>>(&self, runtime: &Handle, duty: D) {
        task::spawn_on(runtime, run(Arc::clone(&self.0), duty));
    }

    /// Sets when an item is due. `None`: it is not due. Changes nothing while the item is running: at its end, the item
    /// is set again.
    pub(crate) fn set(&self, slot: &mut Slot, due: Option<Moment>, item: impl FnOnce() -> Arc<T>) {
        if !slot.is_to_be_set(due) {
            return;
        }
        if let Some(key) = slot.due.take() {
            // The binding lives longer than the mutex guard of this statement, so the item is dropped after the list is
            // unlocked.
            let _removed = lock(&self.0.list).due.remove(&key);
        }
        slot.due = due.map(|due| self.insert(due, item()));
    }

    /// Runs everything in the list now, spread over a short time.
    pub(crate) fn rush(&self) {
        lock(&self.0.list).is_rushed = true;
        self.0.stir.notify_one();
    }

    /// Returns all items, also those that are running.
    pub(crate) fn items(&self) -> Vec<Arc<T>> {
        let list = lock(&self.0.list);
        let running = list.running.iter().flat_map(|(_, batch)| batch).filter_map(Weak::upgrade);
        list.due.values().map(Arc::clone).chain(running).collect()
    }

    /// Ends the task. Returns the items that were in the list: drop them while no mutex is locked.
    pub(crate) fn close(&self) -> Vec<Arc<T>> {
        let due = {
            let mut list = lock(&self.0.list);
            list.is_closed = true;
            std::mem::take(&mut list.due)
        };
        self.0.stir.notify_one();
        due.into_values().collect()
    }

    fn insert(&self, due: Moment, item: Arc<T>) -> Key {
        let mut list = lock(&self.0.list);
        list.next = list.next.saturating_add(1);
        let key = (due, list.next);
        if !list.is_closed {
            list.due.insert(key, item);
        }
        list.has_come = true;
        if list.looks_at.is_none() {
            // The list was empty and the task rested, so the next tick comes a whole tick from now. A tick at once
            // would perhaps renew a hold that lasts only a moment.
            list.ticks_at = clock::now().plus(self.0.tick);
        }
        // The task perhaps sleeps until a later time, so an item that is due before wakes it.
        if list.looks_at.is_none_or(|at| due < at) {
            list.looks_at = Some(due);
            self.0.stir.notify_one();
        }
        key
    }
}

impl<T> Drop for Scheduler<T> {
    fn drop(&mut self) {
        lock(&self.0.list).is_closed = true;
        self.0.stir.notify_one();
    }
}

impl<T: Send + Sync> Shared<T> {
    /// Groups items into batches.
    fn batches<D: Duty<Item = T>>(&self, duty: &D, due: Vec<(Key, Arc<T>)>) -> Vec<Batch<D>> {
        let mut batches = Vec::new();
        let mut groups: BTreeMap<D::Group, Vec<Arc<T>>> = BTreeMap::new();
        for (key, item) in due {
            let begun = catch_unwind(AssertUnwindSafe(|| duty.begin(&item, key)));
            let Some(group) = begun.unwrap_or_else(|_| {
                recover(duty, &item);
                None
            }) else {
                continue;
            };
            let batch = groups.entry(group.clone()).or_default();
            batch.push(item);
            if batch.len() == self.batch_size {
                batches.push((group, std::mem::take(batch)));
            }
        }
        batches.extend(groups.into_iter().filter(|(_, batch)| !batch.is_empty()));
        batches
    }

    /// Takes what is due off the list. On a tick, items that are due a little later fill the last batch.
    fn take_due<D: Duty<Item = T>>(&self, duty: &D, now: Moment) -> Vec<(Key, Arc<T>)> {
        let mut list = lock(&self.list);
        let until = |list: &List<T>, time: Moment| list.due.range(..=(time, NonZeroU64::MAX)).count();
        let take = if now < list.ticks_at {
            until(&list, now.plus(TOGETHER))
        } else {
            list.ticks_at = now.plus(self.tick);
            let due = until(&list, list.ticks_at);
            due.next_multiple_of(self.batch_size).min(until(&list, list.ticks_at.plus(duty.ahead())))
        };
        (0..take).filter_map(|_| list.due.pop_first()).collect()
    }

    /// Takes everything off the list, if it is to be run now.
    fn take_rushed(&self) -> Vec<(Key, Arc<T>)> {
        let mut list = lock(&self.list);
        let is_rushed = std::mem::take(&mut list.is_rushed);
        if is_rushed { std::mem::take(&mut list.due).into_iter().collect() } else { Vec::new() }
    }

    /// Waits until the task has to look at the list. If it stays empty, waits for ever: `stir` wakes the task.
    async fn next_look(&self) {
        let wait = {
            let (mut list, now) = (lock(&self.list), clock::now());
            let first = list.due.first_key_value().map(|((due, _), _)| *due);
            let is_busy = std::mem::take(&mut list.has_come) || first.is_some();
            list.looks_at = is_busy.then(|| first.map_or(list.ticks_at, |due| due.min(list.ticks_at)));
            list.looks_at.map(|at| at.since(now))
        };
        match wait {
            Some(wait) => sleep(wait).await,
            None => pending().await,
        }
    }
}

/// Runs a batch after a pause.
fn serve<'a, D: Duty>(
    shared: &'a Shared<D::Item>,
    duty: &'a D,
    (group, batch): Batch<D>,
    pause: Duration,
) -> impl Future<Output = ()> + 'a {
    let key = lock(&shared.list).running.insert(batch.iter().map(Arc::downgrade).collect());
    async move {
        if !pause.is_zero() {
            sleep(pause).await;
        }
        // A panic here is one of the user's code, such as a `tracing` layer. It must not end what comes after.
        let has_panicked = AssertUnwindSafe(duty.run(group, batch.clone())).catch_unwind().await.is_err();
        lock(&shared.list).running.remove(key);
        if has_panicked {
            batch.iter().for_each(|item| recover(duty, item));
        }
    }
}

/// Goes on with an item after a panic. What tells of that is code of the user, too.
fn recover<D: Duty>(duty: &D, item: &Arc<D::Item>) {
    let _ = catch_unwind(AssertUnwindSafe(|| duty.panicked(item)));
}

async fn run<D: Duty>(shared: Arc<Shared<D::Item>>, duty: D) {
    let (shared, duty) = (&*shared, &duty);
    let mut running = FuturesUnordered::new();
    loop {
        let mut look = pin!(shared.next_look());
        loop {
            tokio::select! {
                biased;
                () = &mut look => {
                    let now = clock::now();
                    let _ = catch_unwind(AssertUnwindSafe(|| duty.looks(now)));
                    let due = shared.batches(duty, shared.take_due(duty, now));
                    running.extend(due.into_iter().map(|batch| serve(shared, duty, batch, Duration::ZERO)));
                    break;
                }
                () = shared.stir.notified() => break,
                Some(()) = running.next() => {}
            }
        }
        if lock(&shared.list).is_closed {
            return;
        }
        let rushed = shared.batches(duty, shared.take_rushed());
        running.extend(rushed.into_iter().map(|batch| serve(shared, duty, batch, jitter::within(RUSH))));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn an_item_that_was_moved_while_it_was_taken_is_not_begun() {
        let (key, later) = ((clock::now(), NonZeroU64::MIN), (clock::now(), NonZeroU64::MAX));
        let mut slot = Slot { due: Some(key), is_running: false };
        assert!(slot.begin(key) && slot.is_running);
        slot.end();
        assert!(!slot.begin(key) && !slot.is_running, "it is no longer due");
        slot.due = Some(later);
        assert!(!slot.begin(key) && !slot.is_running);
        assert_eq!(slot.due, Some(later));
    }

    /// A lock that is held briefly costs the task of the renewals nothing: what is due later does not wake it.
    #[tokio::test]
    async fn only_an_item_that_is_due_earlier_wakes_the_task() {
        let (scheduler, start) = (Scheduler::new(Duration::from_secs(1)), clock::now());
        let mut task = tokio_test::task::spawn(run(Arc::clone(&scheduler.0), Looks::default()));
        let item = || Arc::new(Notify::new());
        assert!(task.poll().is_pending() && !task.is_woken());
        let [mut first, mut brief, mut early] = [Slot::default(), Slot::default(), Slot::default()];
        scheduler.set(&mut first, Some(start.plus(Duration::from_secs(10))), item);
        assert!(task.is_woken(), "it rested");
        assert!(task.poll().is_pending() && !task.is_woken());
        for _ in 0..100 {
            scheduler.set(&mut brief, Some(start.plus(Duration::from_secs(10))), item);
            scheduler.set(&mut brief, None, item);
            assert!(!task.is_woken());
        }
        scheduler.set(&mut early, Some(start.plus(Duration::from_millis(500))), item);
        assert!(task.is_woken());
    }

    /// Waits for an answer that comes when a test wants it.
    struct Waits(Arc<Notify>);

    impl Duty for Waits {
        type Item = Notify;
        type Group = ();

        fn ahead(&self) -> Duration {
            Duration::ZERO
        }

        fn begin(&self, _: &Arc<Notify>, _: Key) -> Option<()> {
            Some(())
        }

        async fn run(&self, (): (), items: Vec<Arc<Notify>>) {
            items.iter().for_each(|item| item.notify_one());
            self.0.notified().await;
        }

        fn panicked(&self, _: &Arc<Notify>) {}
    }

    /// The diagnosis lists what is held.
    #[tokio::test]
    async fn an_item_is_listed_while_it_runs() {
        let (scheduler, item, answer) =
            (Scheduler::new(Duration::from_secs(3_600)), Arc::<Notify>::default(), Arc::default());
        scheduler.start(&Handle::current(), Waits(Arc::clone(&answer)));
        let mut slot = Slot::default();
        scheduler.set(&mut slot, Some(clock::now()), || Arc::clone(&item));
        item.notified().await;
        assert_eq!(scheduler.items().len(), 1);
        answer.notify_one();
        while !scheduler.items().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// Counts how often the task looks at the list on a tick.
    #[derive(Default)]
    struct Looks(Arc<AtomicUsize>);

    impl Duty for Looks {
        type Item = Notify;
        type Group = ();

        fn ahead(&self) -> Duration {
            self.0.fetch_add(1, Ordering::Relaxed);
            Duration::ZERO
        }

        fn begin(&self, item: &Arc<Notify>, _: Key) -> Option<()> {
            item.notify_one();
            None
        }

        async fn run(&self, (): (), _: Vec<Arc<Notify>>) {}

        fn panicked(&self, _: &Arc<Notify>) {}
    }

    #[cfg(feature = "paused-clock")]
    #[tokio::test(start_paused = true)]
    async fn the_task_looks_when_an_item_is_due_and_otherwise_once_in_a_tick() {
        clock::follow_tokio();
        let (scheduler, start) = (Scheduler::new(Duration::from_secs(1)), clock::now());
        let count = Arc::new(AtomicUsize::new(0));
        scheduler.start(&Handle::current(), Looks(Arc::clone(&count)));
        let [late, early] =
            [100_000, 20].map(|ms| (start.plus(Duration::from_millis(ms)), Arc::new(Notify::new())));
        let (mut kept, mut short) = (Slot::default(), Slot::default());
        scheduler.set(&mut kept, Some(late.0), || late.1);
        tokio::task::yield_now().await;
        scheduler.set(&mut short, Some(early.0), || Arc::clone(&early.1));
        early.1.notified().await;
        let waited = clock::now().since(start);
        assert!(waited < Duration::from_millis(40), "{waited:?}, although the task slept for a tick");
        let before = count.load(Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        let looks = count.load(Ordering::Relaxed) - before;
        assert!((60..=200).contains(&looks), "{looks} in 60 ticks");
    }
}
