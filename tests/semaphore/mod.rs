//! Semaphores: never more holders than permits, nothing left after a drop, permits of the dead come back, and no waiter is left while
//! permits are free. The guarantees of locks, for permits.

mod endings;
mod faults;
mod holders;
mod passing_on;
mod waiting;

use lockkeeper::{LockClient, Semaphore};

use crate::support::{Scene, eventually};

/// What stays after the last release: the number of available permits.
async fn is_whole(scene: &Scene, semaphore: &Semaphore, total: u32) {
    let number = || scene.server.run::<Option<u32>>(&["GET", semaphore.name()]);
    eventually("all permits are available", number, |number| number.is_none_or(|number| number == total))
        .await;
    assert_eq!(semaphore.available_permits().await.unwrap(), total);
}

/// Removes what stays, and checks that nothing else does.
async fn end(scene: Scene, clients: impl IntoIterator<Item = LockClient>) {
    let clients: Vec<_> = clients.into_iter().collect();
    clients[0].semaphore("a", 1).delete().await.unwrap();
    scene.end(clients).await;
}
