//! A script, a call of it and its reply, as plain data.

use std::fmt;
use std::sync::{Arc, OnceLock};

use smallvec::{SmallVec, smallvec};
use uuid::Uuid;

/// A Lua script.
#[derive(Debug)]
pub(crate) struct Script {
    /// Its path below `lua/`.
    pub(crate) file: &'static str,
    pub(crate) source: &'static str,
    /// The name by which the server knows the script. The store computes it.
    pub(crate) hash: OnceLock<String>,
}

/// One call of a script.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) keys: SmallVec<[Arc<str>; 2]>,
    pub(crate) args: SmallVec<[Arg; 3]>,
}

/// An argument of a script.
#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Number(u64),
    /// The owner of a hold, in the form of Redisson's `UUID:threadId`.
    Owner(Uuid, u64),
    Text(Arc<str>),
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            // Part by part: nearly every command contains an owner, and `write!` with a format takes half as long again.
            Self::Owner(client, number) => {
                f.write_str(client.hyphenated().encode_lower(&mut Uuid::encode_buffer()))?;
                f.write_str(":")?;
                number.fmt(f)
            }
            Self::Text(text) => text.fmt(f),
        }
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

/// A script that does the same for many rows in one command.
#[derive(Debug)]
pub(crate) struct Batch(pub(super) Script);

/// The keys and arguments that one row adds to a [`Batch`].
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) keys: SmallVec<[Arc<str>; 1]>,
    pub(crate) args: SmallVec<[Arg; 3]>,
}

impl Batch {
    /// Its path below `lua/`.
    pub(crate) const fn file(&self) -> &'static str {
        self.0.file
    }

    /// Builds the call for these rows. All rows have the argument `shared` in common.
    pub(crate) fn call(&'static self, shared: impl Into<Arg>, rows: impl IntoIterator<Item = Row>) -> Call {
        let mut call = Call { script: &self.0, keys: SmallVec::new(), args: smallvec![shared.into()] };
        for row in rows {
            call.keys.extend(row.keys);
            call.args.extend(row.args);
        }
        call
    }
}
