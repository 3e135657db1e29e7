//! Tests of the settings.

use crate::base::config::settings::{HOUR, MS};
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
        .sharded_messages(false)
        .watchdog_thread(false)
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
}

#[test]
fn the_defaults_are_valid_and_those_of_the_table() {
    assert_eq!(LockConfig::builder().build().expect("valid"), LockConfig::default());
    let json = serde_json::to_value(LockConfig::default()).expect("plain data");
    let (text, _) = include_str!("../config.rs").split_once("pub struct LockConfig(").expect("it is there");
    for (field, value) in json.as_object().expect("an object") {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let value = if value.is_empty() { "none".to_owned() } else { format!("`{value}`") };
        assert!(text.contains(&format!("/// | `{field}` | {value} |")), "{field} = {value}");
    }
}

#[test]
fn a_wait_for_replicas_is_shorter_than_the_lease() {
    let timeout = |config: LockConfigBuilder| config.build().expect("valid").sync().map(|sync| sync.timeout);
    let builder = || LockConfig::builder().sync_replicas(1);
    assert_eq!(timeout(LockConfig::builder()), None);
    assert_eq!(timeout(builder()), Some(Duration::from_secs(1)));
    assert_eq!(timeout(builder().command_timeout(200 * MS)), Some(200 * MS));
    assert_eq!(timeout(builder().watchdog_lease(300 * MS)), Some(100 * MS));
}

#[test]
fn every_setting_can_be_read() {
    let config = LockConfig::builder()
        .watchdog_lease(HOUR)
        .safety_poll(10 * MS)
        .fair_allowance(100 * MS)
        .sharing(MS)
        .writer_turn(11 * MS)
        .command_timeout(12 * MS)
        .retry_timeout(13 * MS)
        .start_timeout(14 * MS)
        .sync_replicas(1)
        .connections(2)
        .name_prefix("a:")
        .identity("b")
        .diagnosis(false)
        .sharded_messages(false)
        .watchdog_thread(false)
        .build()
        .expect("valid");
    assert_eq!((config.watchdog_lease(), config.safety_poll()), (HOUR, 10 * MS));
    assert_eq!((config.fair_allowance(), config.sharing()), (100 * MS, MS));
    assert_eq!((config.writer_turn(), config.command_timeout()), (11 * MS, 12 * MS));
    assert_eq!((config.retry_timeout(), config.start_timeout()), (13 * MS, 14 * MS));
    assert_eq!((config.sync_replicas(), config.connections()), (1, 2));
    assert_eq!((config.name_prefix(), config.identity()), ("a:", Some("b")));
    assert_eq!(
        (config.diagnosis(), config.sharded_messages(), config.watchdog_thread()),
        (false, false, false)
    );
    let fields = serde_json::to_value(&config).expect("plain data");
    assert_eq!(fields.as_object().expect("an object").len(), 15, "a setting has a getter, and is read here");
    assert_eq!(config.to_builder().build(), Ok(config));
}

#[test]
fn the_page_about_configuration_says_of_each_setting_when_to_change_it() {
    let page = include_str!("../../../docs/configuration.md");
    let json = serde_json::to_value(LockConfig::default()).expect("plain data");
    for field in json.as_object().expect("an object").keys() {
        let row = |line: &&str| line.starts_with(&format!("| `{field}` |"));
        let rows: Vec<_> = page.lines().filter(row).collect();
        let [row] = rows[..] else { panic!("{field} has {} rows", rows.len()) };
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.len() == 5 && cells[4].len() > 20, "{row}");
    }
}

#[test]
fn an_error_names_the_setting_or_the_line() {
    for (file, said) in [
        (
            "watchdog_lease = '3 bananas'",
            &["line 1", "watchdog_lease", "3 bananas", "expected a duration"][..],
        ),
        (
            "diagnosis = true\nwatchdog_lease = 30",
            &["line 2", "watchdog_lease", "`30`", "expected a duration"],
        ),
        ("connections = 'many'", &["line 1", "connections", "many"]),
        ("sync_replicas = -1", &["line 1", "sync_replicas", "-1"]),
        ("sharded_messages = 'auto'", &["line 1", "sharded_messages", "expected a boolean"]),
        ("sync_timeout = '1s'", &["line 1", "unknown field `sync_timeout`"]),
        ("watchdog_lease = '0s'", &["`watchdog_lease` must be from 100ms to 1day, not 0s"]),
        ("safety_poll = '1ms'", &["`safety_poll` must be from 10ms"]),
        ("sharing = '2s'", &["`sharing` must be from 0s to 1s"]),
        ("writer_turn = '9ms'", &["`writer_turn` must be from 10ms to 1m"]),
        ("writer_turn = '61s'", &["not 1m 1s"]),
        ("command_timeout = '2h'", &["`command_timeout` must be", "to 1m"]),
        ("retry_timeout = '1day'", &["`retry_timeout` must be", "to 1h"]),
        ("sync_replicas = 17", &["`sync_replicas` must be from 0 to 16"]),
        ("connections = 0", &["`connections` must be from 1 to 64"]),
        ("identity = 'a b'", &["`identity` must be", "without spaces"]),
        ("identity = 'ü'", &["`identity` must be", "printable ASCII"]),
    ] {
        let error = toml::from_str::<LockConfig>(file).expect_err(file).to_string();
        assert!(said.iter().all(|said| error.contains(said)), "{file}: {error}");
    }
}
