//! Asking several servers at once, without waiting for those that do not answer.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use smallvec::SmallVec;

use crate::base::timer::{Instant, elapsed};

/// When the answers so far decide, the late servers get as much time again as has passed, within these two limits. A
/// server that is only a little slower must not be left out.
const GRACE: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// Asks all at once. Returns whether at least `needed` of the answers say yes, or `None` if the answers do not decide it,
/// and the answers in the order in which they came. Once they decide, drops the futures that are late.
pub(crate) async fn vote<F: Future>(
    asked: impl Iterator<Item = F>,
    needed: usize,
    says: impl Fn(&F::Output) -> Option<bool>,
) -> (Option<bool>, Vec<F::Output>) {
    let start = Instant::now();
    let mut running: FuturesUnordered<_> = asked.collect();
    let (mut yes, mut possible, mut until) = (0, running.len(), None);
    let mut answers = Vec::with_capacity(possible);
    loop {
        let verdict = if yes >= needed { Some(true) } else { (possible < needed).then_some(false) };
        if verdict.is_some() {
            until.get_or_insert_with(|| Instant::now() + start.elapsed().clamp(GRACE[0], GRACE[1]));
        }
        let answer = tokio::select! {
            biased;
            answer = running.next() => answer,
            () = elapsed(until) => None,
        };
        let Some(answer) = answer else { return (verdict, answers) };
        match says(&answer) {
            Some(true) => yes += 1,
            Some(false) => possible -= 1,
            None => {}
        }
        answers.push(answer);
    }
}

/// Returns the value that at least `needed` of these reach.
pub(crate) fn of_quorum<T: Ord>(values: impl Iterator<Item = T>, needed: usize) -> T {
    let mut values: SmallVec<[T; 4]> = values.collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.swap_remove(needed - 1)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use tokio::time::sleep;

    use super::*;

    #[test]
    fn a_quorum_reaches_the_value_of_its_least() {
        for (needed, value) in [(1, 9), (2, 7), (3, 5)] {
            assert_eq!(of_quorum([5, 9, 7].into_iter(), needed), value);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quorum_decides_and_so_does_a_quorum_that_is_out_of_reach() {
        let (yes, no) = (Some(true), Some(false));
        for (votes, verdict) in [
            ([yes, yes, None], yes),
            ([yes, no, no], no),
            ([yes, no, None], None),
            ([None, no, no], no),
            ([None; 3], None),
        ] {
            let asked = votes.map(ready).into_iter();
            assert_eq!(vote(asked, 2, |vote| *vote).await.0, verdict, "{votes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_not_waited_for() {
        let start = Instant::now();
        let after = |time: u64| sleep(Duration::from_millis(time)).map(move |()| time).boxed();
        let asked = [after(10), pending().boxed(), after(1), after(15)];
        let (verdict, answers) = vote(asked.into_iter(), 2, |_| Some(true)).await;
        assert_eq!(answers, [1, 10, 15], "the last was only a little slower");
        assert_eq!((verdict, start.elapsed().as_millis()), (Some(true), 20));

        let start = Instant::now();
        assert!(vote([pending::<()>()].into_iter(), 0, |()| None).await.1.is_empty());
        assert_eq!(start.elapsed(), GRACE[0], "the shortest grace");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_decision_all_servers_are_waited_for() {
        let start = Instant::now();
        let asked = [1, 700].map(|time| sleep(Duration::from_millis(time)));
        assert_eq!(vote(asked.into_iter(), 1, |()| None).await.1.len(), 2);
        assert_eq!(start.elapsed().as_millis(), 700);
    }
}
