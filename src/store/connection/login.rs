//! Authenticating open connections again when the credentials change.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::endpoint::authenticate;
use super::server::Server;
use crate::credentials::Login;
use crate::store::task::Task;

/// Authenticates the connections of a server with each change of the credentials.
pub(crate) fn follow(server: &Arc<Server>, mut logins: watch::Receiver<Login>) -> Task {
    let server: Weak<Server> = Arc::downgrade(server);
    Task::spawn(async move {
        // Fails only when nobody can change the credentials any more.
        while logins.changed().await.is_ok() {
            let login = logins.borrow_and_update().clone();
            let Some(server) = server.upgrade() else { return };
            if let Err(fault) = server.send_to_all(&authenticate(&login)).await {
                tracing::warn!(
                    %fault, server = %server.address(), user = &*login.user,
                    "the server refuses the new credentials, so the connections stay as they are"
                );
            }
        }
    })
}
