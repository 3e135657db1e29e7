//! A `lockkeeper run` whose command writes to the log while it lives.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use lockkeeper_testkit::signal;

use super::processes::Processes;
use super::scene::Scene;
use super::{log, wait_until, worker};

/// A command without further processes. `WORKER` stands for what writes to the log.
pub(crate) const ALONE: &str = "exec WORKER";

/// Everything but the log is lost when it is dropped: the test ends it.
pub(crate) struct Contender {
    who: &'static str,
    front: Child,
    stop: PathBuf,
    log: log::Log,
    processes: Processes,
}

impl Contender {
    /// Starts a contender for the lock `lock`. `url`: the way to the server, if it is not the direct one.
    pub(crate) fn start(
        scene: &Scene,
        who: &'static str,
        options: &[&str],
        script: &str,
        url: Option<&str>,
    ) -> Self {
        let script = script.replace("WORKER", worker::SHELL);
        let args = [&["run"], options, &["lock", "--", "sh", "-c", &script]].concat();
        let mut command = scene.lockkeeper(&args);
        command.env("LOCKKEEPER_CONFIG", "contender.toml");
        worker::configure(&mut command, &scene.log_file(), who);
        if let Some(url) = url {
            command.env("LOCKKEEPER_URL", url);
        }
        Self {
            who,
            front: command.spawn().expect("lockkeeper runs"),
            stop: worker::stop_file(&scene.log_file(), who),
            log: scene.log(),
            processes: scene.processes.clone(),
        }
    }

    /// Starts a contender that runs a plain worker.
    pub(crate) fn plain(scene: &Scene, who: &'static str) -> Self {
        Self::start(scene, who, &[], ALONE, None)
    }

    pub(crate) fn front(&self) -> u32 {
        self.front.id()
    }

    #[track_caller]
    pub(crate) fn keeper(&self) -> u32 {
        self.processes.keeper_of(self.front()).expect("a keeper")
    }

    pub(crate) fn command(&self) -> Option<u32> {
        self.processes.command_of(self.front())
    }

    pub(crate) fn is_inside(&self) -> bool {
        self.log.span(self.who).is_some()
    }

    /// Waits until the command runs.
    #[track_caller]
    pub(crate) fn enters(self) -> Self {
        wait_until("the contender enters", || self.is_inside());
        self
    }

    /// Waits until so many processes of the command run.
    #[track_caller]
    pub(crate) fn enters_with(self, count: usize) -> Self {
        wait_until("all of its processes run", || self.log.processes(self.who) >= count);
        self
    }

    /// Waits until the contender waits for the lock.
    #[track_caller]
    pub(crate) fn waits(self, scene: &Scene) -> Self {
        wait_until("the contender waits", || !scene.server.channels().is_empty());
        self
    }

    pub(crate) fn signal_front(&self, name: &str) {
        signal(self.front(), name);
    }

    pub(crate) fn signal_keeper(&self, name: &str) {
        signal(self.keeper(), name);
    }

    /// Tells the command to end.
    pub(crate) fn stop_working(&self) {
        fs::write(&self.stop, "").expect("a file");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.front.try_wait().expect("a status").is_some()
    }

    /// Waits for the end, and returns the exit code. `None`: a signal ended `lockkeeper` itself.
    #[track_caller]
    pub(crate) fn code(mut self) -> Option<i32> {
        wait_until("lockkeeper ends", || self.has_ended());
        self.front.wait().expect("a status").code()
    }

    /// Tells the command to end, and waits for the end.
    #[track_caller]
    pub(crate) fn finish(self) -> Option<i32> {
        self.stop_working();
        self.code()
    }
}
