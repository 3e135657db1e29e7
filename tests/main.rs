//! The tests of the library, as one program: it is compiled and linked once. Beside it stand `simulation/`, and `interop/`, which needs
//! Java.

#![allow(missing_docs, unnameable_types, unreachable_pub, reason = "a test")]

mod support;

mod api;
mod bad_input;
mod clocks;
mod cluster;
mod conformance;
mod credentials;
mod deadlocks;
mod endings;
mod fair;
mod fenced;
mod first_contact;
mod house;
mod identity;
mod interleavings;
mod late_copies;
mod leading;
mod listing;
mod local_queue;
mod lost;
mod memory;
mod memory_server;
mod metrics;
mod moving_name;
mod moving_slots;
mod multi;
mod operations;
mod options;
mod other_data;
mod passing_on;
mod processes;
mod read_write;
mod read_write_model;
mod red;
mod runtimes;
mod script_tables;
mod scripts;
mod self_test;
mod semaphore;
mod sentinel;
mod server_faults;
mod shared_reads;
mod shutdown;
mod spans;
mod streams;
mod sync_replicas;
mod tls;
mod tls_provider;
mod versions;
mod waiting;
mod watchdog;
mod wire;
