//! Compares Redis with the model, and with what owners were promised.

use proptest::prop_assert;
use proptest::test_runner::TestCaseResult;
use redis::Value;

use crate::read_write_model::client::Hold;
use crate::read_write_model::command::Side;
use crate::read_write_model::model::Answer;
use crate::read_write_model::run::Run;
use crate::read_write_model::state::State;
use crate::read_write_model::wire::Seen;
use crate::support::lua;

impl Run<'_> {
    pub fn compare_answer(&self, expected: &Answer, seen: &Seen) -> TestCaseResult {
        let is_right = match (expected, &seen.answer) {
            (Answer::Granted, Value::Nil) => true,
            (Answer::Named(expected), Value::Int(answer)) => lua::reply(expected) == *answer,
            (Answer::Number(expected), Value::Int(answer)) => expected == answer,
            (Answer::Renewed(expected), Value::Array(list)) => {
                *list == [Value::Int(lua::reply(if *expected { "RENEWED" } else { "LOST" }))]
            }
            (Answer::Until(ends), Value::Int(left_ms)) => u64::try_from(*left_ms).is_ok_and(|left_ms| {
                ends.iter().any(|&ends| is_about(self.model.now + left_ms, ends, seen.took_ms))
            }),
            _ => false,
        };
        prop_assert!(is_right, "the answer is {:?}, expected is {expected:?}", seen.answer);
        Ok(())
    }

    pub fn compare(&mut self, seen: &Seen) -> TestCaseResult {
        let expected = std::mem::take(&mut self.model.published);
        prop_assert!(
            seen.messages == expected,
            "the messages are {:?}, expected are {expected:?}",
            seen.messages
        );
        self.compare_state(seen)?;
        check_exclusion(&seen.state)?;
        let promises = self.clients.iter().flat_map(|client| &client.holds).chain(&self.left_behind);
        promises.filter(|hold| hold.until > self.model.now).try_for_each(|hold| check_promise(hold, seen))
    }

    fn compare_state(&mut self, seen: &Seen) -> TestCaseResult {
        let or_ends = self.model.or_ends.take();
        if let (Some(hash), Some(ends)) = (&mut self.model.state.hash, or_ends)
            && is_about(seen.state.ends(), ends, seen.took_ms)
        {
            hash.ends = ends;
        }
        let (mut found, expected) = (seen.state.without_dead(), self.model.state.without_dead());
        align_times(&mut found, &expected, seen.took_ms);
        prop_assert!(
            found == expected,
            "at {} ms the server has\n  {found:?}\nand expected is\n  {expected:?}\n",
            self.model.now
        );
        let Some((ours, theirs)) = self.model.state.hash.as_mut().zip(seen.state.hash.as_ref()) else {
            return Ok(());
        };
        for (owner, count) in &theirs.readers {
            prop_assert!(ours.readers.get(owner) == Some(count), "the dead reader {owner:?} has come back");
        }
        ours.readers.retain(|owner, _| theirs.readers.contains_key(owner));
        Ok(())
    }
}

/// Whatever the model says.
fn check_exclusion(seen: &State) -> TestCaseResult {
    let Some(hash) = &seen.hash else {
        return Ok(());
    };
    prop_assert!(hash.writers.len() < 2, "there are two writers: {hash:?}");
    let is_write = hash.mode == Side::Write;
    prop_assert!(is_write == (hash.writers.len() == 1), "the mode contradicts the holders: {hash:?}");
    if let Some(writer) = hash.writers.keys().next() {
        let is_alone = seen.readers().iter().all(|(owner, _)| owner == writer);
        prop_assert!(is_alone, "an owner reads while another one writes: {seen:?}");
    }
    Ok(())
}

fn check_promise(hold: &Hold, seen: &Seen) -> TestCaseResult {
    let lasts = |ends: u64| ends + seen.took_ms >= hold.until;
    let is_kept = match hold.side {
        Side::Read => seen
            .state
            .living(hold.owner)
            .is_some_and(|found| found.grant == hold.grant && found.count <= hold.most && lasts(found.ends)),
        Side::Write => (1..=hold.most).contains(&seen.state.writes(hold.owner)),
    };
    let is_kept = is_kept && lasts(seen.state.ends());
    prop_assert!(is_kept, "a promise is broken\n  {hold:?}\nthe server has\n  {:?}\n", seen.state);
    Ok(())
}

/// A lease only becomes shorter, and by no more than the step took.
fn is_about(found: u64, expected: u64, took_ms: u64) -> bool {
    found <= expected && found + took_ms >= expected
}

/// Makes times equal that are about the same.
fn align_times(found: &mut State, expected: &State, took_ms: u64) {
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
