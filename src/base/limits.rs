//! Sizes from which on the library works in another way. A simulated process can have smaller ones, so that a world with few workers gets
//! there.

/// The limits of the clients of a process. For lockkeeper's own tests.
///
/// ```
/// # use lockkeeper::Limits;
/// assert_eq!(Limits { batch: 2, ..Limits::default() }.calls, Limits::default().calls);
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "only this project's own tests make one")]
#[cfg_attr(not(feature = "unstable-simulation"), allow(unreachable_pub, reason = "only simulations name it"))]
pub struct Limits {
    /// How many holds or places one command renews.
    pub batch: usize,
    /// How many writes of a connection's sender can be in flight. With fewer, a connection stands still for a part of each round trip of
    /// a network. With more, fewer calls go out together.
    pub in_flight: usize,
    /// How many calls one write can have, and one command. Scripts that take longer have a smaller limit of their own.
    pub calls: usize,
    /// The most releases of the background that are under way at one server: enough to fill its pipeline, and answered
    /// within a small part of `command_timeout`. The futures of callers can send as many again.
    pub releases: usize,
    /// How many releases are repeated at a time after another server became the master.
    pub repeated: usize,
}

impl Limits {
    pub(crate) const USUAL: Self =
        Self { batch: 100, in_flight: 8, calls: 64, releases: 1_000, repeated: 100 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::USUAL
    }
}

/// The limits of the process in which this code runs.
pub(crate) fn limits() -> Limits {
    #[cfg(feature = "unstable-simulation")]
    if let Some(process) = crate::base::process::current() {
        return process.limits();
    }
    Limits::USUAL
}
