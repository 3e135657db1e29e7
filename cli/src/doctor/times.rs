//! How long a round trip takes, and how fast the server's clock runs.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper::{LockClient, Result};
use tokio::time::{Instant, sleep};

use super::finding::Finding;

const ROUND_TRIPS: usize = 200;

/// After this time, fewer round trips have to do.
const ENOUGH: Duration = Duration::from_secs(3);

/// Between two looks at a clock.
const SPAN: Duration = Duration::from_secs(1);

/// How often a clock is looked at until the answer is certain.
const LOOKS: u32 = 5;

/// Some answers are delayed. The quickest of so many counts.
const ANSWERS: usize = 3;

/// What a clock may differ, in percent.
const TOLERANCE: f64 = 1.0;

/// Round trips, sorted by their time. `name`: a lock that nobody uses.
pub(super) async fn round_trips(locks: &LockClient, name: &str) -> Result<Vec<Duration>> {
    let lock = locks.rlock(name);
    lock.is_locked().await?; // connects, so the first measured call does not
    let (start, mut times) = (Instant::now(), Vec::with_capacity(ROUND_TRIPS));
    while times.len() < ROUND_TRIPS && start.elapsed() < ENOUGH {
        let sent = Instant::now();
        lock.is_locked().await?;
        times.push(sent.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

/// So many percent of the round trips were not longer than this.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

/// `limit`: after which time a command counts as failed.
pub(super) fn judge_round_trips(sorted: &[Duration], limit: Duration) -> Finding {
    const CHECK: &str = "round-trip";
    let (half, most) = (percentile(sorted, 50), percentile(sorted, 99));
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let text = format!("p50 {:.1} ms, p99 {:.1} ms of {}", ms(half), ms(most), sorted.len());
    if most < limit / 2 {
        return Finding::ok(CHECK, text);
    }
    let text = format!("{text}: commands will time out after {} ms, and be retried", limit.as_millis());
    Finding::warning(
        CHECK,
        text,
        "look at the network and the load of the server, or set a longer `command_timeout`",
    )
}

/// What the clock of a server showed at some time between `asked` and `answered`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    asked: Instant,
    answered: Instant,
    shown: Duration,
}

/// What the clocks of all masters showed. `None`: a server does not tell.
type Sights = Vec<(String, Option<Sight>)>;

/// Compares the clock of each master with the one of this computer.
pub(super) async fn clocks(locks: &LockClient) -> Result<Vec<Finding>> {
    let first = sights(locks).await?;
    let mut looks = 0;
    loop {
        sleep(SPAN).await;
        looks += 1;
        let compared = compare(&first, &sights(locks).await?);
        let is_certain = compared.iter().all(|(_, found)| found.is_some());
        if is_certain || looks == LOOKS {
            let uncertain = || {
                let text = "the answers of the server are too uneven to judge its clock";
                Finding::unknown("clock", text, "run this again when the server is less busy")
            };
            return Ok(compared
                .into_iter()
                .map(|(server, found)| found.unwrap_or_else(uncertain).at(&server))
                .collect());
        }
    }
}

async fn sights(locks: &LockClient) -> Result<Sights> {
    let mut best: Option<(Duration, Sights)> = None;
    for _ in 0..ANSWERS {
        let asked = Instant::now();
        let servers = locks.servers().await?;
        let answered = Instant::now();
        let took = answered - asked;
        if best.as_ref().is_none_or(|(least, _)| took < *least) {
            let sight = |(address, facts): (String, BTreeMap<String, String>)| {
                let shown = facts.get("server_time_usec").and_then(|shown| shown.parse().ok());
                (address, shown.map(|shown| Sight { asked, answered, shown: Duration::from_micros(shown) }))
            };
            best = Some((took, servers.into_iter().map(sight).collect()));
        }
    }
    Ok(best.map(|(_, sights)| sights).unwrap_or_default())
}

fn compare(first: &Sights, last: &Sights) -> Vec<(String, Option<Finding>)> {
    let of_one = |(server, last): &(String, Option<Sight>)| {
        let first = first.iter().find(|(other, _)| other == server).and_then(|(_, first)| *first);
        let found = match (first, last) {
            (Some(first), Some(last)) => judge_clock(first, *last),
            _ => Some(Finding::unknown(
                "clock",
                "the server does not tell its time",
                "look at the server's clock",
            )),
        };
        (server.clone(), found)
    };
    last.iter().map(of_one).collect()
}

/// `None`: the answers took too long to tell.
fn judge_clock(first: Sight, last: Sight) -> Option<Finding> {
    const CHECK: &str = "clock";
    const ADVICE: &str = "repair the clock of the server: it must not be set while locks are held";
    let least = last.asked.saturating_duration_since(first.answered).as_secs_f64();
    let most = last.answered.saturating_duration_since(first.asked).as_secs_f64();
    let shown = last.shown.as_secs_f64() - first.shown.as_secs_f64();
    let percent = |of: f64| 100.0 * (shown - of) / of;
    if percent(most) > TOLERANCE {
        let text = format!(
            "the server's clock runs at least {:.1} % faster than ours: leases end early, so two owners can hold a lock",
            percent(most)
        );
        return Some(Finding::error(CHECK, text, ADVICE));
    }
    if percent(least) < -TOLERANCE {
        let text = format!(
            "the server's clock runs at least {:.1} % slower than ours: the locks of dead holders end late",
            -percent(least)
        );
        return Some(Finding::error(CHECK, text, ADVICE));
    }
    let is_certain = percent(least) - percent(most) < 2.0 * TOLERANCE;
    is_certain.then(|| Finding::ok(CHECK, format!("runs like ours, to {TOLERANCE} %")))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level::{Error, Ok, Warning};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<Duration> = (1..=200).map(|ms| ms * MS).collect();
        assert_eq!([percentile(&times, 50), percentile(&times, 99)], [100 * MS, 198 * MS]);
        assert_eq!(percentile(&[], 99), Duration::ZERO);
        assert_eq!(percentile(&[MS], 50), MS);
    }

    #[test]
    fn round_trips_near_the_time_limit_are_a_warning() {
        let times =
            |ms: u32| -> Vec<Duration> { (0..200).map(|at| if at < 197 { MS } else { ms * MS }).collect() };
        assert_eq!(judge_round_trips(&times(499), 1_000 * MS).level, Ok);
        assert_eq!(judge_round_trips(&times(500), 1_000 * MS).level, Warning);
    }

    #[test]
    fn clocks_are_judged_with_the_time_of_the_answers_in_mind() {
        let start = Instant::now();
        let judge = |answer: u32, shown: u32| {
            let first = Sight { asked: start, answered: start + answer * MS, shown: 5_000 * MS };
            let later = start + 1_000 * MS;
            let last = Sight { asked: later, answered: later + answer * MS, shown: (5_000 + shown) * MS };
            judge_clock(first, last).map(|found| found.level)
        };
        assert_eq!([judge(1, 1_000), judge(1, 1_009), judge(1, 992)], [Some(Ok); 3]);
        assert_eq!([judge(1, 1_020), judge(1, 980), judge(1, 0)], [Some(Error); 3]);
        assert_eq!([judge(100, 1_000), judge(100, 1_090)], [None; 2], "the answers took too long");
        assert_eq!([judge(100, 1_200), judge(100, 800)], [Some(Error); 2]);
    }
}
