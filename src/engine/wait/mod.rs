//! Waiting for a lock that another owner holds, and what the owners of one client do for each other without a command:
//! they hand a hold over, and readers share one.
//!
//! Lock cohorting, after "Lock Cohorting: A General Technique for Designing NUMA Locks" (Dice, Marathe, Shavit; 2012):
//! the client holds the lock on the server for a short time, and its owners take turns within that time.
//!
//! [`machine`] decides. [`queue`] has its mutex, its clock and its wakers, and [`waiter`] is the future that waits.
//!
//! A waiter is always in one state, and so is what its queue knows about the lock:
//!
//! | the client knows | the waiter in front |
//! |---|---|
//! | nothing | attempts |
//! | held, until then | waits for a wake-up, for the end of the lease, or for the safety poll |
//! | open (readers) | attempts or joins, and so do all others |
//! | failing, since then | waits for a wake-up or the end of the pause |
//!
//! A waiter finds out what a late copy of its attempt acquired. The front attempts again in any case. A waiter behind
//! others attempts while such a copy can run. Otherwise the others would wait for a hold that this waiter has without
//! knowing.
//!
//! # The explorer
//!
//! `explorer.rs` runs two clients with one or two waiters each, and attempts outside of the queue, against a model of
//! the server. In each run one thing goes wrong: a waiter is cancelled or not polled any more, a reply is lost, a
//! message connection breaks, a holder dies, somebody deletes the key, or a step is late. The waiters want one lock, or
//! one or two of two permits. It visits thirteen configurations as a whole, and `scripts/nightly` fourteen larger ones.
//! It checks:
//!
//! - No two owners have holds that the server did not lose, nor more owners than permits, and no hold is left that nobody releases.
//! - No waiter sleeps beside a lock that was released, while messages arrive.
//! - A hold is not handed over after a message, nor while a waiter attempts, except a permit.
//! - A waiter attempts before those in front of it only for a stated reason.
//! - An end can be reached from every state.
//!
//! It does not cover readers that share, places in a fair queue, time limits, writers that
//! stop readers, and a release whose reply is lost. The simulated worlds do.

pub(crate) mod machine;
pub(crate) mod queue;
pub(crate) mod waiter;
