//! The `lockkeeper` command: runs commands under locks, and shows and releases locks.

#[cfg(not(unix))]
compile_error!("the `lockkeeper` command needs process groups and signals, which only Unix has");

mod args;
mod connect;
mod doctor;
mod exit;
mod follow;
mod look;
mod ls;
mod run;
mod table;
mod text;
mod top;
mod verify;
mod why;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use args::{Arguments, Command};
use exit::{Failure, USAGE};

/// The names of the hidden commands.
const KEEP: &str = "__keep";
const EXEC: &str = "__exec";
const WORK: &str = "__work";

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Printing fails if the reader has closed the pipe. That does not change the exit code, because this also
            // prints `--help`.
            let _ = error.print();
            return if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    start(arguments).unwrap_or_else(|failure| failure.report())
}

/// The arguments without the hidden commands.
fn shown() -> clap::Command {
    let all = Arguments::command();
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let about = all.get_about().cloned().unwrap_or_default();
    clap::Command::new("lockkeeper")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .args(all.get_arguments().cloned())
        .subcommand_required(true)
        .subcommands(commands)
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(), "lockkeeper", &mut script);
    script
}

fn man_page(command: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut all = shown();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let found = all.find_subcommand(name);
            found.ok_or_else(|| Failure::usage(format!("there is no command `{name}`")))?.clone()
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(Failure::output)?;
    // `clap_mangen` makes the synopsis itself, and does not know that a command follows `--`.
    let text = String::from_utf8(text).map_err(Failure::unavailable)?;
    Ok(text.replacen("<\\fICOMMAND\\fR>", "\\-\\- <\\fICOMMAND\\fR>...", 1).into_bytes())
}

fn start(Arguments { connection, command }: Arguments) -> Result<ExitCode, Failure> {
    match command {
        Command::Exec { parent, gate, command } => return Ok(run::become_command(parent, gate, &command)),
        Command::Completions { shell } => {
            exit::print(&completions(shell))?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Man { command } => {
            exit::print(&man_page(command.as_deref())?)?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    // One thread: on Linux, the kernel sends a child its parent-death signal when the thread that started the child
    // ends, even if the process lives on.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::unavailable)?;
    let result = runtime.block_on(async {
        match command {
            Command::Run(options) => run::run(connection, options).await,
            Command::Keep { .. } => Ok(run::keep().await),
            Command::Ls(options) => ls::ls(&connection, &options).await,
            Command::Show(options) => look::show(&connection, &options).await,
            Command::Top(options) => top::top(&connection, &options).await,
            Command::Watch(options) => follow::watch(&connection, &options).await,
            Command::Release(options) => look::release(&connection, &options).await,
            Command::Resize(options) => look::resize(&connection, &options).await,
            Command::Why(options) => why::why(&connection, &options).await,
            Command::Verify(options) => verify::verify(connection, options).await,
            Command::Work => Ok(verify::work().await),
            Command::Doctor(options) => doctor::doctor(&connection, &options).await,
            Command::Exec { .. } | Command::Completions { .. } | Command::Man { .. } => Ok(ExitCode::SUCCESS),
        }
    });
    // A thread that reads from stdin perhaps never returns, so the runtime does not wait for its threads.
    runtime.shutdown_background();
    result
}
