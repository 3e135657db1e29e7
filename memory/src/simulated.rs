//! What only simulations do to a server and its network.

use std::sync::Arc;
use std::time::Duration;

use crate::history::History;
use crate::link::{Link, Network};
use crate::server::MemoryServer;
use crate::sync::lock;

impl MemoryServer {
    /// The same server, over a network of its own. `hold`, `cut` and `set_network` change only that.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// let server = MemoryServer::new();
    /// server.over_network(1).cut();
    /// ```
    #[doc(hidden)]
    pub fn over_network(&self, seed: u64) -> Self {
        Self { shared: Arc::clone(&self.shared), link: Arc::new(Link::new(seed)) }
    }

    /// Changes the network.
    ///
    /// ```
    /// # use lockkeeper_memory::{MemoryServer, Network};
    /// MemoryServer::new().set_network(Network { refuses: true, ..Network::default() });
    /// ```
    #[doc(hidden)]
    pub fn set_network(&self, network: Network) {
        let last = lock(&self.shared.state).last_client();
        self.link.set(network, last);
    }

    /// Closes all connections. What clients sent before still arrives.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().cut_after_delivery();
    /// ```
    #[doc(hidden)]
    pub fn cut_after_delivery(&self) {
        self.link.cut(true);
    }

    /// Closes all connections that have subscribed to channels.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().cut_messages();
    /// ```
    #[doc(hidden)]
    pub fn cut_messages(&self) {
        self.link.cut_messages();
    }

    /// Has so many connections at most from now on, as with the setting `maxclients`. Those that exist stay.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().limit_clients(Some(0));
    /// ```
    #[doc(hidden)]
    pub fn limit_clients(&self, most: Option<usize>) {
        lock(&self.shared.state).most_clients = most;
    }

    /// The number of connections.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// assert_eq!(MemoryServer::new().clients(), 0);
    /// ```
    #[doc(hidden)]
    #[must_use]
    pub fn clients(&self) -> usize {
        lock(&self.shared.state).data.clients.len()
    }

    /// Lets each command take up to this long.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().slow_down(Duration::from_millis(20));
    /// ```
    #[doc(hidden)]
    pub fn slow_down(&self, most: Duration) {
        self.change(|conditions| conditions.slowness = most);
    }

    /// Sets the server's clock forward by these seconds, or back if they are negative.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper_memory::MemoryServer;
    /// let server = MemoryServer::simulated(Duration::from_secs(1_700_000_000), 1);
    /// server.step_clock(-1_000);
    /// assert!(String::from_utf8_lossy(&server.execute(&["TIME"])).contains("1699999000"));
    /// ```
    #[doc(hidden)]
    pub fn step_clock(&self, seconds: i64) {
        lock(&self.shared.state).step_clock(seconds);
    }

    /// Takes the memory away, or gives it back.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().fill(true);
    /// ```
    #[doc(hidden)]
    pub fn fill(&self, is_full: bool) {
        lock(&self.shared.state).scripts.is_full = is_full;
    }

    /// Refuses `HELLO 3` from now on, as an older server.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().lack_version_3(true);
    /// ```
    #[doc(hidden)]
    pub fn lack_version_3(&self, lacks: bool) {
        lock(&self.shared.state).data.lacks_version_3 = lacks;
    }

    /// Refuses `CLIENT TRACKING` from now on, as to a user who may not send it.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().deny_tracking(true);
    /// ```
    #[doc(hidden)]
    pub fn deny_tracking(&self, denies: bool) {
        lock(&self.shared.state).data.denies_tracking = denies;
    }

    /// Keeps earlier states, for [`start_as_of`](Self::start_as_of).
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().keep_history();
    /// ```
    #[doc(hidden)]
    pub fn keep_history(&self) {
        lock(&self.shared.state).history = Some(History::default());
    }

    /// Starts the server with its data of a while ago, up to 2 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockkeeper_memory::MemoryServer;
    /// let server = MemoryServer::new();
    /// server.keep_history();
    /// server.start_as_of(Duration::from_secs(1));
    /// ```
    #[doc(hidden)]
    pub fn start_as_of(&self, age: Duration) {
        self.restart(|state| {
            state.update_time();
            let (history, keyspace) = (&mut state.history, &mut state.data.keyspace);
            history.get_or_insert_default().return_to(age, keyspace);
        });
    }

    /// Shows each command of a connection and the reply. The observer can ask the server.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().observe(|connection, words, reply, ask| drop(ask(&["TIME"])));
    /// ```
    #[doc(hidden)]
    pub fn observe(
        &self,
        observer: impl FnMut(u64, &[Arc<[u8]>], &[u8], &mut dyn FnMut(&[&str]) -> Vec<u8>) + Send + 'static,
    ) {
        lock(&self.shared.state).observer = Some(Box::new(observer));
    }

    /// Replaces a text in the scripts that the server runs.
    ///
    /// ```
    /// # use lockkeeper_memory::MemoryServer;
    /// MemoryServer::new().replace_in_scripts("return nil", "return 0");
    /// ```
    #[doc(hidden)]
    pub fn replace_in_scripts(&self, find: &str, replace: &str) {
        lock(&self.shared.state).scripts.replacements.push((find.to_owned(), replace.to_owned()));
    }
}
