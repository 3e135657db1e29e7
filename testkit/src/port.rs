//! Ports that no other process is given.

use tokio::net::TcpSocket;

/// A free port of the loopback address, reserved as long as this value lives.
///
/// The port is bound to a socket that does not listen. So the system gives the port to no other process, and a server
/// can listen on the port, even again after it was killed.
#[derive(Debug)]
pub struct ReservedPort(TcpSocket);

impl ReservedPort {
    /// Reserves a free port.
    #[expect(clippy::new_without_default, reason = "each call reserves another port")]
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("a socket with the option SO_REUSEADDR");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        Self(socket)
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.0.local_addr().expect("a bound socket").port()
    }
}
