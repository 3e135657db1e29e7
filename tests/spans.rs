//! The spans around an acquire and around a hold, and which events are in them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;

use crate::support::child::is_alone;
use crate::support::fixture::{Acquire, Permits, Subject};
use crate::support::{MS, SECOND, Scene, eventually, soon};
use lockkeeper::{LockClient, LockConfig, MultiLock};
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Span, Subscriber, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

// --- a subscriber ------------------------------------------------------------------------------------------------------

/// All spans and events of this process, which runs one test.
static COLLECTED: Mutex<Collected> = Mutex::new(Collected { spans: Vec::new(), events: Vec::new() });

struct Collected {
    spans: Vec<Found>,
    /// The message of each event, and the spans that it is in, from the inside.
    events: Vec<(String, Vec<usize>)>,
}

type Fields = BTreeMap<&'static str, String>;

#[derive(Clone, Debug)]
struct Found {
    name: &'static str,
    fields: Fields,
    parent: Option<usize>,
    is_closed: bool,
}

/// The place of a span in `COLLECTED`: a closed span leaves its id to another one.
struct Place(usize);

struct Collector;

#[derive(Default)]
struct Reader(Fields);

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        assert!(self.0.insert(field.name(), format!("{value:?}")).is_none(), "{field} is recorded twice");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        assert!(self.0.insert(field.name(), value.to_owned()).is_none(), "{field} is recorded twice");
    }
}

fn place<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> usize {
    span.extensions().get::<Place>().expect("each span has a place").0
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut reader = Reader::default();
        attributes.record(&mut reader);
        let span = context.span(id).unwrap();
        let parent = span.parent().as_ref().map(place);
        let mut collected = COLLECTED.lock().unwrap();
        span.extensions_mut().insert(Place(collected.spans.len()));
        collected.spans.push(Found { name: span.name(), fields: reader.0, parent, is_closed: false });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let place = place(&context.span(id).unwrap());
        let mut collected = COLLECTED.lock().unwrap();
        let mut reader = Reader(std::mem::take(&mut collected.spans[place].fields));
        values.record(&mut reader);
        collected.spans[place].fields = reader.0;
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut reader = Reader::default();
        event.record(&mut reader);
        let spans = context.event_scope(event).into_iter().flatten().map(|span| place(&span)).collect();
        COLLECTED.lock().unwrap().events.push((reader.0.remove("message").unwrap_or_default(), spans));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let place = place(&context.span(&id).unwrap());
        COLLECTED.lock().unwrap().spans[place].is_closed = true;
    }
}

/// The spans about the lock with this name, in the order in which they began.
fn spans(of: &str) -> Vec<(usize, Found)> {
    let collected = COLLECTED.lock().unwrap();
    let all = collected.spans.iter().cloned().enumerate();
    all.filter(|(_, span)| span.fields.get("name").is_some_and(|name| name == of)).collect()
}

/// Whether an event with this message is in this span.
fn has_event(span: usize, message: &str) -> bool {
    let collected = COLLECTED.lock().unwrap();
    collected.events.iter().any(|(found, spans)| found == message && spans.contains(&span))
}

/// What a test checks of a span.
#[track_caller]
fn check(span: &Found, name: &str, parent: &str, fields: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = span.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!((span.name, &found[..]), (name, fields));
    let parent_name =
        span.parent.map(|parent| COLLECTED.lock().unwrap().spans[parent].name).unwrap_or_default();
    assert_eq!(parent_name, parent);
}

// --- acquires and holds ------------------------------------------------------------------------------------------------

#[tokio::test]
async fn acquires_and_holds_have_spans() {
    if !is_alone("spans::acquires_and_holds_have_spans") {
        return;
    }
    let subscriber = tracing_subscriber::registry().with(Collector);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let (scene, locks) = Scene::with_client_of(LockConfig::builder().watchdog_lease(SECOND)).await;
    an_acquire_has_a_span_with_its_outcome(&locks).await;
    the_span_of_a_hold_is_beside_that_of_its_acquire(&locks).await;
    a_loss_is_an_event_in_the_span_of_the_hold(&scene, &locks).await;
    scene.end(locks).await;
}

async fn an_acquire_has_a_span_with_its_outcome(locks: &LockClient) {
    let holder = locks.rlock("spans:held").lock().await.unwrap();
    async {
        assert!(locks.rlock("spans:held").try_lock().await.unwrap().is_none());
        assert!(locks.rlock("spans:held").try_lock_for(50 * MS).await.unwrap().is_none());
        assert!(timeout(50 * MS, locks.rlock("spans:held").lock()).await.is_err());
    }
    .instrument(info_span!("caller"))
    .await;
    assert!(locks.rlock("").lock().await.is_err());

    let found: Vec<Found> = spans("spans:held").into_iter().map(|(_, span)| span).collect();
    let [acquired, held, busy, late, cancelled] = &found[..] else { panic!("{found:#?}") };
    let expected =
        |outcome, wait| [("kind", "rlock"), ("name", "spans:held"), ("outcome", outcome), ("wait", wait)];
    check(acquired, "acquire", "", &expected("granted", "forever"));
    check(held, "hold", "", &[("kind", "rlock"), ("name", "spans:held")]);
    check(busy, "acquire", "caller", &expected("busy", "none"));
    check(late, "acquire", "caller", &expected("timed_out", "50"));
    check(cancelled, "acquire", "caller", &expected("cancelled", "forever"));
    assert!([acquired, busy, late, cancelled].iter().all(|span| span.is_closed) && !held.is_closed);
    let unnamed = &spans("")[0].1;
    assert_eq!((unnamed.fields["outcome"].as_str(), unnamed.is_closed), ("error", true));

    holder.unlock().await.unwrap();
    assert!(spans("spans:held")[1].1.is_closed);
}

async fn the_span_of_a_hold_is_beside_that_of_its_acquire(locks: &LockClient) {
    async fn test(mut lock: impl Acquire, name: &str, kind: &str) {
        let lock_and_unlock = async {
            let guard = lock.lock().await.unwrap();
            assert_eq!(
                Span::current().metadata().unwrap().name(),
                "caller",
                "the caller is in no span of the lock"
            );
            let open = spans(name);
            assert!(open[0].1.is_closed && !open[1].1.is_closed, "{open:#?}");
            guard.unlock().await.unwrap();
        };
        lock_and_unlock.instrument(info_span!("caller")).await;
        let found = spans(name);
        let [(acquire, _), (hold, held)] = &found[..] else { panic!("{found:#?}") };
        check(held, "hold", "caller", &[("kind", kind), ("name", name)]);
        assert!(held.is_closed);
        for span in [acquire, hold] {
            assert!(has_event(*span, "running a script"), "the {kind} has its commands outside");
        }
    }
    test(locks.rlock("spans:a"), "spans:a", "rlock").await;
    test(locks.fair_lock("spans:b"), "spans:b", "fair").await;
    test(locks.fenced_lock("spans:c"), "spans:c", "fenced").await;
    test(locks.read_write_lock("spans:d").into_read(), "spans:d", "read").await;
    test(locks.read_write_lock("spans:e").into_write(), "spans:e", "write").await;
    let multi = MultiLock::new([locks.rlock("spans:f"), locks.rlock("spans:g")]).unwrap();
    test(multi, "spans:f, spans:g", "multi").await;

    test(Permits::lock(locks, "spans:h"), "permits of spans:h", "semaphore").await;
    locks.semaphore("permits of spans:h", 1).delete().await.unwrap();

    // The span of a claim has the name of the group, and that of its hold has its own.
    let claims = locks.claims("spans:jobs");
    claims.claim(["spans:i"]).await.unwrap().unwrap().unlock().await.unwrap();
    let [(acquire, acquired)] = &spans("spans:jobs")[..] else { panic!("one claim") };
    let [(_, held)] = &spans("spans:i")[..] else { panic!("one hold") };
    assert!(acquired.fields["kind"] == "claim" && acquired.fields["outcome"] == "granted", "{acquired:?}");
    assert!(held.fields["kind"] == "claim" && held.is_closed && has_event(*acquire, "running a script"));
}

async fn a_loss_is_an_event_in_the_span_of_the_hold(scene: &Scene, locks: &LockClient) {
    let guard = locks.rlock("spans:lost").lock().await.unwrap();
    let hold = spans("spans:lost")[1].0;
    scene.server.run::<()>(&["DEL", "spans:lost"]);
    soon(guard.ended()).await.unwrap_err();
    eventually("the loss is reported", || has_event(hold, "a lock was lost"), |&is_reported| is_reported)
        .await;
    assert!(!spans("spans:lost")[1].1.is_closed, "the guard exists");
    drop(guard);
    eventually("the span ends", || spans("spans:lost")[1].1.is_closed, |&is_closed| is_closed).await;
}
