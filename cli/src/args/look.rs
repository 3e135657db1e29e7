//! The arguments of the commands that look at many locks, or at the server.

use std::time::Duration;

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

/// Which locks to follow.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Which names: * is any text, ? one character, [ab] one of these
    #[arg(default_value = "*")]
    pub(crate) patterns: Vec<String>,
    /// The time between two looks
    ///
    /// The time between two looks at the server, such as 500ms. What begins and ends between two looks is not seen
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = pause)]
    pub(crate) every: Duration,
    /// Prints JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The shortest time between two looks: each of them reads all keys.
const SHORTEST: Duration = Duration::from_millis(10);

fn pause(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < SHORTEST { Err(format!("must be at least {SHORTEST:?}")) } else { Ok(time) }
}
