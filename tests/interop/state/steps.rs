//! One step, done by either language.

use lockkeeper::{LockClient, LockGuard};
use tokio::task::JoinHandle;

use crate::java::{Actor, IN_VAIN};
use crate::support::fixture::{Fixture, Subject};
use crate::support::{MS, SECOND, soon};
use crate::{Java, Row, actor, rival};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Lock,
    /// With a lease longer than that of the watchdog, by a holder that may re-enter.
    LockForAMinute,
    /// With a fixed lease of the same length.
    LockForAMinuteAlone,
    Unlock,
    /// Another owner starts to wait.
    Wait,
    /// Another owner waits and times out.
    WaitInVain,
    /// The waiter releases the lock that it acquired.
    UnlockTheOther,
    Force,
}

use Step::{Force, Lock, LockForAMinute, LockForAMinuteAlone, Unlock, UnlockTheOther, Wait, WaitInVain};

pub struct ByJava {
    pub holder: Actor,
    pub other: Actor,
    pub waiting: Option<JoinHandle<()>>,
}

impl ByJava {
    pub fn new<R: Row>(java: &Java) -> Self {
        Self { holder: actor::<R>(java, "holder"), other: rival::<R>(java, "other"), waiting: None }
    }

    pub async fn take(&mut self, step: Step) {
        match step {
            Lock => self.holder.lock("a").await.unwrap(),
            LockForAMinute | LockForAMinuteAlone => self.holder.lock_for("a", 60 * SECOND).await.unwrap(),
            Unlock => self.holder.unlock("a").await.unwrap(),
            Wait => {
                let other = self.other.clone();
                self.waiting = Some(tokio::spawn(async move { other.lock("a").await.unwrap() }));
                self.other.asleep().await;
            }
            WaitInVain => assert!(!self.other.try_lock_within("a", IN_VAIN).await.unwrap()),
            UnlockTheOther => {
                soon(self.waiting.take().unwrap()).await.unwrap();
                self.other.unlock("a").await.unwrap();
            }
            Force => assert!(self.holder.force_unlock("a").await.unwrap()),
        }
    }
}

pub struct ByRust<R: Row> {
    pub locks: LockClient,
    pub lock: lockkeeper::Lock<'static, <R::Rust as Fixture>::Kind>,
    pub guards: Vec<LockGuard>,
    pub waiting: Option<JoinHandle<LockGuard>>,
}

impl<R: Row> ByRust<R> {
    pub fn new(locks: &LockClient) -> Self {
        Self { locks: locks.clone(), lock: R::Rust::lock(locks, "a"), guards: Vec::new(), waiting: None }
    }

    pub async fn take(&mut self, step: Step) {
        let mut other = R::Rust::rival(&self.locks, "a");
        match step {
            Lock => self.guards.push(self.lock.lock().await.unwrap().into_plain()),
            LockForAMinute => {
                let guard = self.lock.lock().await.unwrap().into_plain();
                guard.extend(60 * SECOND).await.unwrap();
                self.guards.push(guard);
            }
            LockForAMinuteAlone => {
                let mut leased = R::Rust::leased(&self.locks, "a", 60 * SECOND);
                self.guards.push(leased.lock().await.unwrap().into_plain());
            }
            Unlock => self.guards.pop().unwrap().unlock().await.unwrap(),
            Wait => {
                self.waiting = Some(tokio::spawn(async move { other.lock().await.unwrap().into_plain() }))
            }
            WaitInVain => assert!(other.try_lock_for(100 * MS).await.unwrap().is_none()),
            UnlockTheOther => {
                soon(self.waiting.take().unwrap()).await.unwrap().unlock().await.unwrap();
            }
            Force => assert!(self.lock.force_unlock().await.unwrap()),
        }
    }
}
