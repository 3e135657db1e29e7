//! What is measured over a number of waiters or readers.

use redis::Cmd;

/// The owner that calls the script.
pub const CALLER: &str = "00000000-0000-4000-8000-000000000001:1";

/// One operation.
pub struct Operation {
    pub name: &'static str,
    /// A script of lockkeeper.
    pub script: &'static str,
    pub prepare: Prepare,
}

/// Takes the name of the lock, and the number of waiters or readers.
pub type Prepare = Box<dyn Fn(&str, usize) -> Prepared>;

/// An operation on one lock.
pub struct Prepared {
    /// The commands that write the lock and its waiters or readers.
    pub state: Vec<Cmd>,
    /// The commands that restore the state before each call.
    pub restore: Vec<Cmd>,
    pub keys: Vec<String>,
    pub args: Vec<String>,
    /// How the answer begins as text.
    pub answer: &'static str,
}

/// The id of another owner.
pub fn other(number: usize) -> String {
    format!("00000000-0000-4000-8000-000000000000:{number}")
}

/// A command, from its words.
pub fn command<const N: usize>(words: [&str; N]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(&words[..]);
    command
}
