//! The arguments of `lockkeeper verify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;
use super::look::Examined;

const EXIT_CODES: &str = "Exit codes:
  0   no violation
  1   a violation
  64  bad arguments or settings
  69  it could not run, or saw no grant";

/// What to test, and for how long.
#[derive(Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Verify {
    /// For how long the workers run, up to 3600
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,
    /// Only this type of lock. Can be repeated
    #[arg(long, value_enum)]
    pub(crate) kind: Vec<Examined>,
    /// The number of worker processes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) workers: u32,
    /// The most calls a second of all workers
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,
    /// The lease of the locks. It is short, so that many end
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = lease)]
    pub(crate) lease: Duration,
    /// Prints the verdict as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Writes what the workers did to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// Judges the history in this file, and runs nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["history", "seconds", "kind", "workers", "rate", "lease"])]
    pub(crate) judge: Option<PathBuf>,
    /// The workers go on after a loss. Only for tests of the judge
    #[arg(long, hide = true)]
    pub(crate) ignore_losses: bool,
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    let is_allowed = (Duration::from_secs(1)..=Duration::from_secs(60)).contains(&lease);
    if is_allowed { Ok(lease) } else { Err("must be 1s to 1m".to_owned()) }
}
