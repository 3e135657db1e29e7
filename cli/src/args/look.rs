//! The arguments of the commands that look at many locks, or at the server.

use clap::Args;

/// Which locks to list.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Which names: * is any text, ? one character, [ab] one of these
    #[arg(default_value = "*")]
    pub(crate) pattern: String,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}
