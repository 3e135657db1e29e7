//! Lines of JSON over a pipe.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines};

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

/// Sends one message. False: the other process is gone.
pub(super) async fn send(
    pipe: &mut (impl AsyncWrite + Send + Unpin),
    message: &(impl Serialize + Sync),
) -> bool {
    let Ok(mut line) = serde_json::to_vec(message) else { return false };
    line.push(b'\n');
    pipe.write_all(&line).await.is_ok() && pipe.flush().await.is_ok()
}
