//! A connection for messages, and the task that owns it.
//!
//! Nobody waits for this task. It receives orders, and tells its [`Listener`] what happens. It sends one command at a time,
//! without a pause in receiving messages. Orders that arrive meanwhile go out together in the next command.

use std::collections::BTreeSet;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Fuse, FusedFuture, FutureExt};
use redis::RedisError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::Listener;
use super::pubsub::{Changed, Received, Sink, Stream, connect};
use crate::base::config::LockConfig;
use crate::base::credentials::Login;
use crate::base::jitter::Backoff;
use crate::base::task;
use crate::base::timer::{Elapsed, Instant, sleep, timeout};
use crate::store::connection::{Dial, TopologyLink, wire};
use crate::telemetry::reconnects;
use crate::telemetry::report::Limit;

/// While there is a subscription, the task sends a `PING` this often.
const PING_EVERY: Duration = Duration::from_secs(1);

/// A connection counts as lasting if its first subscription was active for this time.
const LASTING: Duration = Duration::from_secs(1);

/// Pauses between tries to connect.
const RECONNECT: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// Receives the messages of one server. Dropping it ends the task.
pub(super) struct Subscriber {
    orders: UnboundedSender<Order>,
}

/// From now on, somebody wants the messages of a channel, or nobody does.
struct Order {
    channel: Arc<str>,
    is_wanted: bool,
}

impl Subscriber {
    pub(super) fn start(
        dial: Dial,
        address: Arc<str>,
        link: &Arc<TopologyLink>,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> Self {
        let logins = Logins(dial.logins());
        let (orders, task) = Task::new(dial, address, link, config, listener);
        task::spawn(task.run(logins));
        Self { orders }
    }

    pub(super) fn order(&self, channel: &Arc<str>, is_wanted: bool) {
        // The send fails only after the runtime of the task has ended. Then calls return that the runtime is gone.
        // There is no event here, because the callers have mutexes locked.
        let _ = self.orders.send(Order { channel: Arc::clone(channel), is_wanted });
    }
}

struct Task {
    dial: Dial,
    address: Arc<str>,
    link: Arc<TopologyLink>,
    disconnects: Limit,
    listener: Arc<dyn Listener>,
    orders: UnboundedReceiver<Order>,
    /// Channels that somebody wants.
    wanted: BTreeSet<Arc<str>>,
    /// Channels whose subscription perhaps has to change.
    changed: BTreeSet<Arc<str>>,
    /// Channels of a command that the server refused, perhaps because of only one channel. Each is subscribed alone.
    alone: Vec<Arc<str>>,
    /// Channels whose subscription could not change: another server has their slots, or the slots are under way, or the cluster is
    /// down. Soon somebody says where they are. Otherwise this server is asked again with the next `PING`.
    elsewhere: Vec<Arc<str>>,
    command_timeout: Duration,
    /// Starts anew only after a connection with a lasting subscription, and not after each connection: the server can
    /// still refuse the subscription, or something between client and server can end it at once.
    backoff: Backoff,
    /// When the first subscription on this connection succeeded.
    subscribed_at: Option<Instant>,
}

enum End {
    /// The client is gone: there are no more orders.
    Closed,
    /// The connection is gone.
    Broken(String),
    /// The server refuses for now.
    Refused(String),
    /// The connections for commands were made anew. They perhaps lead to another server than this one.
    Moved,
    /// The credentials changed. Subscribers of RESP2 cannot authenticate again.
    NewLogin,
}

enum Done {
    Pinged,
    Subscribed(Changed),
    Unsubscribed(Changed),
}

/// The changes of the credentials, if they can change.
struct Logins(Option<watch::Receiver<Login>>);

type Command = BoxFuture<'static, Result<Result<Done, RedisError>, Elapsed>>;

impl Task {
    fn new(
        dial: Dial,
        address: Arc<str>,
        link: &Arc<TopologyLink>,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> (UnboundedSender<Order>, Self) {
        let (sender, orders) = unbounded_channel();
        let task = Self {
            dial,
            address,
            link: Arc::clone(link),
            disconnects: Limit::default(),
            listener,
            orders,
            wanted: BTreeSet::new(),
            changed: BTreeSet::new(),
            alone: Vec::new(),
            elsewhere: Vec::new(),
            command_timeout: config.command_timeout(),
            backoff: RECONNECT,
            subscribed_at: None,
        };
        (sender, task)
    }

    async fn run(mut self, mut logins: Logins) {
        loop {
            self.changed.clear(); // a new connection subscribes to all that is wanted
            while self.wanted.is_empty() {
                if !self.take_orders().await {
                    return;
                }
            }
            logins.mark_seen(); // the new connection uses the latest credentials
            // Read before the name is looked up: if the generation ends meanwhile, this connection counts as an old
            // one.
            let (generation, reached) = (self.link.generation(), self.link.reached.get());
            let connecting = connect(&self.dial, &self.link);
            let failed = match timeout(self.command_timeout, connecting).await {
                Ok(Ok(connection)) => match self.serve(connection, &mut logins, reached).await {
                    End::Closed => return,
                    End::Broken(reason) => {
                        self.link.ends(generation);
                        reconnects("messages").increment(1);
                        Some(reason)
                    }
                    End::Refused(reason) => {
                        reconnects("messages").increment(1);
                        Some(reason)
                    }
                    End::Moved | End::NewLogin => None,
                },
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("no answer in time".to_owned()),
            };
            self.has_no_messages(self.wanted.clone());
            if self.subscribed_at.take().is_some_and(|at| at.elapsed() >= LASTING) {
                self.backoff = RECONNECT;
            }
            let Some(reason) = failed else { continue };
            if let Some(unreported) = self.disconnects.ask() {
                tracing::info!(
                    reason, server = %self.address, channels = self.wanted.len(), unreported,
                    "no messages, reconnecting"
                );
            }
            let pause = self.backoff.pause();
            if !self.pause(pause, &mut logins).await {
                return;
            }
        }
    }

    /// Uses one connection until it ends. `reached`: the generation of the connections for commands when it was made.
    async fn serve(&mut self, (sink, mut stream): (Sink, Stream), logins: &mut Logins, reached: u64) -> End {
        let link = Arc::clone(&self.link);
        let mut moved = pin!(link.reached.until(|later| later > reached));
        let (mut active, mut leaving) = (BTreeSet::new(), BTreeSet::new());
        self.changed.clone_from(&self.wanted);
        self.alone.clear();
        self.elsewhere.clear();
        let mut command = Fuse::<Command>::terminated();
        let mut ping = pin!(sleep(PING_EVERY));
        loop {
            if command.is_terminated()
                && let Some(next) = self.next_command(&sink, &active, &mut leaving)
            {
                command = next.fuse();
            }
            tokio::select! {
                // Messages are polled last: there may be so many that nothing else would have a turn.
                biased;
                done = &mut command => match done {
                    Ok(Ok(done)) => self.finish(done, &mut active),
                    Ok(Err(error)) if wire::is_broken(&error) => return End::Broken(error.to_string()),
                    Ok(Err(error)) => return End::Refused(error.to_string()),
                    Err(_) => return End::Broken("no answer in time".to_owned()),
                },
                open = self.take_orders() => if !open {
                    return End::Closed;
                },
                () = logins.changed() => return End::NewLogin,
                () = &mut moved => return End::Moved,
                () = &mut ping, if command.is_terminated() && !(active.is_empty() && self.elsewhere.is_empty()) => {
                    ping.as_mut().reset(Instant::now() + PING_EVERY);
                    self.changed.extend(self.elsewhere.drain(..));
                    let mut sink = sink.clone();
                    let pong = async move { sink.ping().await.map(|()| Done::Pinged) };
                    command = timeout(self.command_timeout, pong).boxed().fuse();
                }
                received = stream.next() => match received {
                    Received::Message(channel) => self.listener.message(&channel),
                    // The server ended a subscription that this task did not end, because the slot of the channel
                    // moved. The library perhaps took this message for the reply to a command, so the connection ends.
                    Received::Left(channel) if !leaving.remove(&*channel) => {
                        return End::Broken("a subscription has ended".to_owned());
                    }
                    Received::Left(_) | Received::Other => {}
                    Received::End => return End::Broken("the connection ended".to_owned()),
                },
            }
        }
    }

    /// Returns one SUBSCRIBE or UNSUBSCRIBE for everything that changed since the last one.
    fn next_command(
        &mut self,
        sink: &Sink,
        active: &BTreeSet<Arc<str>>,
        leaving: &mut BTreeSet<Arc<str>>,
    ) -> Option<Command> {
        let mut subscribe = Vec::new();
        let mut unsubscribe = Vec::new();
        for channel in std::mem::take(&mut self.changed) {
            match (self.wanted.contains(&channel), active.contains(&channel)) {
                (true, false) => subscribe.push(channel),
                (false, true) => unsubscribe.push(channel),
                // Somebody wants the channel again before it was unsubscribed, so the subscription was active all the
                // time.
                (true, true) => {
                    leaving.remove(&channel);
                    self.listener.subscribed(&channel);
                }
                (false, false) => {}
            }
        }
        while subscribe.is_empty()
            && let Some(channel) = self.alone.pop()
        {
            subscribe.extend(self.wanted.contains(&channel).then_some(channel));
        }
        let mut sink = sink.clone();
        let run = self.command_timeout;
        if !subscribe.is_empty() {
            self.changed.extend(unsubscribe); // they follow with the next command
            let work = async move { sink.subscribe(subscribe).await.map(Done::Subscribed) };
            return Some(timeout(run, work).boxed());
        }
        if unsubscribe.is_empty() {
            return None;
        }
        if sink.tells_what_it_leaves() {
            leaving.extend(unsubscribe.iter().map(Arc::clone));
        }
        let work = async move { sink.unsubscribe(unsubscribe).await.map(Done::Unsubscribed) };
        Some(timeout(run, work).boxed())
    }

    fn finish(&mut self, done: Done, active: &mut BTreeSet<Arc<str>>) {
        match done {
            Done::Pinged => {}
            Done::Subscribed(Changed { done: channels, refused, elsewhere }) => {
                if !channels.is_empty() {
                    self.subscribed_at.get_or_insert_with(Instant::now);
                }
                self.drain_orders();
                for channel in channels {
                    if self.wanted.contains(&channel) {
                        self.listener.subscribed(&channel);
                    }
                    active.insert(channel); // otherwise nothing would end the subscription
                }
                if !elsewhere.is_empty() {
                    self.link.report();
                    self.has_no_messages(elsewhere.iter().map(Arc::clone).collect());
                    self.elsewhere.extend(elsewhere);
                }
                match refused {
                    Some((channels, error)) if channels.len() == 1 => {
                        let channel = &channels[0];
                        self.has_no_messages(BTreeSet::from([Arc::clone(channel)]));
                        tracing::warn!(%channel, server = %self.address, %error, "the server refuses a subscription: the waiters of this channel poll");
                    }
                    refused => self.alone.extend(refused.into_iter().flat_map(|(channels, _)| channels)),
                }
            }
            Done::Unsubscribed(Changed { done, elsewhere, .. }) => {
                for channel in done {
                    active.remove(&channel);
                }
                self.elsewhere.extend(elsewhere);
            }
        }
    }

    /// Tells the listener that no messages arrive on these channels. In a cluster, slots move: perhaps another
    /// connection was subscribed before.
    fn has_no_messages(&mut self, mut channels: BTreeSet<Arc<str>>) {
        self.drain_orders();
        channels.retain(|channel| self.wanted.contains(channel));
        self.listener.disconnected(&channels);
    }

    /// Takes all orders that there are. A channel that is no longer wanted here is perhaps subscribed on another connection by now.
    fn drain_orders(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            self.take(order);
        }
    }

    /// Waits for orders and takes all that there are. False: there will be no more orders.
    async fn take_orders(&mut self) -> bool {
        let mut orders = Vec::new();
        let open = self.orders.recv_many(&mut orders, 1_024).await > 0;
        orders.into_iter().for_each(|order| self.take(order));
        open
    }

    fn take(&mut self, Order { channel, is_wanted }: Order) {
        if is_wanted {
            self.wanted.insert(Arc::clone(&channel));
        } else {
            self.wanted.remove(&channel);
        }
        self.changed.insert(channel);
    }

    /// Sleeps, and takes orders meanwhile. New credentials end the pause. False: there will be no more
    /// orders.
    async fn pause(&mut self, time: Duration, logins: &mut Logins) -> bool {
        let sleep = sleep(time);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                biased;
                () = &mut sleep => return true,
                () = logins.changed() => return true,
                open = self.take_orders() => if !open {
                    return false;
                },
            }
        }
    }
}

impl Logins {
    fn mark_seen(&mut self) {
        if let Some(logins) = &mut self.0 {
            logins.mark_unchanged();
        }
    }

    /// Waits for a change. Never ends if there can be none.
    async fn changed(&mut self) {
        let is_over = match &mut self.0 {
            Some(logins) => logins.changed().await.is_err(),
            None => true,
        };
        if is_over {
            pending().await
        }
    }
}

#[cfg(test)]
mod tests;
