//! What a seed stands for: the locks, the settings, the workers and the faults of one world.

use std::time::Duration;

use fastrand::Rng;
use lockkeeper::{Limits, LockConfig, LockConfigBuilder};
use serde::Deserialize;

use crate::classes::{Classes, FIRST};
use crate::extras::Extras;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);

/// A semaphore has so many permits at most.
pub const MOST_PERMITS: u32 = 4;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$of])* $variant),* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            #[allow(dead_code, reason = "not all of them are options")]
            pub fn parse(text: &str) -> Self {
                let found = Self::ALL.iter().find(|one| one.text() == text);
                *found.unwrap_or_else(|| panic!("{} has no `{text}`", stringify!($name)))
            }
        }
    };
}

named! {
    /// The locks of a world.
    Kind {
        RLock = "rlock", Fair = "fair", ReadWrite = "rw", Fenced = "fenced", Multi = "multi", Red = "red", Owner = "owner",
        Semaphore = "semaphore",
    }
}

named! {
    /// How hard a world is.
    Mode {
        /// Faults of several kinds, also at the same time.
        Chaos = "chaos",
        /// Single faults, which must cost no hold that is renewed.
        Gentle = "gentle",
        /// No faults, but futures that nobody polls.
        Hung = "hung",
    }
}

named! {
    FaultKind {
        Freeze = "freeze", Hold = "hold", HoldRequests = "hold-requests", HoldReplies = "hold-replies",
        HoldExisting = "hold-existing", Cut = "cut", CutLate = "cut-late", Refuse = "refuse", Restart = "restart",
        RestartLost = "restart-lost", RestartOld = "restart-old", Full = "full", Slow = "slow", StopProcess = "stop",
        KillProcess = "kill", MoveSlot = "move-slot", FailOver = "fail-over", TakeOver = "take-over",
        TakeOverOld = "take-over-old", Suspend = "suspend", HoldMessages = "hold-messages",
        CutMessages = "cut-messages", RefuseMessages = "refuse-messages", DenyMessages = "deny-messages",
        MaxClients = "max-clients", NoPlace = "no-place", StepClock = "step-clock",
    }
}

impl FaultKind {
    /// Those of a single server.
    const SINGLE: &[Self] = Self::ALL.split_at(15).0;

    /// Those that change who the master of a lock is.
    pub const CHANGES: &[Self] = Self::ALL.split_at(19).0.split_at(15).1;

    /// Those of connections that subscribe to channels.
    pub const MESSAGES: &[Self] =
        &[Self::HoldMessages, Self::CutMessages, Self::RefuseMessages, Self::DenyMessages];

    /// Whether no call fails because of it. Without messages, waiters poll. And if the server's clock is set, an acquire that comes too
    /// late is sent again.
    pub fn explains_no_error(self) -> bool {
        Self::MESSAGES.contains(&self) || matches!(self, Self::NoPlace | Self::StepClock)
    }

    /// Whether it only keeps messages away.
    pub fn is_of_messages(self) -> bool {
        Self::MESSAGES.contains(&self) || self == Self::NoPlace
    }

    /// Whether a server can lose what it was told.
    pub const fn loses(self) -> bool {
        matches!(self, Self::RestartLost | Self::RestartOld | Self::TakeOverOld)
    }
}

/// The faults that cost no hold, if they are shorter than a third of the lease.
const GENTLE: &[FaultKind] = &[
    FaultKind::Freeze,
    FaultKind::Hold,
    FaultKind::HoldExisting,
    FaultKind::Cut,
    FaultKind::CutLate,
    FaultKind::Refuse,
    FaultKind::Restart,
];

/// Those that cost no hold.
const GENTLE_CHANGES: &[FaultKind] = &[FaultKind::MoveSlot, FaultKind::FailOver, FaultKind::TakeOver];

/// What the server of a world is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Deployment {
    /// One or several, each for itself.
    #[default]
    Servers,
    Cluster,
    /// A master and its replica, which sentinels watch.
    Sentinels,
}

impl Deployment {
    /// Whether another server can become the master.
    pub fn can_switch(self) -> bool {
        self != Self::Servers
    }

    /// The option of `scripts/simulate`.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Servers => "",
            Self::Cluster => " --cluster",
            Self::Sentinels => " --sentinels",
        }
    }
}

/// Limits what seeds stand for.
#[derive(Clone, Debug)]
pub struct Options {
    pub kinds: Vec<Kind>,
    pub mode: Option<Mode>,
    pub deployment: Deployment,
    /// The clients have small limits, and many calls come together. Not in the worlds with which mutants and tests begin.
    pub bursts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { kinds: Kind::ALL.to_vec(), mode: None, deployment: Deployment::default(), bursts: false }
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub kind: Kind,
    pub mode: Mode,
    /// How many servers there are. A cluster, and a master with sentinels, is one.
    pub servers: usize,
    pub deployment: Deployment,
    /// A proxy in front of a cluster refuses commands about several slots.
    pub separates_slots: bool,
    /// An acquire waits for a replica.
    pub waits_for_replica: bool,
    pub processes: usize,
    pub workers: usize,
    pub names: usize,
    pub lease: Duration,
    pub margin: Duration,
    pub safety_poll: Duration,
    pub fair_allowance: Duration,
    pub writer_turn: Duration,
    pub sharing: Duration,
    /// Read holds linger.
    pub linger: Option<Duration>,
    pub command_timeout: Duration,
    pub retry_timeout: Duration,
    pub connections: usize,
    pub most_delay: Duration,
    pub drifts: Vec<i32>,
    pub faults: Vec<FaultKind>,
    pub fault_pause: Duration,
    pub longest_fault: Duration,
    pub parks: bool,
    /// Workers pause this long between two locks at most.
    pub pause: Duration,
    /// Faults happen until then.
    pub faults_end: Duration,
    /// How many permits a semaphore has at first.
    pub permits: u32,
    pub extras: Extras,
    pub classes: Classes,
    /// Many calls come together.
    pub bursts: bool,
    /// Those of the clients of each process.
    pub limits: Limits,
}

impl Plan {
    pub fn draw(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let rng = &mut rng;
        // Every eighth world, and not drawn, so that other types of locks have the worlds that they had without it.
        let has_semaphores = options.kinds.contains(&Kind::Semaphore);
        let locks: Vec<_> = options.kinds.iter().copied().filter(|kind| *kind != Kind::Semaphore).collect();
        let kind = match &locks[..] {
            [] => Kind::Semaphore,
            locks => one(rng, locks),
        };
        let kind = if has_semaphores && seed % 8 == 5 { Kind::Semaphore } else { kind };
        let drawn = match rng.u32(..100) {
            0..60 => Mode::Chaos,
            60..80 => Mode::Gentle,
            _ => Mode::Hung,
        };
        let mode = options.mode.unwrap_or(drawn);
        let lease = match mode {
            Mode::Gentle => one(rng, &[3_000, 5_000, 9_000]),
            _ => one(rng, &[1_500, 2_000, 3_000, 5_000, 9_000]),
        } * MS;
        let servers = match kind {
            Kind::Red => 3,
            Kind::Multi => rng.usize(1..=2),
            _ => 1,
        };
        let count = rng.usize(1..=6);
        let faults: Vec<_> = (0..count).map(|_| one(rng, FaultKind::SINGLE)).collect();
        let mut longest_fault = one(rng, &[300, 1_000, 3_000, 8_000]) * MS;
        let faults = match mode {
            Mode::Chaos => faults,
            Mode::Gentle => {
                longest_fault = lease / 3;
                faults.into_iter().map(|_| one(rng, GENTLE)).collect()
            }
            Mode::Hung => Vec::new(),
        };
        // Not drawn, and not in the worlds with which mutants and tests begin.
        let separates_slots = options.deployment == Deployment::Servers && seed >= 10_000 && seed % 8 == 3;
        let mut faults = with_changes(options.deployment, seed, mode, faults);
        let waits_for_replica = waits_for_replica(options.deployment, seed);
        if waits_for_replica && mode == Mode::Chaos {
            faults.push(FaultKind::TakeOverOld);
        }
        Self {
            seed,
            kind,
            mode,
            servers: if options.deployment.can_switch() { 1 } else { servers },
            deployment: options.deployment,
            separates_slots,
            waits_for_replica,
            processes: rng.usize(1..=3),
            workers: rng.usize(3..=7),
            names: rng.usize(1..=2).max(if separates_slots { 2 } else { 1 }),
            lease,
            margin: 10 * MS,
            safety_poll: rare_polls(seed, options, one(rng, &[500, 1_000, 3_000]) * MS),
            fair_allowance: one(rng, &[1_500, 3_000, 6_000]) * MS,
            // Not drawn, so that other types of locks have the worlds that they had without it.
            sharing: match seed % 4 {
                1 => 5 * MS,
                3 => 300 * MS,
                _ => Duration::ZERO,
            },
            // Only where readers share, and half of the time.
            linger: (kind == Kind::ReadWrite && seed >= FIRST && seed % 2 == 1)
                .then(|| {
                    [None, Some(5 * MS), None, Some(50 * MS), None, Some(300 * MS)][(seed / 2 % 6) as usize]
                })
                .flatten(),
            writer_turn: if seed.is_multiple_of(2) { SECOND } else { 100 * MS },
            command_timeout: one(rng, &[200, 500, 800, 1_000, 3_000]) * MS,
            retry_timeout: if mode == Mode::Gentle { 30_000 } else { one(rng, &[1_000, 3_000, 10_000]) } * MS,
            connections: rng.usize(1..=3),
            most_delay: one(rng, &[500, 1_000, 2_000]) * MS / 1_000,
            drifts: (0..3).map(|_| rng.i32(-800..=800)).collect(),
            faults,
            fault_pause: one(rng, &[500, 2_000, 6_000])
                * MS
                * if options.deployment.can_switch() { 2 } else { 1 },
            longest_fault,
            parks: mode == Mode::Hung || (mode == Mode::Chaos && rng.u32(..100) < 20),
            pause: one(rng, &[5, 50, 400]) * MS,
            // A client asks a cluster a lot while something is wrong, and that takes time here.
            faults_end: if options.deployment.can_switch() { 20 } else { 45 } * SECOND,
            permits: rng.u32(1..=MOST_PERMITS),
            extras: Extras::default(),
            classes: Classes::default(),
            bursts: false,
            limits: Limits::default(),
        }
        .with_extras()
        .with_classes()
        .with_limits(options)
    }

    fn with_extras(mut self) -> Self {
        self.extras = Extras::draw(self.seed, self.kind);
        if self.can_switch() {
            self.extras = if self.seed < FIRST { Extras::default() } else { self.extras.for_changes() };
        }
        if self.extras.nests {
            self.names = 3;
        }
        self
    }

    /// Whether many calls come together. In a cluster, no call waits for others.
    pub fn has_bursts(&self) -> bool {
        self.bursts && self.deployment != Deployment::Cluster
    }

    /// Draws from numbers of its own.
    fn with_limits(mut self, options: &Options) -> Self {
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(853) ^ 0x11b1);
        let mut small =
            |usual: usize, sizes: &[usize]| if rng.u8(..4) > 0 { one(&mut rng, sizes) } else { usual };
        if options.bursts {
            let usual = Limits::default();
            self.bursts = true;
            self.limits = Limits {
                batch: usual.batch,
                in_flight: small(usual.in_flight, &[1, 1, 2]),
                calls: small(usual.calls, &[2, 3, 5]),
                releases: small(usual.releases, &[1, 2]),
                repeated: small(usual.repeated, &[1, 2]),
            };
        }
        self.limits.batch = self.classes.batch.unwrap_or(self.limits.batch);
        self
    }

    /// Whether another server can become the master.
    pub fn can_switch(&self) -> bool {
        self.deployment.can_switch()
    }

    /// The type of lock of an `Owner`.
    pub const fn inner(&self) -> Kind {
        match self.seed % 3 {
            0 => Kind::RLock,
            1 => Kind::Fair,
            _ => Kind::Fenced,
        }
    }

    /// How many servers or locks a call waits for, one after the other.
    pub const fn members(&self) -> usize {
        if matches!(self.kind, Kind::Multi | Kind::Red) { 3 } else { 1 }
    }

    pub fn is_fair(&self) -> bool {
        self.kind == Kind::Fair || (self.kind == Kind::Owner && self.inner() == Kind::Fair)
    }

    /// Whether owners of one client can pass a lock on.
    pub fn passes_on(&self) -> bool {
        // A lock of several members can have one.
        matches!(self.kind, Kind::RLock | Kind::ReadWrite | Kind::Multi)
            || (self.kind == Kind::Owner && self.inner() == Kind::RLock)
    }

    pub fn config(&self) -> LockConfigBuilder {
        LockConfig::builder()
            .watchdog_lease(self.lease)
            .safety_poll(self.safety_poll)
            .fair_allowance(self.fair_allowance)
            .sharing(self.sharing)
            .writer_turn(self.writer_turn)
            .command_timeout(self.command_timeout)
            .retry_timeout(self.retry_timeout)
            .connections(self.connections)
            .sync_replicas(self.waits_for_replica.into())
    }

    /// How long after a fault its effects may last.
    pub fn settle(&self) -> Duration {
        // Bytes die 10 s after their connection, undos pause for up to 6 s, holds of dead processes end with their lease.
        self.longest_lease() + self.slack() + 2 * self.fair_allowance + 12 * SECOND
    }

    /// How much longer than its lease a permit of a semaphore can stay on the server.
    pub fn slack(&self) -> Duration {
        if self.kind == Kind::Semaphore { SECOND } else { Duration::ZERO }
    }

    /// The longest lease that a worker asks for.
    pub fn longest_lease(&self) -> Duration {
        2 * self.lease
    }

    /// From then on everything is calm.
    pub fn calm_from(&self) -> Duration {
        self.faults_end + self.settle()
    }

    /// Workers begin nothing after this.
    pub fn end(&self) -> Duration {
        self.calm_from() + 15 * SECOND
    }

    /// Whether slots move and nothing else happens.
    pub fn only_moves(&self) -> bool {
        self.faults == [FaultKind::MoveSlot]
    }

    /// Whether nobody notices that a slot moves: the script needs no other key than that which it finds at one of two nodes.
    pub fn hides_moves(&self) -> bool {
        self.only_moves() && !self.parks && matches!(self.kind, Kind::RLock)
    }

    /// How long a lock may stay free although somebody waits, or held although nobody has it, without any fault.
    pub fn handover(&self) -> Duration {
        // Redirects take further round trips, and the acquires of a burst run one after the other if each waits for a replica.
        let more = if self.hides_moves() || self.waits_for_replica { 150 * MS } else { Duration::ZERO };
        let once = 14 * self.most_delay.max(MS) + 60 * MS + more;
        let untold = if self.classes.only_messages { self.untold() } else { Duration::ZERO };
        let told = match self.kind {
            // After several rounds that were refused, it pauses.
            Kind::Multi => 3 * once + SECOND / 2,
            Kind::Red => 6 * once + SECOND,
            _ => once,
        };
        // A hold that lingers is ended at its confirmation. A stop of readers on behalf of somebody lasts a little longer.
        let lingers = if self.linger.is_some() { self.lingers() * 2 + 40 * MS } else { Duration::ZERO };
        untold + told + lingers
    }

    /// How long after a grant or a confirmation readers join a hold that lingers.
    pub fn lingers(&self) -> Duration {
        self.linger.unwrap_or_default() * 5 / 4
    }

    /// The same beside futures that nobody polls.
    pub fn hung_handover(&self) -> Duration {
        // A fair waiter that nobody polls gets no more heartbeats, so its place ends.
        let place = if self.is_fair() { 2 * self.fair_allowance } else { Duration::ZERO };
        5 * self.safety_poll + SECOND + place
    }
}

/// In some worlds, who is woken by nobody sleeps on for long.
fn rare_polls(seed: u64, options: &Options, drawn: Duration) -> Duration {
    if options.deployment.can_switch() && seed % 4 == 2 { Duration::from_secs(60) } else { drawn }
}

/// In some worlds from [`FIRST`] on, a replica must have each hold.
fn waits_for_replica(deployment: Deployment, seed: u64) -> bool {
    let mut rng = Rng::with_seed(seed.wrapping_mul(919) ^ 0xacc5);
    deployment.can_switch() && seed >= FIRST && rng.u32(..4) == 0
}

/// In place of some faults, slots move and masters are replaced.
fn with_changes(deployment: Deployment, seed: u64, mode: Mode, mut faults: Vec<FaultKind>) -> Vec<FaultKind> {
    let moves = match deployment {
        Deployment::Servers => return faults,
        Deployment::Cluster => FaultKind::MoveSlot,
        Deployment::Sentinels => FaultKind::FailOver,
    };
    let mut rng = Rng::with_seed(seed.wrapping_mul(733) ^ 0xc105);
    if mode == Mode::Gentle && rng.bool() {
        return vec![moves];
    }
    let changes = if mode == Mode::Gentle { GENTLE_CHANGES } else { FaultKind::CHANGES };
    for fault in &mut faults {
        // The servers keep their data, so only a master that is replaced loses some.
        if rng.u32(..3) < 2 || fault.loses() {
            *fault = one(&mut rng, changes);
        }
        if *fault == FaultKind::MoveSlot {
            *fault = moves;
        }
    }
    faults
}

pub fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// Draws a time up to `most`. Short times are as likely as long ones on each scale.
pub fn up_to(rng: &mut Rng, most: Duration) -> Duration {
    most.mul_f64(rng.f64() * rng.f64())
}
