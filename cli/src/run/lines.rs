//! Lines of JSON over a pipe.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The end that reads.
pub(super) struct Reader<R, M>(Lines<BufReader<R>>, PhantomData<M>);

impl<R: AsyncRead + Unpin, M: DeserializeOwned> Reader<R, M> {
    pub(super) fn new(pipe: R) -> Self {
        Self(BufReader::new(pipe).lines(), PhantomData)
    }

    /// Waits for the next message. `None`: the other process is gone. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Option<M> {
        let line = self.0.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }
}

/// The end that writes. It never waits: a task of its own does, while the other process is stopped and the pipe is full.
pub(super) struct Writer<M> {
    messages: UnboundedSender<M>,
    task: JoinHandle<()>,
}

impl<M: Serialize + Send + Sync + 'static> Writer<M> {
    pub(super) fn new(mut pipe: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let (messages, mut queue) = unbounded_channel::<M>();
        let task = tokio::spawn(async move {
            while let Some(message) = queue.recv().await {
                let Ok(mut line) = serde_json::to_vec(&message) else { return };
                line.push(b'\n');
                if pipe.write_all(&line).await.is_err() || pipe.flush().await.is_err() {
                    return;
                }
            }
        });
        Self { messages, task }
    }

    /// That the other process is gone is no error here: the reader notices.
    pub(super) fn send(&self, message: M) {
        let _ = self.messages.send(message);
    }

    /// Waits until everything is written, or the other process is gone.
    pub(super) async fn finish(self) {
        drop(self.messages);
        let _ = self.task.await;
    }
}
