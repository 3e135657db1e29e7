//! A server over streams that the application opens.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lockkeeper::{Error, LockClient, Source};
use tokio::net::TcpStream;

use crate::support::{SECOND, Scene, listens, patient, soon};

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
async fn commands_and_messages_take_the_streams_of_the_connector() {
    let (scene, tunnel) = (Scene::start(), Arc::<Tunnel>::default());
    // A message wakes the waiter, or it sleeps on.
    let config = patient().connections(1).safety_poll(3_600 * SECOND).build().unwrap();
    let locks = LockClient::connect_with(tunnel.source(&scene), config).await.unwrap();
    let guard = locks.rlock("a").lock().await.unwrap();
    assert_eq!(tunnel.opened.load(Ordering::Relaxed), 1, "one for commands");
    let waiting = tokio::spawn({
        let mut lock = locks.rlock("a");
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    listens(&scene.server).await;
    assert_eq!(tunnel.opened.load(Ordering::Relaxed), 2, "one for messages");
    guard.unlock().await.unwrap();
    soon(waiting).await.unwrap();

    scene.disconnect().await;
    soon(locks.rlock("a").lock()).await.unwrap().unlock().await.unwrap();
    assert!(tunnel.opened.load(Ordering::Relaxed) > 2, "another one for commands");
    drop(locks);
    scene.end().await;
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
    drop(locks);
    scene.end().await;
}
