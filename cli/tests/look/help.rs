//! The help of these commands.

use super::support::{lockkeeper, shown};

#[test]
fn the_help_fits_a_screen() {
    for (args, words) in [
        (&["--help"][..], "doctor"),
        (&["ls", "-h"], "[ab] one of these"),
        (&["watch", "-h"], "[ab] one of these"),
        (&["doctor", "-h"], "2   errors"),
        (&["verify", "-h"], "1   a violation"),
    ] {
        let help = shown(lockkeeper(args).env("COLUMNS", "80"));
        assert!(help.lines().count() <= 24, "{args:?}:\n{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{args:?}:\n{help}");
        assert!(help.contains(words), "{args:?}:\n{help}");
    }
}

/// `cli/README.md` says that the help lists them.
#[test]
fn the_long_help_lists_the_fields_of_json() {
    for (command, fields) in [
        ("ls", "name kind holders permits expires_in_ms queued listeners"),
        ("ls", "owner client holds expires_in_ms identity is_connected held_for_ms acquired_at"),
        ("why", "is_deadlock links lock holder waits_for client_waits age_ms at"),
        ("watch", "at name change lock"),
        ("doctor", "check level server text advice ignored"),
        ("release", "name was_held"),
        ("resize", "name permits before"),
        ("run", "lock waited_at from to outcome holders_seen"),
    ] {
        let help = shown(&mut lockkeeper(&[command, "--help"]));
        let words: Vec<&str> =
            help.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
        for field in fields.split(' ') {
            assert!(words.contains(&field), "{command} --help lacks {field}:\n{help}");
        }
    }
}
