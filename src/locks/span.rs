//! What is seen of an acquire from outside: how it ended, and its span.

use std::fmt;

use tracing::Span;
use tracing::field::Empty;

use crate::base::error::Result;
use crate::engine::WaitLimit;
use crate::locks::guard::LockGuard;
use crate::protocol::LockType;
use crate::telemetry::{Acquired, OfLock};

/// An acquire under way. If it is dropped before it ends, the acquire was cancelled.
pub(crate) struct AcquireSpan {
    kind: LockType,
    limit: WaitLimit,
    metrics: OfLock,
    pub(super) span: Span,
    outcome: Acquired,
}

impl AcquireSpan {
    pub(crate) fn begin((name, kind, metrics): (&str, LockType, &OfLock), limit: WaitLimit) -> Self {
        let span = tracing::debug_span!(
            "acquire",
            name,
            kind = kind.name(),
            wait = %Wait(limit),
            outcome = Empty
        );
        Self { kind, limit, metrics: metrics.clone(), span, outcome: Acquired::Cancelled }
    }

    /// It ended, and the caller is not in its span any more. So the span of the hold has the same parent.
    pub(crate) fn ends<T>(mut self, held: &Result<Option<LockGuard<T>>>) {
        self.outcome = match (held, self.limit) {
            (Ok(Some(_)), _) => Acquired::Granted,
            (Ok(None), WaitLimit::None) => Acquired::Busy,
            (Ok(None), _) => Acquired::TimedOut,
            (Err(_), _) => Acquired::Error,
        };
        if let Ok(Some(held)) = held {
            let kind = self.kind.name();
            held.begins(&tracing::debug_span!("hold", name = held.name(), kind));
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
            WaitLimit::None | WaitLimit::Once => f.write_str("none"),
            WaitLimit::For(wait) => fmt::Display::fmt(&wait.as_millis(), f),
            WaitLimit::Forever | WaitLimit::StandBy => f.write_str("forever"),
        }
    }
}
