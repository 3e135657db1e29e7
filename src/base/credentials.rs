//! Credentials that change while a client uses them.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// A user name and a password that the application can change at any time, such as a token that expires.
///
/// A client with such credentials ([`Source::with_credentials`](crate::Source::with_credentials)) uses the latest ones for each
/// new connection. When they change, the client authenticates its open connections again. Locks stay held and waiters continue to
/// wait. All clones are one value, and several sources can share it.
///
/// ```no_run
/// # use std::time::Duration;
/// # use lockkeeper::{Credentials, LockClient, Source};
/// # async fn fetch_token() -> String { String::new() }
/// # async fn demo() -> lockkeeper::Result<()> {
/// let credentials = Credentials::new("app", fetch_token().await);
/// let locks = LockClient::connect(Source::url("rediss://redis.example/").with_credentials(&credentials)).await?;
/// tokio::spawn(async move {
///     loop {
///         tokio::time::sleep(Duration::from_secs(600)).await; // before the token expires
///         credentials.set("app", fetch_token().await);
///     }
/// });
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Credentials(Arc<watch::Sender<Login>>);

/// A user name and a password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    /// Empty: the server's default user.
    pub(crate) user: Arc<str>,
    pub(crate) password: Arc<str>,
}

impl Credentials {
    /// Makes credentials. An empty user name stands for the server's default user.
    ///
    /// ```
    /// # use lockkeeper::Credentials;
    /// let credentials = Credentials::new("app", "first password");
    /// ```
    pub fn new(user: impl AsRef<str>, password: impl AsRef<str>) -> Self {
        Self(Arc::new(watch::Sender::new(Login::new(user.as_ref(), password.as_ref()))))
    }

    /// Changes the credentials for all clients that use them. Never waits: the clients authenticate in the background. If a server
    /// refuses the new credentials, that is an event, and the connection stays as it is.
    ///
    /// ```
    /// # use lockkeeper::Credentials;
    /// let credentials = Credentials::new("app", "first password");
    /// credentials.set("app", "second password");
    /// ```
    pub fn set(&self, user: impl AsRef<str>, password: impl AsRef<str>) {
        self.0.send_replace(Login::new(user.as_ref(), password.as_ref()));
    }

    pub(crate) fn current(&self) -> Login {
        self.0.borrow().clone()
    }

    /// Learns of every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<Login> {
        self.0.subscribe()
    }
}

impl Login {
    fn new(user: &str, password: &str) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    /// Shows the user, and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.0.borrow().user)
    }
}
