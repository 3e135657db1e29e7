//! What `INFO commandstats` says about commands.

/// Commands that only clients send, and no script of lockkeeper.
const NOT_IN_SCRIPTS: [&str; 10] =
    ["client", "config", "eval", "evalsha", "hello", "info", "ping", "pubsub", "subscribe", "unsubscribe"];

/// The answer of a server to `INFO commandstats`.
pub(crate) struct CommandStats(pub(crate) String);

impl CommandStats {
    /// A number of a command, such as `"calls"` or `"usec"`. A command that was never called has 0.
    pub(crate) fn of(&self, command: &str, what: &str) -> u64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let part = |line: &str| -> Option<u64> {
            line.split(',').find_map(|part| part.strip_prefix(&format!("{what}=")))?.parse().ok()
        };
        line.and_then(part).unwrap_or(0)
    }

    /// Scripts that ran, without the calls that failed because the server did not know the script.
    pub(crate) fn scripts(&self) -> u64 {
        self.of("eval", "calls") + self.of("evalsha", "calls") - self.of("evalsha", "failed_calls")
    }

    /// Commands that scripts ran.
    pub(crate) fn in_scripts(&self) -> u64 {
        let calls = |line: &str| -> Option<u64> {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let is_outside = NOT_IN_SCRIPTS.contains(&command.split('|').next()?);
            if is_outside { None } else { rest.split(',').next()?.parse().ok() }
        };
        self.0.lines().filter_map(calls).sum()
    }
}

#[test]
fn command_stats_are_read() {
    let stats = CommandStats(
        "# Commandstats\r\n\
         cmdstat_evalsha:calls=5,usec=70,usec_per_call=14.00,rejected_calls=0,failed_calls=2\r\n\
         cmdstat_eval:calls=1,usec=9,usec_per_call=9.00,rejected_calls=0,failed_calls=0\r\n\
         cmdstat_config|get:calls=4,usec=8,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r\n\
         cmdstat_hset:calls=3,usec=6,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r\n"
            .to_owned(),
    );
    assert_eq!(stats.of("evalsha", "usec"), 70);
    assert_eq!(stats.of("evalsha", "failed_calls"), 2);
    assert_eq!(stats.of("publish", "calls"), 0);
    assert_eq!(stats.scripts(), 4);
    assert_eq!(stats.in_scripts(), 3);
}
