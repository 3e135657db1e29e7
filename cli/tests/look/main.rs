//! The commands that look at many locks, or at the server: real processes, real servers.

#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod doctor;
mod help;
mod ls;
mod support;
mod verify;
mod watch;
mod why;
