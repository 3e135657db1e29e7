//! The connection for messages, and the task that owns it.
//!
//! Nobody waits for this task. It receives orders, and tells its [`Listener`] what happens. It sends one command at a time,
//! without a pause in receiving messages. Orders that arrive meanwhile go out together in the next command.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use redis::RedisError;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, error::Elapsed, interval_at, sleep, timeout};

use super::dial::MessageDial;
use super::listener::Listener;
use crate::config::LockConfig;
use crate::credentials::Login;
use crate::jitter::Backoff;
use crate::report::Limit;
use crate::task;

/// While there is a subscription, the task sends a `PING` this often.
const PING_EVERY: Duration = Duration::from_secs(1);

/// Pauses between tries to connect.
const RECONNECT: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

pub(super) struct Subscriber {
    /// `None`: the server's address is not known, so there are no messages.
    orders: Option<UnboundedSender<Order>>,
}

enum Order {
    Subscribe(Arc<str>),
    Unsubscribe(Arc<str>),
}

impl Subscriber {
    pub(super) fn start(
        dial: Option<MessageDial>,
        address: Arc<str>,
        config: &LockConfig,
        listener: Arc<dyn Listener>,
    ) -> Self {
        let Some(dial) = dial else {
            tracing::warn!("no address for messages: waiters poll");
            return Self { orders: None };
        };
        let (sender, orders) = unbounded_channel();
        let logins = dial.logins();
        let task = Task {
            dial,
            address,
            disconnects: Limit::default(),
            listener,
            orders,
            wanted: BTreeSet::new(),
            changed: BTreeSet::new(),
            alone: Vec::new(),
            command_timeout: config.command_timeout(),
            backoff: RECONNECT,
        };
        task::spawn(task.run(logins));
        Self { orders: Some(sender) }
    }

    pub(super) fn subscribe(&self, channel: &Arc<str>) {
        self.order(Order::Subscribe(Arc::clone(channel)));
    }

    pub(super) fn unsubscribe(&self, channel: &Arc<str>) {
        self.order(Order::Unsubscribe(Arc::clone(channel)));
    }

    fn order(&self, order: Order) {
        // As long as this sender exists, only the end of the task's runtime ends the task. That ends the client, too.
        if let Some(orders) = &self.orders
            && orders.send(order).is_err()
        {
            tracing::error!("no messages: the runtime on which the client was made is gone");
        }
    }
}

struct Task {
    dial: MessageDial,
    address: Arc<str>,
    disconnects: Limit,
    listener: Arc<dyn Listener>,
    orders: UnboundedReceiver<Order>,
    /// Channels that somebody wants.
    wanted: BTreeSet<Arc<str>>,
    /// Channels whose subscription perhaps has to change.
    changed: BTreeSet<Arc<str>>,
    /// Channels of a command that the server refused, perhaps because of only one channel. Each is subscribed alone.
    alone: Vec<Arc<str>>,
    command_timeout: Duration,
    /// Starts anew with each subscription that succeeds, and not with each connection: the server can still refuse the
    /// subscription.
    backoff: Backoff,
}

enum End {
    /// The client is gone: there are no more orders.
    Closed,
    /// The connection is gone.
    Broken(String),
    /// The credentials changed.
    NewLogin,
}

enum Done {
    Pinged,
    /// The server refused a command for these channels, perhaps because of only one channel.
    Refused(Vec<Arc<str>>, RedisError),
    Subscribed(Vec<Arc<str>>),
    Unsubscribed(Vec<Arc<str>>),
}

/// The changes of the credentials, if they can change.
type Logins = Option<watch::Receiver<Login>>;

type Command = BoxFuture<'static, Result<Result<Done, RedisError>, Elapsed>>;

impl Task {
    async fn run(mut self, mut logins: Logins) {
        loop {
            self.changed.clear(); // a new connection subscribes to all that is wanted
            while self.wanted.is_empty() {
                if !self.take_orders().await {
                    return;
                }
            }
            if let Some(logins) = &mut logins {
                logins.mark_unchanged(); // the connection uses the latest
            }
            let reason = match timeout(self.command_timeout, self.dial.connect()).await {
                Ok(Ok(connection)) => {
                    let (sink, stream) = connection.split();
                    let end = self.serve(sink, stream, &mut logins).await;
                    if matches!(end, End::Closed) {
                        return;
                    }
                    self.listener.disconnected();
                    // Subscribers of RESP2 cannot authenticate again.
                    let End::Broken(reason) = end else { continue };
                    reason
                }
                Ok(Err(error)) => error.to_string(),
                Err(elapsed) => elapsed.to_string(),
            };
            if let Some(unreported) = self.disconnects.ask() {
                tracing::info!(
                    reason, server = %self.address, channels = self.wanted.len(), unreported,
                    "no messages, reconnecting"
                );
            }
            let pause = self.backoff.pause();
            if !self.pause(pause).await {
                return;
            }
        }
    }

    /// Uses one connection until it ends.
    async fn serve(&mut self, sink: PubSubSink, mut stream: PubSubStream, logins: &mut Logins) -> End {
        let mut active = BTreeSet::new();
        self.changed.clone_from(&self.wanted);
        self.alone.clear();
        let mut command: Option<Command> = None;
        let mut ping = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if command.is_none() {
                command = self.next_command(&sink, &active);
            }
            tokio::select! {
                // Messages last: there may be so many that nothing else would have a turn.
                biased;
                done = running(&mut command) => match done {
                    Ok(Ok(done)) => self.finish(done, &mut active),
                    Ok(Err(error)) => return End::Broken(error.to_string()),
                    Err(_) => return End::Broken("no answer in time".to_owned()),
                },
                open = self.take_orders() => if !open {
                    return End::Closed;
                },
                () = changed(logins) => return End::NewLogin,
                _ = ping.tick(), if command.is_none() && !active.is_empty() => {
                    let mut sink = sink.clone();
                    let pong = async move { sink.ping::<redis::Value>().await.map(|_| Done::Pinged) };
                    command = Some(timeout(self.command_timeout, pong).boxed());
                }
                message = stream.next() => match message {
                    Some(message) => {
                        self.listener.message(message.get_channel_name());
                    }
                    None => return End::Broken("the connection ended".to_owned()),
                },
            }
        }
    }

    /// Returns one SUBSCRIBE or UNSUBSCRIBE for everything that changed since the last one.
    fn next_command(&mut self, sink: &PubSubSink, active: &BTreeSet<Arc<str>>) -> Option<Command> {
        let mut subscribe = Vec::new();
        let mut unsubscribe = Vec::new();
        for channel in std::mem::take(&mut self.changed) {
            match (self.wanted.contains(&channel), active.contains(&channel)) {
                (true, false) => subscribe.push(channel),
                (false, true) => unsubscribe.push(channel),
                // Somebody wants the channel again before it was unsubscribed, so the subscription was active all the time.
                (true, true) => self.listener.subscribed(&channel),
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
            self.changed.extend(unsubscribe); // next
            let work = async move {
                match sink.subscribe(names(&subscribe)).await {
                    // Other refusals are temporary, such as a busy server. A new connection asks again.
                    Err(error) if error.code() == Some("NOPERM") => Ok(Done::Refused(subscribe, error)),
                    result => result.map(|()| Done::Subscribed(subscribe)),
                }
            };
            return Some(timeout(run, work).boxed());
        }
        if unsubscribe.is_empty() {
            return None;
        }
        let work = async move {
            sink.unsubscribe(names(&unsubscribe)).await?;
            Ok(Done::Unsubscribed(unsubscribe))
        };
        Some(timeout(run, work).boxed())
    }

    fn finish(&mut self, done: Done, active: &mut BTreeSet<Arc<str>>) {
        match done {
            Done::Pinged => {}
            Done::Refused(channels, error) => match &channels[..] {
                [channel] => {
                    tracing::warn!(%channel, server = %self.address, %error, "the server refuses a subscription: the waiters of this channel poll")
                }
                _ => self.alone.extend(channels),
            },
            Done::Subscribed(channels) => {
                self.backoff = RECONNECT;
                for channel in channels {
                    self.listener.subscribed(&channel);
                    active.insert(channel);
                }
            }
            Done::Unsubscribed(channels) => {
                for channel in channels {
                    active.remove(&channel);
                }
            }
        }
    }

    /// Waits for orders and takes all that there are. False: there will be no more orders.
    async fn take_orders(&mut self) -> bool {
        let mut orders = Vec::new();
        let open = self.orders.recv_many(&mut orders, 1_024).await > 0;
        for order in orders {
            let channel = match order {
                Order::Subscribe(channel) => {
                    self.wanted.insert(Arc::clone(&channel));
                    channel
                }
                Order::Unsubscribe(channel) => {
                    self.wanted.remove(&channel);
                    channel
                }
            };
            self.changed.insert(channel);
        }
        open
    }

    /// Sleeps, and takes orders meanwhile. False: there will be no more orders.
    async fn pause(&mut self, time: Duration) -> bool {
        let sleep = sleep(time);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                biased;
                () = &mut sleep => return true,
                open = self.take_orders() => if !open {
                    return false;
                },
            }
        }
    }
}

/// Waits for the end of the command under way. If there is none, waits for ever.
async fn running(command: &mut Option<Command>) -> Result<Result<Done, RedisError>, Elapsed> {
    match command {
        Some(running) => {
            let done = running.await;
            *command = None;
            done
        }
        None => std::future::pending().await,
    }
}

/// Waits for a change. Never ends if there can be none.
async fn changed(logins: &mut Logins) {
    let is_over = match logins {
        Some(logins) => logins.changed().await.is_err(),
        None => true,
    };
    if is_over {
        std::future::pending().await
    }
}

fn names(channels: &[Arc<str>]) -> Vec<&str> {
    channels.iter().map(|channel| &**channel).collect()
}
