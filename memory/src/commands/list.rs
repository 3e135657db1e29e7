//! Commands on lists.

use super::parse::{count, integer, part, wrong_number};
use crate::keyspace::Keyspace;
use crate::value::{Bytes, List};
use crate::wire::{Outcome, Reply};

pub(super) fn len(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    Ok(Reply::count(keyspace.find::<List>(&words[1])?.map_or(0, |list| list.len())))
}

pub(super) fn index(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let Some(list) = keyspace.find::<List>(&words[1])? else { return Ok(Reply::Nil) };
    let index = integer(&words[2])?;
    let from_end = || list.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
    let index = usize::try_from(index).ok().or_else(from_end);
    Ok(Reply::found(index.and_then(|index| list.get(index))))
}

pub(super) fn range(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let (start, stop) = (integer(&words[2])?, integer(&words[3])?);
    let Some(list) = keyspace.find::<List>(&words[1])? else { return Ok(Reply::List(Vec::new())) };
    Ok(Reply::list(list.range(part(list.len(), start, stop))))
}

pub(super) fn push_back(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let list = keyspace.find_or_make::<List>(&words[1])?;
    list.extend(words[2..].iter().cloned());
    let len = list.len();
    keyspace.tracking.changed(&words[1]);
    Ok(Reply::count(len))
}

pub(super) fn push_front(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let list = keyspace.find_or_make::<List>(&words[1])?;
    words[2..].iter().cloned().for_each(|word| list.push_front(word));
    let len = list.len();
    keyspace.tracking.changed(&words[1]);
    Ok(Reply::count(len))
}

/// `LPOP key [count]`.
pub(super) fn pop(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let most = match &words[2..] {
        [] => None,
        [most] => Some(count(most)?),
        _ => return Err(wrong_number("lpop")),
    };
    let take = |list: &mut List| -> Vec<Bytes> {
        let end = most.unwrap_or(1).min(list.len());
        list.drain(..end).collect()
    };
    let taken = keyspace.change(&words[1], take)?;
    Ok(match (taken, most) {
        (None, None) => Reply::Nil,
        (None, Some(_)) => Reply::NilList,
        (Some(taken), None) => Reply::found(taken.first()),
        (Some(taken), Some(_)) => Reply::list(&taken),
    })
}

/// `LREM key count value`: removes this number of equal items, from the front. If `count` is negative, from the back; if it is 0,
/// all.
pub(super) fn remove(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let count = integer(&words[2])?;
    let remove = |list: &mut List| {
        let most =
            if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
        let mut found: Vec<usize> = Vec::new();
        let mut indexes: Box<dyn Iterator<Item = usize>> =
            if count < 0 { Box::new((0..list.len()).rev()) } else { Box::new(0..list.len()) };
        while let Some(index) = indexes.next().filter(|_| found.len() < most) {
            if list[index] == words[3] {
                found.push(index);
            }
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.iter().for_each(|index| drop(list.remove(*index)));
        found.len()
    };
    Ok(Reply::count(keyspace.change(&words[1], remove)?.unwrap_or(0)))
}
