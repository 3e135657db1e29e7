//! Locks and their holders, as lists for people have them.

use std::borrow::Cow;

use lockkeeper::{Holder, LockInfo};

/// The process, if it is known, and the owner.
pub(crate) fn who(holder: &Holder) -> String {
    visible(&holder.to_string()).into_owned()
}

/// The process of the client. `None`: it is unknown.
pub(crate) fn process(holder: &Holder) -> Option<&str> {
    if holder.is_connected == Some(false) { Some("not connected") } else { holder.identity.as_deref() }
}

pub(crate) fn holds(lock: &LockInfo) -> u64 {
    lock.holders.iter().map(|holder| holder.holds).sum()
}

/// Fair locks have a queue. For other locks, the server only knows which clients wait.
pub(crate) fn waiters(lock: &LockInfo) -> String {
    match lock.listeners.unwrap_or_default() {
        0 => lock.queued.unwrap_or_default().to_string(),
        1 => "1 client".to_owned(),
        clients => format!("{clients} clients"),
    }
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
pub(crate) mod tests {
    use super::*;

    /// A lock with these holders and their holds.
    pub(crate) fn lock(name: &str, holders: &[(&str, u64)], left_ms: u64) -> LockInfo {
        let holder = |(owner, holds): &(&str, u64)| serde_json::json!({ "owner": owner, "holds": holds, "expires_in_ms": left_ms, "held_for_ms": null });
        let holders: Vec<_> = holders.iter().map(holder).collect();
        let lock = serde_json::json!({
            "name": name, "kind": "rlock", "holders": holders, "expires_in_ms": left_ms, "queued": 0, "listeners": 0,
        });
        serde_json::from_value(lock).expect("a lock")
    }

    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(visible("lock:ä b"), "lock:ä b");
        assert_eq!(visible("a\tb\n\u{1b}[2J\u{202e}"), "a\\tb\\n\\u{1b}[2J\\u{202e}");
        assert_eq!(visible("\u{61c}\u{2028}\u{2029}"), "\\u{61c}\\u{2028}\\u{2029}");
        assert_ne!(visible("a\n"), visible("a\\n"), "what is shown stands for one name");
    }
}
