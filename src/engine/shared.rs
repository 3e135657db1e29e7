//! What all handles and guards of one client share.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use uuid::Uuid;

use super::names::ReportedTotals;
use super::retry::Tries;
use crate::base::clock;
use crate::base::config::LockConfig;
use crate::base::error::{Error, Result};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::sync::Watched;
use crate::base::timer::timeout;
use crate::base::{client_id, jitter};
use crate::engine::background::Background;
use crate::engine::grant::Grant;
use crate::engine::grant::sharing::{Offer, ReadGrants};
use crate::engine::hold::lease::{Periods, Rules};
use crate::engine::line::lines::Lines;
use crate::engine::listeners::{Listeners, Messages};
use crate::engine::recent_releases::RecentReleases;
use crate::engine::scheduler::Scheduler;
use crate::engine::tracked::Tracked;
use crate::engine::under_way::UnderWay;
use crate::engine::waits::Waits;
use crate::protocol::LockType;
use crate::store::{Change, ClientName, OpenError, Source, Store};
use crate::telemetry::OfClient;
use crate::telemetry::report::Limit;

/// What all handles and guards of one client share.
pub(crate) struct Engine {
    pub(crate) id: Uuid,
    /// The number of the next grant, and of its owner.
    next_number: AtomicU64,
    pub(crate) config: LockConfig,
    pub(crate) store: Arc<Store>,
    pub(crate) lines: Arc<Lines<Offer>>,
    /// Futures that listen for what a lock's holder announces, and do not wait for the lock.
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) reported_totals: ReportedTotals,
    pub(crate) wanted: Mutex<Questions>,
    pub(crate) periods: Periods,
    /// The rules for locks that one owner holds, and for locks that several owners can hold together.
    rules: [Rules; 2],
    pub(crate) renewals: Scheduler<Grant>,
    pub(crate) heartbeats: Scheduler<Grant>,
    pub(crate) background: Background,
    /// Limits the reports of releases that failed.
    pub(crate) failed_releases: Limit,
    pub(crate) under_way: UnderWay<Grant>,
    /// The grants that futures of callers release.
    pub(crate) unlocks: UnderWay<Grant>,
    /// `None`: the diagnosis is switched off.
    pub(crate) waits: Option<Arc<Waits>>,
    pub(crate) releases: RecentReleases,
    /// The holds of which the server tells that somebody changed their key.
    pub(crate) tracked: Arc<Tracked<Grant>>,
    pub(crate) read_grants: ReadGrants,
    /// How often this client has begun to release holds by force.
    forced: AtomicU64,
    pub(crate) metrics: OfClient,
    /// 1 from the shutdown on.
    closing: Watched,
}

/// The questions whether somebody waits, by the lock and its type.
type Questions = HashMap<(Arc<str>, LockType), Weak<Watched>>;

impl Engine {
    /// Connects. Without its tasks, see [`start`](crate::engine::start).
    pub(crate) async fn connect(
        source: Source,
        config: LockConfig,
        waits: Option<Arc<Waits>>,
    ) -> Result<Arc<Self>> {
        let (lines, listeners) = (Arc::new(Lines::new()), Arc::<Listeners>::default());
        let messages = Arc::new(Messages { lines: Arc::clone(&lines), listeners: Arc::clone(&listeners) });
        let id = client_id::new();
        let name = Arc::new(ClientName::new(id, &config));
        let tracked = Arc::<Tracked<Grant>>::default();
        let store = Arc::new(open(source, &config, &name, (&messages, &tracked)).await?);
        let periods = Periods::new(&config);
        let rules = [false, true].map(|is_shared| Rules {
            lease: config.watchdog_lease(),
            periods,
            is_shared,
            is_checked: is_shared || store.can_switch(),
            sharing: config.sharing(),
            within: jitter::within,
        });
        let id = if name.is_refused() { client_id::without_name(id) } else { id };
        Ok(Arc::new(Self {
            id,
            next_number: AtomicU64::new(1),
            lines,
            listeners,
            reported_totals: ReportedTotals::default(),
            wanted: Mutex::default(),
            periods,
            rules,
            renewals: Scheduler::new(periods.renewal_tick()),
            heartbeats: Scheduler::new(periods.heartbeat_tick()),
            background: Background::start(),
            failed_releases: Limit::default(),
            under_way: UnderWay::default(),
            unlocks: UnderWay::default(),
            waits,
            releases: RecentReleases::new(&store),
            tracked,
            read_grants: ReadGrants::default(),
            forced: AtomicU64::new(0),
            metrics: OfClient::new(),
            closing: Watched::default(),
            store,
            config,
        }))
    }

    /// Returns the rules for locks that several owners can hold together, or for the others.
    pub(crate) const fn rules(&self, is_shared: bool) -> &Rules {
        &self.rules[is_shared as usize]
    }

    pub(crate) fn id(&self) -> String {
        self.id.to_string()
    }

    /// Returns a number that is greater than all numbers returned before, and sets `count` numbers aside from it on:
    /// they are never returned again.
    pub(crate) fn next_number(&self, count: u32) -> u64 {
        self.next_number.fetch_add(count.into(), Ordering::Relaxed)
    }

    /// Records that this client is about to release a hold by force, perhaps its own. From here on, even while the
    /// command is under way, a hold whose attempt was sent before is not shared: no reader joins it, and it is not
    /// handed over.
    pub(crate) fn forces(&self) {
        self.forced.fetch_add(1, Ordering::AcqRel);
    }

    /// How often this client has begun to release holds by force.
    pub(crate) fn forced(&self) -> u64 {
        self.forced.load(Ordering::Acquire)
    }

    /// Returns the pattern of the keys of the names that a pattern describes.
    pub(crate) fn key_pattern(&self, pattern: &str) -> Arc<str> {
        let mut keys = String::new();
        for character in self.config.name_prefix().chars() {
            if "\\*?[]^-".contains(character) {
                keys.push('\\');
            }
            keys.push(character);
        }
        (keys + pattern).into()
    }

    pub(crate) fn name_prefix(&self) -> &str {
        self.config.name_prefix()
    }

    /// Returns the key of a lock. Redisson calls it the raw name.
    pub(crate) fn key(&self, name: &str) -> Arc<str> {
        match self.config.name_prefix() {
            "" => name.into(),
            prefix => [prefix, name].concat().into(),
        }
    }

    /// The error for something that the server of a key does not support.
    pub(crate) fn unsupported(&self, key: &str, problem: String) -> Error {
        let server = self.store.address(self.store.route(key)).to_string();
        Error::UnsupportedServer { version: self.store.version().to_owned(), server, problem }
    }

    /// Fails if the client is shut down, or its runtime is gone: nothing would finish new work.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closing() { Err(Error::Closed) } else { self.check_runtime() }
    }

    /// Fails if the runtime on which the client was made is gone, and with it all tasks of the client.
    pub(crate) fn check_runtime(&self) -> Result<()> {
        if self.background.runtime.is_closed() { Err(Error::RuntimeGone) } else { Ok(()) }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get() > 0
    }

    /// Waits for the shutdown.
    pub(crate) async fn closing(&self) {
        self.closing.until(|closing| closing > 0).await;
    }

    /// Waits until calls cannot continue: the client is shut down, or its runtime has ended.
    pub(crate) async fn ended(&self) {
        tokio::select! {
            biased;
            () = self.closing() => {}
            () = self.background.runtime.closed() => {}
        }
    }

    /// Shuts the client down: ends the acquires, waits for the releases, and ends the tasks. `last`: work on which no
    /// lock depends, done after the releases.
    pub(crate) async fn shutdown(&self, last: impl Future<Output = ()> + Send) -> Result<()> {
        self.closing.modify(|_| 1);
        // Wait at least twice the time limit of a command: even if `retry_timeout` is zero, a server must have time to
        // answer.
        let limit = self.config.retry_timeout().max(2 * self.config.command_timeout());
        // Wait until every acquire under way has ended with `Closed`: each hands its undo to the background before it
        // counts as ended. An acquire that nobody polls does not end, so the loop below undoes it.
        let _ = timeout(limit / 2, self.under_way.all_ended()).await;
        let now = clock::now();
        for pending in self.under_way.all() {
            pending.give_up(now);
        }
        self.lines.close_all();
        // Perhaps nobody polls a future that releases. It would not notice that its command was not executed.
        let _ = timeout(self.config.command_timeout(), self.unlocks.all_ended()).await;
        self.unlocks.all().iter().for_each(Grant::release_beside);
        self.listeners.close(&self.store);
        // An acquire without an answer is released once more when it can run no more, see `Grant::late_until`.
        let late = self.config.command_timeout() + Duration::from_secs(2);
        let released = self.all_released(limit.max(late)).await;
        self.renewals.close();
        self.heartbeats.close();
        // No lock depends on this work, so its faults do not make the shutdown fail.
        let rest = self.config.command_timeout();
        let _ = timeout(rest, last).await;
        // Code of the user, such as a `tracing` layer, perhaps keeps the thread.
        let _ = timeout(rest, self.store.thread().end()).await;
        released
    }

    /// Waits until everything is released. Fails if no release was answered for `limit`.
    async fn all_released(&self, limit: Duration) -> Result<()> {
        let mut drained = pin!(self.background.drain());
        loop {
            let seen = self.background.answers.get();
            tokio::select! {
                biased;
                result = &mut drained => return result,
                more = timeout(limit, self.background.answers.until(|count| count > seen)) => if more.is_err() { break },
            }
        }
        let left = self.background.left();
        // No lock depends on the other jobs, so they do not make the shutdown fail.
        let Some(first) = left.first() else { return Ok(()) };
        let text = format!("not everything was released in time: {} locks are left", left.len());
        Err(Error::of_lock(first.lock_id(), Fault::new(FaultKind::TimedOut, Sent::Unknown, text)))
    }
}

/// Connects, and keeps trying for as long as the configuration says.
async fn open(
    source: Source,
    config: &LockConfig,
    name: &Arc<ClientName>,
    (messages, tracked): (&Arc<Messages<Offer>>, &Arc<Tracked<Grant>>),
) -> Result<Store> {
    let (mut tries, reports) = (Tries::new(config.start_timeout()), Limit::default());
    loop {
        let tracked = Arc::clone(tracked);
        let told = Box::new(move |change: Change<'_>| key_changed(&tracked, change));
        match Store::open(source.clone(), config, name, Arc::<Messages<Offer>>::clone(messages), told).await {
            Err(OpenError::Fault(fault)) => {
                let (server, text) = (fault.server().map(str::to_owned), fault.to_string());
                tries.again(fault).await?;
                if let Some(unreported) = reports.ask() {
                    tracing::info!(server, fault = text, unreported, "cannot connect yet");
                }
            }
            Err(OpenError::Lasting(error)) => return Err(error),
            Ok(store) => return Ok(store),
        }
    }
}

/// Between the looks at two hundreds of holds.
const SPREAD: Duration = Duration::from_millis(5);

/// Looks at the holds of which the server says that somebody changed their key.
fn key_changed(tracked: &Tracked<Grant>, change: Change<'_>) {
    let now = clock::now();
    match change {
        Change::Of(key) => tracked.of(key).iter().for_each(|grant| grant.key_changed(now)),
        // One command looks at a hundred, and the others follow, so that the server is not busy with them all at once.
        Change::Unknown => {
            for (place, grant) in (0..).zip(tracked.all()) {
                grant.is_unsure_of_key(now.plus(SPREAD * (place / 100)), now);
            }
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.id)
    }
}
