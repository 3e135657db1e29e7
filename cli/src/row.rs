//! A lock that somebody holds, as lists and JSON have it.

use std::borrow::Cow;

use lockkeeper::{HolderIdentity, ListedLock, LockInfo, LockKind, RemainingLease};
use serde::Serialize;

/// A lock that somebody holds, as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// As `run --kind` names it, or `semaphore`.
    pub(crate) kind: &'static str,
    pub(crate) holders: Vec<Holder>,
    /// `null`: it is not a semaphore.
    pub(crate) permits: Option<Permits>,
    /// `null`: the key has no expiry.
    pub(crate) expires_in_ms: Option<u64>,
    /// The waiters of a fair lock.
    pub(crate) queued: u64,
    /// The clients with waiters, for other types.
    pub(crate) listeners: u64,
}

/// An owner or a permit, as JSON has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Holder {
    pub(crate) owner: String,
    /// Of a permit, the beginning of the client's id. `null`: a permit of Java.
    pub(crate) client: Option<String>,
    pub(crate) holds: u64,
    /// `null`: never.
    pub(crate) expires_in_ms: Option<u64>,
    /// `null`: the client is not connected, or unknown.
    pub(crate) identity: Option<String>,
    /// `null`: unknown.
    pub(crate) is_connected: Option<bool>,
    /// `null`: it is not recorded.
    pub(crate) held_for_ms: Option<u64>,
}

impl Holder {
    /// The process, if it is known, and the owner.
    pub(crate) fn who(&self) -> String {
        let owner = visible(&self.owner);
        let named = |process: &str| format!("{} ({owner})", visible(process));
        self.process().map_or_else(|| owner.to_string(), named)
    }

    /// The process of the client, as people read it. `None`: it is unknown.
    pub(crate) fn process(&self) -> Option<&str> {
        match self.is_connected {
            Some(false) => Some("not connected"),
            _ => self.identity.as_deref(),
        }
    }
}

/// The permits of a semaphore, as JSON has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Permits {
    pub(crate) total: u32,
    pub(crate) in_use: usize,
    pub(crate) available: usize,
}

impl Permits {
    pub(crate) fn of(info: &LockInfo) -> Option<Self> {
        let (total, in_use) = (info.permits?, info.holders.len());
        let available = usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(in_use);
        Some(Self { total, in_use, available })
    }
}

impl Row {
    pub(crate) fn holds(&self) -> u64 {
        self.holders.iter().map(|holder| holder.holds).sum()
    }

    /// Fair locks have a queue. For other locks, the server only knows which clients wait.
    pub(crate) fn waiters(&self) -> String {
        match self.listeners {
            0 => self.queued.to_string(),
            1 => "1 client".to_owned(),
            clients => format!("{clients} clients"),
        }
    }
}

impl From<ListedLock> for Row {
    fn from(lock: ListedLock) -> Self {
        let is_writer = |holder: &lockkeeper::Holder| holder.owner.ends_with(":write");
        let kind = match lock.kind {
            LockKind::Fair => "fair",
            LockKind::Fenced => "fenced",
            LockKind::ReadWrite if lock.info.holders.iter().any(is_writer) => "write",
            LockKind::ReadWrite => "read",
            LockKind::Semaphore => "semaphore",
            _ => "rlock",
        };
        Self {
            name: lock.name,
            kind,
            holders: lock.info.holders.iter().map(Holder::from).collect(),
            permits: Permits::of(&lock.info),
            expires_in_ms: expires_in_ms(lock.info.remaining_lease),
            queued: lock.queued,
            listeners: lock.listeners,
        }
    }
}

impl From<&lockkeeper::Holder> for Holder {
    fn from(holder: &lockkeeper::Holder) -> Self {
        let is_connected = match holder.identity {
            HolderIdentity::Connected(_) => Some(true),
            HolderIdentity::NotConnected => Some(false),
            _ => None,
        };
        Self {
            owner: holder.owner.clone(),
            client: holder.client(),
            holds: holder.holds,
            expires_in_ms: expires_in_ms(holder.remaining_lease),
            identity: holder.identity.name().map(str::to_owned),
            is_connected,
            held_for_ms: holder.held_for.and_then(|age| age.as_millis().try_into().ok()),
        }
    }
}

/// `None`: the key has no expiry.
pub(crate) fn expires_in_ms(left: RemainingLease) -> Option<u64> {
    left.duration().and_then(|left| left.as_millis().try_into().ok())
}

/// Names come from other programs: control characters in them would move the cursor, look like other columns, begin a line, or change the
/// direction of the text. A backslash is escaped, too, so that no name looks like the escape of another one.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let is_escaped = |char: char| match char {
        '\\' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        char => char.is_control(),
    };
    if !text.contains(is_escaped) {
        return text.into();
    }
    let shown = |char: char| {
        if is_escaped(char) { char.escape_default().to_string() } else { char.to_string() }
    };
    text.chars().map(shown).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(visible("lock:ä b"), "lock:ä b");
        assert_eq!(visible("a\tb\n\u{1b}[2J\u{202e}"), "a\\tb\\n\\u{1b}[2J\\u{202e}");
        assert_eq!(visible("\u{61c}\u{2028}\u{2029}"), "\\u{61c}\\u{2028}\\u{2029}");
        assert_ne!(visible("a\n"), visible("a\\n"), "what is shown stands for one name");
    }
}
