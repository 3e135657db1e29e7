//! Sends calls of scripts, alone or with others. `outbox/` decides which.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use redis::Value;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::{Connection, LEFT, Open, Server, TimeLimit, no_answer};
use crate::base::fault::{Fault, FaultKind, Sent};
use crate::base::sync::lock;
use crate::base::task;
use crate::base::timer::timeout_at;
use crate::protocol::{Call, Reply, Script};
use crate::store::connection::connection_index::ConnectionIndex;
use crate::store::connection::outbox::{Entered, Group, Mode, Piece, Ticket, grouped};
use crate::store::connection::wire::{self, With};

/// A call that waits to be sent. Boxed, because it is moved several times.
pub(super) struct Waiting(Box<Waits>);

struct Waits {
    call: Call,
    lock: u32,
    mode: Mode,
    answer: oneshot::Sender<Result<Value, Fault>>,
}

impl Piece for Waiting {
    fn call(&self) -> &Call {
        &self.0.call
    }

    fn lock(&self) -> u32 {
        self.0.lock
    }

    fn mode(&self) -> Mode {
        self.0.mode
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
        let counted = self.commands.calls();
        let mut answer = None;
        let entered = lock(&connection.open.outbox).enter(|| {
            let (sender, receiver) = oneshot::channel();
            answer = Some(receiver);
            let mode = if connection.is_asking { Mode::Asking } else { Mode::Together };
            let lock = connection.index.number();
            Waiting(Box::new(Waits { call: call.clone(), lock, mode, answer: sender }))
        });
        let result = match (entered, answer) {
            (Entered::Waits(ticket), Some(answer)) => {
                // Boxed: a caller that is alone does not wait, and the size of this future would burden every call.
                Box::pin(self.wait_for_others(limit, connection, ticket, answer)).await
            }
            (Entered::Closed, _) => {
                self.discard(connection, "it is no longer used");
                Err(connection.open.closed("it is no longer used"))
            }
            _ => self.send_alone(limit, connection, call).await,
        };
        let result = result.and_then(wire::reply);
        counted.ends(result.as_ref().map(drop).map_err(|fault| fault.sent));
        result
    }

    async fn send_alone(
        self: &Arc<Self>,
        limit: TimeLimit,
        connection: &Connection,
        call: &Call,
    ) -> Result<Value, Fault> {
        let turn = Turn::of(connection);
        let with = With { is_asking: connection.is_asking, sync: None };
        let is_sharded = self.link.is_sharded();
        // `turn` is dropped after `send` has handled a fault. In the other order, waiting calls would follow a call
        // that timed out, on a connection that perhaps no longer works.
        self.send(limit, connection, async |c| {
            turn.during(pin!(wire::evaluate(c, call, with, is_sharded))).await
        })
        .await
    }

    /// Waits for the answer to a call that others send.
    async fn wait_for_others(
        self: &Arc<Self>,
        TimeLimit { start, limit }: TimeLimit,
        connection: &Connection,
        ticket: Ticket,
        mut answer: oneshot::Receiver<Result<Value, Fault>>,
    ) -> Result<Value, Fault> {
        let mut place = Place { open: &connection.open, ticket: Some(ticket) };
        let mut left = self.link.can_switch().then(|| Box::pin(self.has_left.until(|has_left| *has_left)));
        let answered = poll_fn(|context| {
            // `left` is polled before `answer`: from the moment when the server was left, no reply of this server
            // counts.
            let has_left = left.as_mut().is_some_and(|left| left.as_mut().poll(context).is_ready());
            if has_left { Poll::Ready(None) } else { Pin::new(&mut answer).poll(context).map(Some) }
        });
        let (kind, cause) = match timeout_at(start + limit, answered).await {
            Ok(Some(Ok(result))) => {
                place.ticket = None;
                return result;
            }
            Ok(Some(Err(gone))) => (FaultKind::RuntimeGone, gone.to_string()),
            Ok(None) => (FaultKind::Broken, LEFT.to_owned()),
            Err(_) => (FaultKind::TimedOut, no_answer(limit)),
        };
        // The sender has perhaps answered meanwhile that it did not send the call.
        let was_not_sent = |answer: Result<Value, Fault>| answer.is_err_and(|fault| fault.sent == Sent::No);
        let is_unsent = place.end() || answer.try_recv().is_ok_and(was_not_sent);
        let sent = if is_unsent { Sent::No } else { Sent::Unknown };
        let fault = Fault::new(kind, sent, cause).at(&self.address);
        self.handle(&fault, connection);
        Err(fault)
    }

    /// Sends what waits, as long as something waits.
    async fn send_what_waits(self: Arc<Self>, connection: Connection, writing: Writing) {
        let outbox = &connection.open.outbox;
        loop {
            if connection.open.generation != self.link.generation() {
                // A connection of a later generation perhaps leads to another server. The calls that wait here are
                // refused unsent.
                connection.open.close_outbox("another connection broke");
            }
            let mut calls = lock(outbox).take();
            // A call that the server did not run is sent once more. But if its caller has left, an undo is sent or will
            // be, and a copy that runs after the undo would leave a lock.
            calls.retain(|call| !call.0.answer.is_closed());
            let mut is_written = false;
            if !calls.is_empty() {
                let refused = self.send_together(&connection, calls, &mut is_written).await;
                let left_over = lock(outbox).put_back(refused);
                connection.open.answer_closed(left_over, "it broke");
            }
            // Callers that were just answered run first, and enter their next calls. Otherwise the first of these calls
            // would be sent alone.
            yield_now().await;
            let goes_on = {
                let mut outbox = lock(outbox);
                let is_next = !is_written && outbox.written();
                outbox.answered() || is_next
            };
            if !goes_on {
                break writing.ends();
            }
        }
    }

    /// Sends calls in one write, and answers them. Returns those that the server did not run, and that are to be sent in another way.
    async fn send_together(
        self: &Arc<Self>,
        connection: &Connection,
        calls: Vec<Waiting>,
        is_written: &mut bool,
    ) -> Vec<Waiting> {
        let mut groups = grouped(calls, self.link.has_slots() || self.separates_slots());
        for group in groups.iter_mut().filter(|group| group.calls.len() > 1 && group.mode == Mode::Together) {
            // The first batch of a script is sent with the text, which loads the script. If it were sent by a hash that
            // the server does not know, later calls would overtake it.
            if connection.open.is_first_batch_of(group.calls[0].call().script) {
                group.mode = Mode::TogetherAsText;
            }
        }
        let is_sharded = self.link.is_sharded();
        let sent = self.send(self.limit(), connection, async |c| {
            let mut sending = pin!(wire::send_groups(c, &groups, is_sharded));
            // The first poll hands the calls to the connection. After it, the outbox can send the next calls.
            let first = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
            *is_written = true;
            if lock(&connection.open.outbox).written() {
                connection.send_what_waits();
            }
            match first {
                Poll::Ready(result) => result,
                Poll::Pending => sending.await,
            }
        });
        let mut refused = Vec::new();
        match sent.await {
            Ok(replies) => {
                for (group, reply) in groups.into_iter().zip(replies) {
                    self.answer(connection, group, reply, &mut refused);
                }
            }
            Err(fault) => {
                for call in groups.into_iter().flat_map(|group| group.calls) {
                    let _ = call.0.answer.send(Err(fault.clone()));
                }
            }
        }
        refused
    }

    /// Answers the calls of a group, or puts them to those that the server did not run.
    fn answer(
        self: &Arc<Self>,
        connection: &Connection,
        Group { mode, calls }: Group<Waiting>,
        reply: Value,
        refused: &mut Vec<Waiting>,
    ) {
        let mut again = |calls: Vec<Waiting>, mode| {
            let sent_as = |mut call: Waiting| {
                call.0.mode = mode;
                call
            };
            refused.extend(calls.into_iter().map(sent_as));
        };
        let is_one = calls.len() == 1;
        // An error of the whole reply is extracted here. An error inside a list belongs to one call only.
        let reply =
            if is_one || matches!(reply, Value::ServerError(_)) { reply.extract_error() } else { Ok(reply) };
        let fault = match reply {
            Err(error) if wire::is_unknown_script(&error) && !mode.is_text() => {
                return again(calls, mode.as_text());
            }
            Err(error) if !is_one && wire::is_to_be_divided(&error) => {
                if wire::fault(error).kind == FaultKind::SeveralSlots {
                    self.separate_slots();
                }
                return again(calls, Mode::Alone);
            }
            Err(error) if is_one => wire::fault(error),
            Err(error) => wire::fault_of_all(error),
            Ok(reply) => {
                let replies = match reply {
                    reply if is_one => vec![Ok(reply)],
                    Value::Array(replies) if replies.len() == calls.len() => {
                        replies.into_iter().map(wire::reply_in_batch).collect()
                    }
                    other => calls.iter().map(|_| Err(Fault::unexpected(&other))).collect(),
                };
                return calls.into_iter().zip(replies).for_each(|(call, r)| self.tell(connection, call, r));
            }
        };
        for call in calls {
            self.tell(connection, call, Err(fault.clone()));
        }
    }

    fn tell(self: &Arc<Self>, connection: &Connection, call: Waiting, result: Result<Value, Fault>) {
        let result = result.map_err(|fault| fault.at(&self.address));
        if let Err(fault) = &result {
            self.handle(fault, connection);
        }
        // This fails if the caller has left or its time limit is over.
        let _ = call.0.answer.send(result);
    }
}

impl Connection {
    /// Starts a task that sends what waits.
    pub(super) fn send_what_waits(&self) {
        let writing = Writing(Some(Arc::clone(&self.open)));
        // If the server is gone, nobody can send. Then `writing` is dropped, which refuses the calls that wait.
        if let Some(server) = self.open.server.upgrade() {
            let runtime = server.runtime.clone();
            // Boxed, so that starting the task does not copy it twice.
            task::spawn_on(&runtime, Box::pin(server.send_what_waits(self.clone(), writing)));
        }
    }
}

impl Open {
    /// Returns whether this is the first time that several calls of this script are sent together on this connection.
    fn is_first_batch_of(&self, script: &'static Script) -> bool {
        let mut known = lock(&self.loaded);
        let is_first = !known.iter().any(|other| std::ptr::eq(*other, script));
        if is_first {
            known.push(script);
        }
        is_first
    }

    /// Closes the outbox: no call is sent on this connection any more. The calls that wait fail unsent.
    pub(super) fn close_outbox(&self, cause: &'static str) {
        let left_over = lock(&self.outbox).close();
        self.answer_closed(left_over, cause);
    }

    fn answer_closed(&self, calls: Vec<Waiting>, cause: &'static str) {
        for call in calls {
            let _ = call.0.answer.send(Err(self.closed(cause)));
        }
    }

    fn closed(&self, cause: &'static str) -> Fault {
        let cause = format!("the connection ended before the call was sent: {cause}");
        let fault = Fault::new(FaultKind::Broken, Sent::No, cause);
        match self.server.upgrade() {
            Some(server) => fault.at(&server.address),
            None => fault,
        }
    }
}

/// A call waits in the outbox. If its future is dropped, it leaves.
struct Place<'a> {
    open: &'a Open,
    ticket: Option<Ticket>,
}

impl Place<'_> {
    /// Ends the wait. Returns whether the call was not sent.
    fn end(&mut self) -> bool {
        // `call` is dropped after the outbox is unlocked: dropping it can wake its caller.
        let call = self.ticket.take().and_then(|ticket| lock(&self.open.outbox).withdraw(ticket));
        call.is_some()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A task sends the calls that wait. If the task ends early, because the runtime of the client is gone, dropping this
/// value refuses the calls.
struct Writing(Option<Arc<Open>>);

impl Writing {
    fn ends(mut self) {
        self.0 = None;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.close_outbox("the runtime on which the client was made is gone");
        }
    }
}

/// A call that its own future sends. It is in flight until the reply comes, even if nobody polls the future then: the
/// connection wakes the future with the reply, and this waker notices.
struct Turn(Arc<InFlight>);

struct InFlight {
    /// Weak: a connection that nobody uses must be closed, although replies are missing.
    open: Weak<Open>,
    index: ConnectionIndex,
    has_ended: AtomicBool,
    caller: AtomicWaker,
}

impl Turn {
    fn of(connection: &Connection) -> Self {
        Self(Arc::new(InFlight {
            open: Arc::downgrade(&connection.open),
            index: connection.index,
            has_ended: AtomicBool::new(false),
            caller: AtomicWaker::new(),
        }))
    }

    /// Runs a future. When the connection wakes it, the turn ends.
    async fn during<T>(&self, mut future: Pin<&mut impl Future<Output = T>>) -> T {
        let waker = Waker::from(Arc::clone(&self.0));
        poll_fn(|context| {
            self.0.caller.register(context.waker());
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl InFlight {
    fn end(&self) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let Some(open) = self.open.upgrade() else { return };
        let connection = Connection { open, index: self.index, is_asking: false };
        if lock(&connection.open.outbox).answered() {
            connection.send_what_waits();
        }
    }
}

impl Wake for InFlight {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.end();
        self.caller.wake();
    }
}
