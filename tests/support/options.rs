//! Options with one value each.

use std::borrow::Cow;
use std::time::Duration;

use lockkeeper::LockOptions;

pub fn fixed(lease: Duration) -> LockOptions {
    LockOptions::builder().fixed(lease).build().unwrap()
}

pub fn renewing(lease: Duration) -> LockOptions {
    LockOptions::builder().renewed(lease).build().unwrap()
}

pub fn at_most(max_hold: Duration) -> LockOptions {
    LockOptions::builder().max_hold(max_hold).build().unwrap()
}

pub fn at_least(min_hold: Duration) -> LockOptions {
    LockOptions::builder().min_hold(min_hold).build().unwrap()
}

pub fn grouped(group: impl Into<Cow<'static, str>>) -> LockOptions {
    LockOptions::builder().group(group).build().unwrap()
}

pub fn lingering(linger: Duration) -> LockOptions {
    LockOptions::builder().linger(linger).build().unwrap()
}
