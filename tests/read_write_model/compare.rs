//! Compares Redis with the model, and with what owners were promised.

use redis::Value;

use crate::client::Hold;
use crate::command::Side;
use crate::model::Answer;
use crate::run::Run;
use crate::state::State;
use crate::wire::Seen;

impl Run<'_> {
    pub fn compare_answer(&self, expected: &Answer, seen: &Seen) {
        let is_right = match (expected, &seen.answer) {
            (Answer::Granted, Value::Nil) => true,
            (Answer::Number(expected), Value::Int(answer)) => expected == answer,
            (Answer::Renewed(expected), Value::Array(list)) => *list == [Value::Int((*expected).into())],
            (Answer::Until(ends), Value::Int(left_ms)) => u64::try_from(*left_ms).is_ok_and(|left_ms| {
                ends.iter().any(|&ends| is_about(self.model.now + left_ms, ends, seen.took_ms))
            }),
            _ => false,
        };
        assert!(is_right, "answered {:?}, and not {expected:?}", seen.answer);
    }

    pub fn compare(&mut self, seen: &Seen) {
        assert_eq!(seen.messages, std::mem::take(&mut self.model.published), "messages");
        self.compare_state(seen);
        self.check_exclusion(&seen.state);
        let promises = self.clients.iter().flat_map(|client| &client.holds).chain(&self.left_behind);
        for hold in promises.filter(|hold| hold.until > self.model.now) {
            check_promise(hold, seen);
        }
    }

    fn compare_state(&mut self, seen: &Seen) {
        let or_ends = self.model.or_ends.take();
        if let (Some(hash), Some(ends)) = (&mut self.model.state.hash, or_ends)
            && is_about(seen.state.ends(), ends, seen.took_ms)
        {
            hash.ends = ends;
        }
        let (mut found, expected) = (seen.state.without_dead(), self.model.state.without_dead());
        take_for_equal(&mut found, &expected, seen.took_ms);
        assert_eq!(
            (&found.hash, &found.keys),
            (&expected.hash, &expected.keys),
            "found, and expected, at {}",
            self.model.now
        );
        let Some((ours, theirs)) = self.model.state.hash.as_mut().zip(seen.state.hash.as_ref()) else {
            return;
        };
        for dead in &theirs.readers {
            assert_eq!(ours.readers.get(dead.0), Some(dead.1), "nobody comes back");
        }
        ours.readers.retain(|owner, _| theirs.readers.contains_key(owner));
    }

    /// Of what Redis has, whatever the model says.
    fn check_exclusion(&self, seen: &State) {
        let Some(hash) = &seen.hash else {
            return;
        };
        assert!(hash.writers.len() < 2, "two write");
        assert_eq!(hash.mode == Side::Write, hash.writers.len() == 1, "the mode says who has it");
        if let Some(writer) = hash.writers.keys().next() {
            assert!(seen.readers().iter().all(|(owner, _)| owner == writer), "one reads what another writes");
        }
    }
}

fn check_promise(hold: &Hold, seen: &Seen) {
    let lasts = |ends: u64| ends + seen.took_ms >= hold.until;
    let is_kept = match hold.side {
        Side::Read => seen
            .state
            .living(hold.owner)
            .is_some_and(|found| found.grant == hold.grant && found.count <= hold.most && lasts(found.ends)),
        Side::Write => (1..=hold.most).contains(&seen.state.writes(hold.owner)),
    };
    assert!(is_kept && lasts(seen.state.ends()), "promised {hold:?}, and found {:?}", seen.state);
}

/// A lease only becomes shorter by the time that it took to look.
fn is_about(found: u64, expected: u64, took_ms: u64) -> bool {
    found <= expected && found + took_ms >= expected
}

/// Sets the times that are about the same to the same.
fn take_for_equal(found: &mut State, expected: &State, took_ms: u64) {
    for (id, key) in &mut found.keys {
        if let Some(other) = expected.keys.get(id).filter(|other| is_about(key.ends, other.ends, took_ms)) {
            key.ends = other.ends;
        }
    }
    if let Some((hash, other)) = found.hash.as_mut().zip(expected.hash.as_ref())
        && is_about(hash.ends, other.ends, took_ms)
    {
        hash.ends = other.ends;
    }
}
