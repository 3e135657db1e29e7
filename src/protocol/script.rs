//! A script, a call of it and its reply, as plain data.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use smallvec::{SmallVec, smallvec};
use uuid::Uuid;

use super::reply::number;
use crate::base::limits::limits;

/// A Lua script, in its forms. `build.rs` makes all of them from one file.
#[derive(Debug)]
pub(crate) struct Script {
    /// Its path below `lua/`.
    pub(crate) file: &'static str,
    of_one: Forms,
    batch: Option<(usize, Forms)>,
}

/// A text that publishes with `PUBLISH`, and the same text with `SPUBLISH`.
#[derive(Debug)]
struct Forms {
    plain: Form,
    sharded: OnceLock<Form>,
}

/// A script as a server gets it.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) source: Cow<'static, str>,
    /// The name by which the server knows the script. The store computes it.
    pub(crate) hash: OnceLock<String>,
}

/// How the scripts name the command that publishes. `tests/scripts.rs` checks that they name it in no other way.
const PUBLISH: &str = "'publish'";

/// The command that publishes in one slot of a cluster.
const SHARDED_PUBLISH: &str = "'spublish'";

/// How a script asks for the number of those who listen on a channel.
const LISTENERS: &str = "'pubsub', 'numsub'";

/// The same for the messages of one slot of a cluster.
const SHARDED_LISTENERS: &str = "'pubsub', 'shardnumsub'";

impl Script {
    pub(super) const fn new(file: &'static str, source: &'static str) -> Self {
        Self { file, of_one: Forms::new(source), batch: None }
    }

    /// A script that also has a form for several calls: at most so many in one command.
    pub(super) const fn with_batch(
        file: &'static str,
        source: &'static str,
        most: usize,
        batch: &'static str,
    ) -> Self {
        Self { file, of_one: Forms::new(source), batch: Some((most, Forms::new(batch))) }
    }

    /// Returns the form that publishes with `SPUBLISH` if `sharded`, otherwise the one that publishes with `PUBLISH`.
    pub(crate) fn form(&self, sharded: bool) -> &Form {
        self.of_one.form(sharded)
    }

    /// Returns the same form for several calls. `None`: each call is a command of its own.
    pub(crate) fn batch_form(&self, sharded: bool) -> Option<&Form> {
        self.batch.as_ref().map(|(_, forms)| forms.form(sharded))
    }

    /// Builds the call for these rows. All rows have the argument `shared` in common.
    pub(crate) fn call(&'static self, shared: impl Into<Arg>, rows: impl IntoIterator<Item = Row>) -> Call {
        let mut call = Call { script: self, keys: SmallVec::new(), args: smallvec![shared.into()] };
        for row in rows {
            call.keys.extend(row.keys);
            call.args.extend(row.args);
        }
        call
    }

    /// How many calls one command can have.
    pub(crate) fn most_calls(&self) -> usize {
        self.batch.as_ref().map_or(1, |(most, _)| limits().calls.min(*most))
    }
}

impl Forms {
    const fn new(source: &'static str) -> Self {
        Self { plain: Form::new(Cow::Borrowed(source)), sharded: OnceLock::new() }
    }

    fn form(&self, sharded: bool) -> &Form {
        if !sharded {
            return &self.plain;
        }
        let replaced =
            || self.plain.source.replace(PUBLISH, SHARDED_PUBLISH).replace(LISTENERS, SHARDED_LISTENERS);
        self.sharded.get_or_init(|| Form::new(Cow::Owned(replaced())))
    }
}

impl Form {
    const fn new(source: Cow<'static, str>) -> Self {
        Self { source, hash: OnceLock::new() }
    }
}

/// One call of a script.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: SmallVec<[Arc<str>; 2]>,
    pub(crate) args: SmallVec<[Arg; 3]>,
}

impl Call {
    /// Whether the server may run the call for a limited time only: a first acquire, which creates something for a new id, or a heartbeat.
    pub(crate) fn expires(&self) -> bool {
        matches!(self.args.last(), Some(Arg::ValidUntil))
    }

    /// The same call without its keys: a user without the right to them can make it, if the script allows that.
    pub(crate) fn without_keys(self) -> Self {
        Self { keys: SmallVec::new(), ..self }
    }
}

/// An argument of a script.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Number(u64),
    /// The owner of a hold, in the form of Redisson's `UUID:threadId`.
    Owner(Uuid, u64),
    /// The ids of permits of a semaphore, which stand behind each other.
    Permits(PermitIds),
    Text(Arc<str>),
    /// Until when the server may run the call, in seconds of its own clock. The store fills it in when it sends the call.
    ValidUntil,
}

/// Consecutive ids of permits. On the wire an id has 16 bytes: 8 of the client, and 8 that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermitIds {
    pub(crate) client: u64,
    pub(crate) first: u64,
    pub(crate) count: u32,
}

impl PermitIds {
    /// The ids of these permits, one by one.
    pub(crate) fn each(self) -> impl Iterator<Item = [u8; 16]> {
        (0..u64::from(self.count)).map(move |i| {
            let id = u128::from(self.client) << 64 | u128::from(self.first.wrapping_add(i));
            id.to_be_bytes()
        })
    }

    /// The one permit with this id.
    pub(crate) const fn one(id: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = id;
        let client = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Self { client, first: u64::from_be_bytes([i, j, k, l, m, n, o, p]), count: 1 }
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Owner(client, number) => {
                f.write_str(&String::from_utf8_lossy(owner_text(*client, *number, &mut [0; 57])))
            }
            // In hexadecimal digits, as Java shows the ids of permits.
            Self::Permits(permits) => {
                for (i, id) in permits.each().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{:032x}", u128::from_be_bytes(id))?;
                }
                Ok(())
            }
            Self::Text(text) => text.fmt(f),
            Self::ValidUntil => f.write_str("valid until"),
        }
    }
}

/// Writes an owner in the form of Redisson's `UUID:threadId`. Nearly every command has one, and a formatter takes several times as long.
pub(crate) fn owner_text(client: Uuid, number: u64, buffer: &mut [u8; 57]) -> &[u8] {
    let (mut start, mut rest) = (buffer.len(), number);
    while start == buffer.len() || rest > 0 {
        start -= 1;
        buffer[start] = b'0' + (rest % 10).to_le_bytes()[0];
        rest /= 10;
    }
    buffer[start - 1] = b':';
    start -= 37;
    client.hyphenated().encode_lower(&mut buffer[start..start + 36]);
    &buffer[start..]
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&Arc<str>> for Arg {
    fn from(text: &Arc<str>) -> Self {
        Self::Text(Arc::clone(text))
    }
}

impl From<u64> for Arg {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Arg {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&Self> for Arg {
    fn from(arg: &Self) -> Self {
        arg.clone()
    }
}

/// The reply of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Int(i64),
    List(Vec<Self>),
    Nil,
    Text(String),
}

impl Reply {
    /// Whether a call that [expires](Call::expires) came too late, and changed nothing.
    pub(crate) const fn is_late(&self) -> bool {
        matches!(self, Self::Int(number::LATE))
    }
}

/// The keys and arguments that one row adds to a script that does the same for many rows in one command.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) keys: SmallVec<[Arc<str>; 2]>,
    pub(crate) args: SmallVec<[Arg; 3]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_written_as_redisson_writes_it() {
        let client = Uuid::from_u128(0xab << 96);
        for number in [0, 7, 10, 1_234_567_890, u64::MAX] {
            assert_eq!(Arg::Owner(client, number).to_string(), format!("{client}:{number}"));
        }
    }
}
