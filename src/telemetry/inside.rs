//! Runs a future inside of a span.

use std::future::poll_fn;
use std::pin::Pin;

use tracing::Span;

/// Polls a future inside of a span. `tracing::Instrument` would also enter it for the drop: a layer that panics there would abort the process.
pub(crate) fn inside<F: Future>(span: &Span, mut future: Pin<&mut F>) -> impl Future<Output = F::Output> {
    poll_fn(move |context| {
        let _inside = span.enter();
        future.as_mut().poll(context)
    })
}
