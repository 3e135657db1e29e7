//! What is seen of an acquire from outside: how it ended, and its span.

use std::fmt;

use tracing::Span;
use tracing::field::Empty;

use crate::base::error::Result;
use crate::engine::{Handle, HeldLock, WaitLimit};
use crate::telemetry::{Acquired, OfLock};

/// An acquire under way. If it is dropped before it ends, the acquire was cancelled.
pub(crate) struct AcquireSpan {
    metrics: OfLock,
    span: Span,
    outcome: Acquired,
}

impl AcquireSpan {
    pub(crate) fn begin(handle: &Handle, limit: WaitLimit) -> Self {
        let span = tracing::debug_span!(
            "acquire",
            name = &**handle.name(),
            kind = handle.lock_type.name(),
            wait = %Wait(limit),
            outcome = Empty
        );
        Self { metrics: handle.metrics.clone(), span, outcome: Acquired::Cancelled }
    }

    pub(crate) const fn span(&self) -> &Span {
        &self.span
    }

    /// It ended, and the caller is not in its span any more. So the span of the hold has the same parent.
    pub(crate) fn ends(mut self, handle: &Handle, limit: WaitLimit, held: &Result<Option<HeldLock>>) {
        self.outcome = match (held, limit) {
            (Ok(Some(_)), _) => Acquired::Granted,
            (Ok(None), WaitLimit::None) => Acquired::Busy,
            (Ok(None), _) => Acquired::TimedOut,
            (Err(_), _) => Acquired::Error,
        };
        if let Ok(Some(held)) = held {
            let kind = handle.lock_type.name();
            held.begins(tracing::debug_span!("hold", name = held.name(), kind));
        }
    }
}

impl Drop for AcquireSpan {
    fn drop(&mut self) {
        self.metrics.acquired(self.outcome);
        // Recording into a disabled span would still look up the field.
        if !self.span.is_disabled() {
            self.span.record("outcome", self.outcome.label());
        }
    }
}

/// For how long a call waits: milliseconds, or a word.
struct Wait(WaitLimit);

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            WaitLimit::None => f.write_str("none"),
            WaitLimit::For(wait) => fmt::Display::fmt(&wait.as_millis(), f),
            WaitLimit::Forever | WaitLimit::StandBy => f.write_str("forever"),
        }
    }
}
