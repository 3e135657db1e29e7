//! Sends calls of scripts. `outbox/` says which future sends its own call. The sender of the connection sends the others.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::{unconstrained, yield_now};

use super::{Connection, LEFT, Server, TimeLimit, no_answer};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::limits::limits;
use crate::base::timer::{Instant, timeout_at};
use crate::protocol::{Call, Reply, Script};
use crate::store::connection::clock::Clock;
use crate::store::connection::multiplexed::Multiplexed;
use crate::store::connection::outbox::{self, Entered, Group, Mode, Outbox, Place, Way, grouped};
use crate::store::connection::wire::{self, With};

type Answer = oneshot::Sender<Result<Value, Fault>>;

pub(super) type Waiting = outbox::Waiting<Answer>;

/// The place of a caller in the outbox. If its future is dropped, the call is not sent.
struct OwnPlace(Arc<Place>);

impl Drop for OwnPlace {
    fn drop(&mut self) {
        self.0.takes();
    }
}

impl Server {
    /// Runs a script.
    pub(crate) async fn run(
        self: &Arc<Self>,
        limit: TimeLimit,
        connection: &Connection,
        call: &Call,
    ) -> Result<Reply, Fault> {
        tracing::trace!(script = call.script.file, connection = connection.number(), "running a script");
        let counted = self.link.commands.calls();
        let mut waits = None;
        let entered = connection.open.outbox.enter(|| {
            let (answer, answered) = oneshot::channel();
            let place = Place::new(call.clone());
            waits = Some((OwnPlace(Arc::clone(&place)), answered));
            let way = if connection.is_asking { Way::Asking } else { Way::Together };
            let mode = Mode { way, is_text: false };
            Waiting { place, lock: connection.index.number(), mode, answer }
        });
        let result = match (entered, waits) {
            (Entered::Waits, Some((place, answered))) => {
                self.wait_for_sender(limit, connection, &place, answered).await
            }
            (Entered::Now, _) => {
                let valid_until = self.valid_until(connection, call);
                let with = With { is_asking: connection.is_asking, sync: None, valid_until };
                let is_sharded = self.link.is_sharded();
                let by_hash = async |c: &mut _| wire::evaluate_by_hash(c, call, with, is_sharded).await;
                let by_text = async |c: &mut _| wire::evaluate_by_text(c, call, with, is_sharded).await;
                let result = match self.send(limit, connection, by_hash).await {
                    Ok(Some(value)) => Ok(value),
                    // Boxed: this is rare, and the size of this future would burden every call.
                    Ok(None) => Box::pin(self.send(limit, connection, by_text)).await,
                    Err(fault) => Err(fault),
                };
                if !matches!(&result, Err(fault) if fault.sent != Sent::Refused) {
                    connection.open.outbox.alone_answered();
                }
                result
            }
            _ => {
                let fault = self.unanswered(connection, Sent::No);
                self.discard(connection, "it is no longer used");
                Err(fault)
            }
        };
        let result = result.and_then(|value| wire::reply_to(call, value));
        counted.ends(result.as_ref().map(drop).map_err(|fault| fault.sent));
        result
    }

    /// Waits for the answer to a call that the sender has.
    async fn wait_for_sender(
        self: &Arc<Self>,
        TimeLimit { start, limit }: TimeLimit,
        connection: &Connection,
        OwnPlace(place): &OwnPlace,
        mut answered: oneshot::Receiver<Result<Value, Fault>>,
    ) -> Result<Value, Fault> {
        let answer = timeout_at(start + limit, &mut answered).await;
        let sent = || if place.takes() { Sent::No } else { Sent::Unknown };
        let fault = match answer {
            // From the moment when the server was left, no reply of it counts.
            Ok(_) if self.link.can_switch && self.has_left.get() > 0 => {
                Fault::new(FaultKind::Broken, sent(), LEFT).at(&self.address)
            }
            Ok(Ok(Ok(reply))) => return Ok(reply),
            Ok(Ok(Err(fault))) => fault,
            // The sender dropped the call, or has ended.
            Ok(Err(_)) => self.unanswered(connection, sent()),
            Err(_) => Fault::new(FaultKind::TimedOut, sent(), no_answer(limit)).at(&self.address),
        };
        self.handle(&fault, connection);
        Err(fault)
    }

    /// The fault of a call that the sender did not answer, or that could not enter the outbox.
    fn unanswered(&self, connection: &Connection, sent: Sent) -> Fault {
        let fault = match connection.open.outbox.closed() {
            Some(reason) if sent == Sent::No => {
                let cause = format!("the connection ended before the call was sent: {reason}");
                Fault::new(FaultKind::Broken, sent, cause)
            }
            Some(reason) => Fault::new(FaultKind::Broken, sent, reason),
            None => {
                Fault::new(FaultKind::RuntimeGone, sent, "the runtime on which the client was made is gone")
            }
        };
        fault.at(&self.address)
    }
}

/// Sends the calls that wait in the outbox of a connection.
pub(super) struct Sender {
    /// Weak: the sender ends with its connection, and a connection with its server.
    server: Weak<Server>,
    connection: MultiplexedConnection,
    clock: Arc<Clock>,
    outbox: Arc<Outbox<Waiting>>,
    entered: UnboundedReceiver<Waiting>,
    /// Calls that the server did not run, and that are to be sent in another way, before those in `next`.
    again: Vec<Waiting>,
    next: Vec<Waiting>,
    /// The writes without a reply, in their order.
    writes: VecDeque<Write>,
    /// The scripts of which several calls were sent together.
    loaded: Vec<&'static Script>,
    /// The most writes in flight.
    most: usize,
    /// The most calls in one write. Their callers are answered together, so with more, the first ones would wait for the last ones.
    together: usize,
}

/// A write, with the number of its commands. Replies come in the order of the writes, so only the first one is polled.
struct Write {
    start: Instant,
    commands: usize,
    sending: BoxFuture<'static, Sending>,
}

type Sending = (Vec<Group<Answer>>, RedisResult<Vec<Value>>);

impl Sender {
    pub(super) fn new(
        server: &Arc<Server>,
        connection: &Multiplexed,
        outbox: &Arc<Outbox<Waiting>>,
        entered: UnboundedReceiver<Waiting>,
    ) -> Self {
        Self {
            server: Arc::downgrade(server),
            connection: connection.redis.clone(),
            clock: Arc::clone(&connection.clock),
            outbox: Arc::clone(outbox),
            entered,
            again: Vec::new(),
            next: Vec::new(),
            writes: VecDeque::new(),
            loaded: Vec::new(),
            most: limits().in_flight,
            together: limits().calls,
        }
    }

    /// Runs until the connection is no longer used and all of its writes are answered.
    pub(super) async fn run(mut self) {
        loop {
            let can_send = self.writes.len() < self.most && !self.outbox.is_held();
            let waits = self.again.is_empty() && self.next.is_empty();
            if !can_send || waits {
                tokio::select! {
                    biased;
                    () = self.outbox.stirred.notified() => {}
                    sent = reply(&mut self.writes) => {
                        let write = self.writes.pop_front();
                        self.answer(write, sent);
                    }
                    entered = self.entered.recv_many(&mut self.next, self.together), if can_send => {
                        if entered == 0 {
                            return;
                        }
                    }
                }
            }
            if self.outbox.closed().is_some() {
                // Dropping a call tells its caller.
                self.again.clear();
                self.next.clear();
                while self.entered.try_recv().is_ok() {}
                if self.writes.is_empty() {
                    return;
                }
                continue;
            }
            // Callers that were just answered run first, and enter their next calls. Otherwise the first of these calls
            // would be sent without the others.
            yield_now().await;
            while self.next.len() < self.together
                && let Ok(call) = self.entered.try_recv()
            {
                self.next.push(call);
            }
            self.write().await;
        }
    }

    /// Sends what waits, in one write.
    async fn write(&mut self) {
        if self.writes.len() >= self.most || self.outbox.is_held() {
            return;
        }
        let Some(server) = self.server.upgrade() else { return };
        let waiting = self.again.len() + self.next.len();
        // A call that the server did not run is sent once more. But if its caller has left, an undo is sent or will be,
        // and a copy that runs after the undo would leave a lock.
        let again = self.again.drain(..).filter(|call| !call.answer.is_closed());
        let calls: Vec<_> = again.chain(self.next.drain(..).filter(|call| call.place.takes())).collect();
        if calls.len() < waiting {
            self.outbox.left(waiting - calls.len());
        }
        if calls.is_empty() {
            return;
        }
        let mut groups = grouped(calls, server.separates_slots());
        for group in groups.iter_mut().filter(|group| group.calls.len() > 1) {
            // The first batch of a script is sent with the text, which loads the script. If it were sent by a hash that
            // the server does not know, later calls would overtake it.
            let script = group.calls[0].place.call.script;
            if !self.loaded.iter().any(|known| std::ptr::eq(*known, script)) {
                self.loaded.push(script);
                group.mode.is_text = true;
            }
        }
        let (mut connection, is_sharded) = (self.connection.clone(), server.link.is_sharded());
        let valid_until = self.clock.valid_until(server.command_timeout);
        let (start, commands) = (Instant::now(), groups.len());
        let mut sending: BoxFuture<'static, Sending> = Box::pin(async move {
            let replies = wire::send_groups(&mut connection, &groups, is_sharded, valid_until).await;
            (groups, replies)
        });
        // The first poll hands the write to the connection.
        let first =
            poll_fn(|context| Poll::Ready(Pin::new(&mut unconstrained(sending.as_mut())).poll(context)));
        match first.await {
            Poll::Ready(sent) => self.answer(Some(Write { start, commands, sending }), sent),
            Poll::Pending => self.writes.push_back(Write { start, commands, sending }),
        }
    }

    /// Answers the callers of a write.
    fn answer(&mut self, write: Option<Write>, (groups, replies): Sending) {
        let (Some(server), Some(Write { start, .. })) = (self.server.upgrade(), write) else { return };
        let mut answered = 0;
        match replies {
            Ok(replies) => {
                for (group, reply) in groups.into_iter().zip(replies) {
                    let calls = group.calls.len();
                    let command = server.link.commands.sends(start);
                    let refused = self.answer_group(&server, group, reply);
                    command.ends(if refused == 0 { Ok(()) } else { Err(Sent::Refused) });
                    answered += calls - refused;
                }
            }
            Err(error) => {
                let fault = wire::fault(error).at(&server.address);
                for group in groups {
                    server.link.commands.sends(start).ends(Err(fault.sent));
                    answered += group.calls.len();
                    group.calls.into_iter().for_each(|call| _ = call.answer.send(Err(fault.clone())));
                }
            }
        }
        self.outbox.answered(answered);
    }

    /// Answers the calls of a group, or puts them to those that the server did not run. Returns how many these are.
    fn answer_group(&mut self, server: &Server, Group { mode, calls }: Group<Answer>, reply: Value) -> usize {
        let is_one = calls.len() == 1;
        // An error of the whole reply is extracted here. An error inside a list belongs to one call only.
        let reply =
            if is_one || matches!(reply, Value::ServerError(_)) { reply.extract_error() } else { Ok(reply) };
        let mut again = |calls: Vec<Waiting>, mode| {
            let count = calls.len();
            self.again.extend(calls.into_iter().map(|mut call| {
                call.mode = mode;
                call
            }));
            count
        };
        let replies = match reply {
            Err(error) if wire::is_unknown_script(&error) && !mode.is_text => {
                return again(calls, Mode { is_text: true, ..mode });
            }
            Err(error) if !is_one && wire::is_to_be_divided(&error) => {
                if wire::fault(error).kind == FaultKind::SeveralSlots {
                    server.separate_slots();
                }
                return again(calls, Mode { way: Way::Alone, is_text: false });
            }
            Err(error) => {
                let fault = if is_one { wire::fault(error) } else { wire::fault_of_all(error) };
                vec![Err(fault); calls.len()]
            }
            Ok(reply) if is_one => vec![Ok(reply)],
            Ok(Value::Array(replies)) if replies.len() == calls.len() => {
                replies.into_iter().map(wire::reply_in_batch).collect()
            }
            Ok(other) => vec![Err(Fault::unexpected(&other)); calls.len()],
        };
        for (call, reply) in calls.into_iter().zip(replies) {
            // This fails if the caller has left or its time limit is over.
            let _ = call.answer.send(reply.map_err(|fault| fault.at(&server.address)));
        }
        0
    }
}

impl Drop for Sender {
    /// Counts the commands whose replies nobody will see.
    fn drop(&mut self) {
        let Some(server) = self.server.upgrade() else { return };
        for write in &self.writes {
            (0..write.commands).for_each(|_| drop(server.link.commands.sends(write.start)));
        }
    }
}

/// Waits for the reply to the first write.
async fn reply(writes: &mut VecDeque<Write>) -> Sending {
    match writes.front_mut() {
        Some(write) => write.sending.as_mut().await,
        None => pending().await,
    }
}
