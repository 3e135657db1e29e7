//! The command `lockkeeper`, as a user runs it: real processes, a real server, real signals.

#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod ends;
mod exits;
mod faults;
mod locks;
mod looking;
mod passing;
mod secrets;
mod stopped;
mod support;
mod terminals;
mod top;
