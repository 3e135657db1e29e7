//! The whole engine, simulated: thousands of worlds with faults, each repeatable by its seed. `scripts/simulate` runs more of them.

#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod bursts;
mod classes;
mod cluster;
mod drawn;
mod edges;
mod extras;
mod faults;
mod leaders;
mod locks;
mod losses;
mod masters;
mod mutants;
mod onlooker;
mod oracle;
mod outage;
mod permits;
mod plan;
mod process_stream;
mod queue;
mod run;
mod sections;
mod seeds;
mod threads;
mod trace;
mod unlocked;
mod waits;
mod worker;
mod world;
