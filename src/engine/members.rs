//! One value for each member of a lock, and asking several servers at once, without waiting for those that do not
//! answer.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use smallvec::SmallVec;

use crate::base::timer::{Instant, sleep_until};

/// One value for each member. Most locks have one member.
pub(crate) type PerMember<T> = SmallVec<[T; 1]>;

/// When the answers so far decide, the late servers get as much time again as has passed, within these two limits. A
/// server that is only a little slower must not be left out.
const GRACE: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// Returns the outputs of the futures, each with its index, in the order in which they came. Once the outputs decide
/// the result, drops the futures that are late.
pub(crate) async fn gather<F: Future>(
    futures: impl IntoIterator<Item = F>,
    decide: impl Fn(&[(usize, F::Output)]) -> bool,
) -> Vec<(usize, F::Output)> {
    let start = Instant::now();
    let mut running: FuturesUnordered<_> =
        futures.into_iter().enumerate().map(async |(index, future)| (index, future.await)).collect();
    let mut outputs = Vec::with_capacity(running.len());
    let grace = || Instant::now() + start.elapsed().clamp(GRACE[0], GRACE[1]);
    let mut until = decide(&outputs).then(grace);
    loop {
        let output = match until {
            None => running.next().await,
            Some(until) => tokio::select! {
                biased;
                output = running.next() => output,
                () = sleep_until(until) => return outputs,
            },
        };
        let Some(output) = output else { return outputs };
        outputs.push(output);
        if until.is_none() && decide(&outputs) {
            until = Some(grace());
        }
    }
}

/// Collects votes until the result is decided. Returns whether at least `quorum` voters said yes.
///
/// # Errors
///
/// Fewer voters said yes, and one of the futures failed.
pub(crate) async fn vote<F, E>(voters: impl ExactSizeIterator<Item = F>, quorum: usize) -> Result<bool, E>
where
    F: Future<Output = Result<bool, E>>,
{
    let all = voters.len();
    let yes =
        |votes: &[(usize, F::Output)]| votes.iter().filter(|(_, vote)| matches!(vote, Ok(true))).count();
    let votes = gather(voters, |votes| is_decided(yes(votes), votes.len() - yes(votes), quorum, all)).await;
    let is_enough = yes(&votes) >= quorum;
    match votes.into_iter().find_map(|(_, vote)| vote.err()) {
        Some(error) if !is_enough => Err(error),
        _ => Ok(is_enough),
    }
}

/// Whether the votes so far decide if at least `quorum` of `all` voters will say yes.
pub(crate) const fn is_decided(yes: usize, no: usize, quorum: usize, all: usize) -> bool {
    yes >= quorum || all - no < quorum
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;
    use tokio::time::sleep;

    use super::*;

    #[test]
    fn a_quorum_decides_and_so_does_a_quorum_that_is_out_of_reach() {
        for (yes, no, decided) in [
            (0, 0, false),
            (1, 1, false),
            (2, 0, true),
            (2, 1, true),
            (0, 2, true),
            (1, 2, true),
            (0, 1, false),
        ] {
            assert_eq!(is_decided(yes, no, 2, 3), decided, "{yes} and {no}");
        }
        assert!(is_decided(0, 1, 3, 3) && !is_decided(2, 0, 3, 3));
    }

    #[tokio::test]
    async fn a_vote_fails_only_without_a_quorum() {
        for (votes, outcome) in [
            ([Ok(true), Ok(true), Err(1)], Ok(true)),
            ([Ok(true), Ok(false), Ok(false)], Ok(false)),
            ([Ok(true), Ok(false), Err(1)], Err(1)),
        ] {
            assert_eq!(vote(votes.map(ready).into_iter(), 2).await, outcome, "{votes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_not_waited_for() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let after = |time: u64| async move { sleep(ms(time)).await }.boxed();
        let outputs = gather([after(10), pending().boxed(), after(1), after(15)], |got| got.len() == 2).await;
        let order: Vec<usize> = outputs.iter().map(|(index, ())| *index).collect();
        assert_eq!(order, [2, 0, 3], "the last was only a little slower");
        assert_eq!(start.elapsed().as_millis(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_not_needed_gets_the_shortest_grace() {
        let start = Instant::now();
        assert!(gather([pending::<()>()], |_| true).await.is_empty());
        assert_eq!(start.elapsed(), GRACE[0]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_decision_all_servers_are_waited_for() {
        let start = Instant::now();
        let outputs = gather([1, 700].map(|ms| sleep(Duration::from_millis(ms))), |_| false).await;
        assert_eq!((outputs.len(), start.elapsed().as_millis()), (2, 700));
    }
}
