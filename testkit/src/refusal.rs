//! Servers that refuse a new client.

use std::net::UdpSocket;

use crate::{Certificates, Server};

/// A server, and a URL that leads to it and that it refuses.
#[derive(Debug)]
pub struct Refusal {
    /// The URL.
    pub url: String,
    /// The server.
    pub server: Server,
    /// What it needs to go on refusing.
    _kept: Option<Kept>,
}

#[derive(Debug)]
enum Kept {
    Certificates { _files: Certificates },
    Client { _connection: Connection },
    Master { _server: Box<Server> },
}

struct Connection(#[expect(dead_code, reason = "it is open")] redis::Connection);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Refusal {
    /// It is in protected mode, and the client comes from another address than 127.0.0.1.
    pub fn protected() -> Self {
        let outside = outer_address();
        let server = Server::with(&["--bind", "127.0.0.1", &outside]);
        let url = format!("redis://{outside}:{}/", server.port());
        Self { url, server, _kept: None }
    }

    /// It has as many clients as it takes.
    pub fn full() -> Self {
        let server = Server::start();
        let mut first = server.connect().expect("a connection");
        let set = ["CONFIG", "SET", "maxclients", "1"];
        redis::cmd(set[0]).arg(&set[1..]).exec(&mut first).expect("a limit");
        Self { url: server.url(), server, _kept: Some(Kept::Client { _connection: Connection(first) }) }
    }

    /// The client speaks TLS, and the port does not.
    pub fn without_tls() -> Self {
        let server = Server::start();
        Self { url: server.url().replace("redis://", "rediss://"), server, _kept: None }
    }

    /// The port speaks TLS, and the client does not.
    pub fn with_tls() -> Self {
        let files = Certificates::new();
        let server = Server::secured(&files, false, &[]);
        let url = server.url().replace("rediss://", "redis://");
        Self { url, server, _kept: Some(Kept::Certificates { _files: files }) }
    }

    /// It wants a password.
    pub fn with_password() -> Self {
        let server = Server::start();
        server.run::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
        Self { url: server.url(), server, _kept: None }
    }

    /// An authority that the client does not know signed its certificate.
    pub fn with_private_authority() -> Self {
        let files = Certificates::new();
        let server = Server::secured(&files, false, &[]);
        Self { url: server.url(), server, _kept: Some(Kept::Certificates { _files: files }) }
    }

    /// Its certificate is that of an authority, as `openssl req -x509` makes it.
    pub fn with_certificate_of_authority() -> Self {
        let files = Certificates::new();
        let [certificate, key] = ["ca.crt", "ca.key"].map(|file| files.text_path(file));
        let own = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
        let server = Server::secured(&files, false, &own);
        Self { url: server.url(), server, _kept: Some(Kept::Certificates { _files: files }) }
    }

    /// It is a replica.
    pub fn replica() -> Self {
        let master = Server::start();
        let server = Server::with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
        Self { url: server.url(), server, _kept: Some(Kept::Master { _server: Box::new(master) }) }
    }
}

/// An address of this machine beside 127.0.0.1. Nothing is sent.
fn outer_address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let found = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    found.expect("this machine has an address beside 127.0.0.1").ip().to_string()
}
