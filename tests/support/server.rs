//! Ports, under the names that the tests use.

use lockkeeper_testkit::ReservedPort;

/// Reserves a port on which no server listens.
pub fn free_port() -> ReservedPort {
    ReservedPort::new()
}

pub fn number(port: &ReservedPort) -> u16 {
    port.number()
}
