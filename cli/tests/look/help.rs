//! The help of these commands.

use super::support::{lockkeeper, shown};

#[test]
fn the_help_fits_a_screen() {
    for (args, words) in [
        (&["--help"][..], "doctor"),
        (&["ls", "--help"], "[ab] one of these"),
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
