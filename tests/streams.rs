//! A server over streams that the application opens.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockkeeper::{Error, LockClient, Source};
use tokio::io::{AsyncReadExt, DuplexStream, copy_bidirectional, duplex};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::{SECOND, Scene, eventually, patient, soon};

/// Opens streams to a server, counts them, and fails or panics on demand.
#[derive(Default)]
struct Tunnel {
    opened: AtomicUsize,
    is_down: AtomicBool,
    panics: AtomicBool,
}

impl Tunnel {
    fn source(self: &Arc<Self>, scene: &Scene) -> Source {
        let (tunnel, port) = (Arc::clone(self), scene.server.port());
        Source::stream(move || {
            let tunnel = Arc::clone(&tunnel);
            async move {
                assert!(!tunnel.panics.load(Ordering::Relaxed), "as the test wants");
                if tunnel.is_down.load(Ordering::Relaxed) {
                    return Err(io::Error::other("the tunnel is down"));
                }
                tunnel.opened.fetch_add(1, Ordering::Relaxed);
                TcpStream::connect(("127.0.0.1", port)).await
            }
        })
    }
}

#[tokio::test]
async fn a_connector_that_fails_is_an_unreachable_server() {
    let (scene, tunnel) = (Scene::start(), Arc::<Tunnel>::default());
    let config = patient().retry_timeout(SECOND).build().unwrap();
    let locks = LockClient::connect_with(tunnel.source(&scene), config).await.unwrap();
    for (fault, text) in [(&tunnel.is_down, "the tunnel is down"), (&tunnel.panics, "the connector panicked")]
    {
        fault.store(true, Ordering::Relaxed);
        scene.disconnect().await;
        let error = soon(locks.rlock("a").lock()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert!(error.is_transient() && error.to_string().contains(text), "{error}");
        assert!(error.to_string().contains("the server of a stream"), "{error}");
        fault.store(false, Ordering::Relaxed);
        locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    }
    scene.end(locks).await;
}

/// Otherwise the connection could deliver its command after everybody relied on it that no copy is left.
#[tokio::test]
async fn a_connection_that_is_replaced_is_closed_although_replies_are_missing() {
    const FITS: usize = 64; // less than a command
    let (scene, stall) = (Scene::start(), watch::Sender::new(()));
    let stalled = Arc::<Mutex<Vec<DuplexStream>>>::default();
    let (port, stalls, ends) = (scene.server.port(), stall.clone(), Arc::clone(&stalled));
    let source = Source::stream(move || {
        let (near, mut far) = duplex(FITS);
        let (mut stalls, ends) = (stalls.subscribe(), Arc::clone(&ends));
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut far, &mut server) => {}
                _ = stalls.changed() => ends.lock().unwrap().push(far),
            }
        });
        async { io::Result::Ok(near) }
    });
    let config = patient().connections(1).command_timeout(SECOND).build().unwrap();
    let locks = LockClient::connect_with(source, config).await.unwrap();
    locks.rlock("a").lock().await.unwrap().unlock().await.unwrap();
    stall.send_replace(());
    eventually("nobody reads", || stalled.lock().unwrap().len(), |&len| len == 1).await;
    soon(locks.rlock("a").lock()).await.unwrap().unlock().await.unwrap();

    let mut far = stalled.lock().unwrap().pop().unwrap();
    let mut unread = Vec::new();
    timeout(SECOND, far.read_to_end(&mut unread)).await.expect("it is closed").unwrap();
    // Reading makes room for the rest of the command, if somebody still wants to write it.
    assert_eq!(unread.len(), FITS, "{:?}", String::from_utf8_lossy(&unread));
    locks.shutdown().await.unwrap();
    scene.end(locks).await;
}
