//! Commands on sorted sets.

use std::sync::Arc;

use super::parse::{SYNTAX, float, integer, is, part};
use crate::keyspace::Keyspace;
use crate::number;
use crate::value::{Bytes, Scores};
use crate::wire::{Outcome, Reply};

/// `ZADD key [NX|XX] score member...`.
pub(super) fn add(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let (mut nx, mut xx) = (false, false);
    let mut rest = &words[2..];
    while let [word, behind @ ..] = rest
        && (is(word, "nx") || is(word, "xx"))
    {
        nx |= is(word, "nx");
        xx |= is(word, "xx");
        rest = behind;
    }
    let (pairs, odd) = rest.as_chunks::<2>();
    if !odd.is_empty() || pairs.is_empty() {
        return Err(SYNTAX.to_owned());
    }
    if nx && xx {
        return Err("ERR XX and NX options at the same time are not compatible".to_owned());
    }
    let scores: Vec<f64> = pairs.iter().map(|[score, _]| float(score)).collect::<Result<_, _>>()?;
    let set = if xx {
        let Some(set) = keyspace.find::<Scores>(&words[1])? else { return Ok(Reply::Int(0)) };
        set
    } else {
        keyspace.find_or_make::<Scores>(&words[1])?
    };
    let (mut added, mut updated) = (0, false);
    for ([_, member], score) in pairs.iter().zip(scores) {
        let exists = set.get(member).is_some();
        if if exists { !nx } else { !xx } {
            let old = set.set(member, score);
            added += usize::from(old.is_none());
            updated |= old.is_some_and(|old| old != score);
        }
    }
    if added > 0 || updated {
        keyspace.tracking.changed(&words[1]);
    }
    Ok(Reply::count(added))
}

pub(super) fn len(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    Ok(Reply::count(keyspace.find::<Scores>(&words[1])?.map_or(0, |set| set.len())))
}

pub(super) fn score(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let score = keyspace.find::<Scores>(&words[1])?.and_then(|set| set.get(&words[2]));
    Ok(score.map_or(Reply::Nil, double))
}

pub(super) fn rank(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let rank = keyspace.find::<Scores>(&words[1])?.and_then(|set| set.rank(&words[2]));
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

pub(super) fn remove(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let remove = |set: &mut Scores| words[2..].iter().filter(|member| set.remove(member)).count();
    Ok(Reply::count(keyspace.change(&words[1], remove)?.unwrap_or(0)))
}

/// `ZRANGE key start stop [WITHSCORES]`, by rank.
pub(super) fn range(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let with_scores = match &words[4..] {
        [] => false,
        [option] if is(option, "withscores") => true,
        _ => return Err(SYNTAX.to_owned()),
    };
    let (start, stop) = (integer(&words[2])?, integer(&words[3])?);
    let Some(set) = keyspace.find::<Scores>(&words[1])? else { return Ok(Reply::List(Vec::new())) };
    let part = part(set.len(), start, stop);
    let mut found = Vec::new();
    // `ZRANGE key -1 -1` asks for the last member only, so do not walk over all others.
    let from_end = set.len() - part.end;
    let mut members: Vec<_> = set.iter().rev().skip(from_end).take(part.len()).collect();
    members.reverse();
    for (member, score) in members {
        found.push(Reply::Bulk(Arc::clone(member)));
        found.extend(with_scores.then(|| double(score)));
    }
    Ok(if with_scores { Reply::Pairs(found) } else { Reply::List(found) })
}

fn double(number: f64) -> Reply {
    Reply::Double(number::text(number))
}
