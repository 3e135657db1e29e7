//! The command that runs the Java program. The benchmark includes this file, too.

use std::path::Path;
use std::process::Command;

/// `root` is the folder of the whole project. `options` are options of the JVM.
pub fn command(root: &Path, options: &[&str], address: &str) -> Command {
    let built = |part: &str| {
        let path = root.join("tests/interop/target").join(part);
        assert!(
            path.exists(),
            "{} is missing: scripts/test interop and scripts/bench build it",
            path.display()
        );
        path.into_os_string().into_string().expect("a path in UTF-8")
    };
    let mut command = Command::new("java");
    command
        .args(options)
        .arg(format!("-XX:SharedArchiveFile={}", built("classes.jsa")))
        // Nothing is written to /tmp, and only the program writes to the output.
        .args(["-XX:-UsePerfData", "-XX:+DisplayVMOutputToStderr"])
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
        .args(["-cp", &format!("{}:{}/*", built("interop.jar"), built("lib")), "lockkeeper.Main", address]);
    command
}
