//! Tests of the settings.

use crate::base::config::durations::{HOUR, MS};
use crate::base::config::*;

fn read(json: &str) -> Result<LockConfig, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[test]
fn a_config_that_was_written_is_read_back() {
    let config = LockConfig::builder()
        .watchdog_lease(Duration::from_millis(1_500))
        .safety_poll(HOUR)
        .sharing(Duration::ZERO)
        .writer_turn(10 * MS)
        .command_timeout(500 * MS)
        .retry_timeout(Duration::ZERO)
        .start_timeout(HOUR)
        .sync_replicas(1)
        .sync_timeout(MS)
        .redisson(
            RedissonSettings::default()
                .lock_watchdog_timeout(HOUR)
                .fair_lock_wait_timeout(HOUR)
                .sharded_subscription_mode(ShardedMessages::Off),
        )
        .connections(3)
        .name_prefix("a:")
        .identity("billing-7")
        .diagnosis(false)
        .build()
        .expect("valid");
    let json = serde_json::to_string(&config).expect("plain data");
    assert!(json.contains(r#""watchdog_lease":"1s 500ms""#), "{json}");
    assert_eq!(read(&json), Ok(config));
    assert_eq!(read("{}"), Ok(LockConfig::default()));
    assert_eq!(read(r#"{"connections": 3}"#), read(r#"{"connections": "3"}"#));
    assert_eq!(read(r#"{"diagnosis": false}"#), read(r#"{"diagnosis": "false"}"#));
}

#[test]
fn the_defaults_are_valid_and_those_of_the_table() {
    assert_eq!(LockConfig::builder().build().expect("valid"), LockConfig::default());
    let json = serde_json::to_value(LockConfig::default()).expect("plain data");
    let (text, _) = include_str!("../config.rs").split_once("pub struct LockConfig(").expect("it is there");
    for (field, value) in json.as_object().expect("an object") {
        if field == "redisson" {
            continue;
        }
        let value = value.as_str().expect("text");
        let value = if value.is_empty() { "none".to_owned() } else { format!("`{value}`") };
        assert!(text.contains(&format!("/// | `{field}` | {value} |")), "{field} = {value}");
    }
}

#[test]
fn sharded_messages_have_three_modes() {
    for (text, mode) in
        [("auto", ShardedMessages::Auto), ("on", ShardedMessages::On), ("off", ShardedMessages::Off)]
    {
        let java = RedissonSettings::default().sharded_subscription_mode(mode);
        let config = LockConfig::builder().redisson(java).build().expect("valid");
        assert_eq!(
            read(&format!(r#"{{"redisson": {{"sharded_subscription_mode": "{text}"}}}}"#)),
            Ok(config)
        );
    }
}

#[test]
fn an_error_names_the_field() {
    for (json, field, detail) in [
        (r#"{"watchdog_lease": "3 bananas"}"#, "watchdog_lease", "3 bananas"),
        (r#"{"watchdog_lease": 30}"#, "watchdog_lease", "`30`"),
        (r#"{"watchdog_lease": "0s"}"#, "watchdog_lease", "from 100ms to 1day"),
        (r#"{"safety_poll": true}"#, "safety_poll", "`true`"),
        (r#"{"safety_poll": "1ms"}"#, "safety_poll", "from 10ms"),
        (r#"{"sharing": "2s"}"#, "sharing", "from 0s to 1s"),
        (r#"{"writer_turn": "9ms"}"#, "writer_turn", "from 10ms to 1m"),
        (r#"{"writer_turn": "61s"}"#, "writer_turn", "not 1m 1s"),
        (r#"{"command_timeout": -1.5}"#, "command_timeout", "`-1.5`"),
        (r#"{"command_timeout": "2h"}"#, "command_timeout", "to 1m"),
        (r#"{"retry_timeout": "1day"}"#, "retry_timeout", "to 1h"),
        (r#"{"sync_replicas": 17}"#, "sync_replicas", "from 0 to 16"),
        (r#"{"sync_replicas": -1}"#, "sync_replicas", "`-1` is not a number"),
        (r#"{"sync_timeout": "0s"}"#, "sync_timeout", "from 1ms"),
        (r#"{"sync_replicas": 1, "sync_timeout": "30s"}"#, "sync_timeout", "shorter than `watchdog_lease`"),
        (r#"{"redisson": {"sharded_subscription_mode": "AUTO"}}"#, "sharded_subscription_mode", "not `AUTO`"),
        (r#"{"redisson": {"sharded_subscription_mode": true}}"#, "redisson", "`auto`, `on` or `off`"),
        (r#"{"redisson": {"lock_watchdog_timeout": "1ms"}}"#, "redisson.lock_watchdog_timeout", "from 100ms"),
        (
            r#"{"redisson": {"fair_lock_wait_timeout": "2 days"}}"#,
            "redisson.fair_lock_wait_timeout",
            "to 1day",
        ),
        (r#"{"redisson": {"timeout": "1s"}}"#, "`timeout`", "unknown field"),
        (r#"{"identity": "a b"}"#, "identity", "without spaces"),
        (r#"{"identity": "ü"}"#, "identity", "printable ASCII"),
        (r#"{"diagnosis": "off"}"#, "diagnosis", "`true` or `false`, not `off`"),
        (r#"{"connections": 0}"#, "connections", "from 1 to 64"),
        (r#"{"connections": "many"}"#, "connections", "`many` is not a number"),
        (r#"{"lease": "1s"}"#, "`lease`", "unknown field"),
    ] {
        let error = read(json).expect_err(json);
        assert!(error.contains(field) && error.contains(detail), "{json}: {error}");
    }
}
