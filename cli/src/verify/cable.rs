//! The connection of a worker: a socket that forwards to the server, and can be cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// While it is cut, all connections stay open and no byte passes. When it is joined again, these connections end.
pub(super) struct Cable {
    pub(super) address: SocketAddr,
    is_cut: watch::Sender<bool>,
    forwarding: JoinHandle<()>,
}

impl Cable {
    pub(super) async fn to(server: String) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (is_cut, state) = watch::channel(false);
        let address = listener.local_addr()?;
        let forwarding = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, server.clone(), state.clone()));
            }
        });
        Ok(Self { address, is_cut, forwarding })
    }

    pub(super) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub(super) fn join(&self) {
        self.is_cut.send_replace(false);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.forwarding.abort();
    }
}

async fn forward(mut client: TcpStream, server: String, mut is_cut: watch::Receiver<bool>) {
    let passes = async {
        let mut server = TcpStream::connect(&server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    let mut passes = std::pin::pin!(passes);
    tokio::select! {
        biased;
        () = becomes(&mut is_cut, true) => {}
        _ = &mut passes => return,
    }
    // While the cable is cut, the connections stay open and nobody reads from them.
    becomes(&mut is_cut, false).await;
}

async fn becomes(is_cut: &mut watch::Receiver<bool>, state: bool) {
    let _ = is_cut.wait_for(|is_cut| *is_cut == state).await;
}
