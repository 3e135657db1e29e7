//! Commands on hashes.

use super::parse::{SYNTAX, integer, is, wrong_number};
use crate::keyspace::Keyspace;
use crate::value::{Bytes, Hash};
use crate::wire::{Outcome, Reply};

/// How many fields `HSCAN` returns at a time without the option `COUNT`.
const SCANNED: usize = 10;

pub(super) fn get(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let hash = keyspace.find::<Hash>(&words[1])?;
    Ok(Reply::found(hash.and_then(|hash| hash.get(&words[2]))))
}

pub(super) fn get_many(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let hash = keyspace.find::<Hash>(&words[1])?;
    let get = |field: &Bytes| Reply::found(hash.as_ref().and_then(|hash| hash.get(field)));
    Ok(Reply::List(words[2..].iter().map(get).collect()))
}

pub(super) fn exists(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let hash = keyspace.find::<Hash>(&words[1])?;
    Ok(Reply::Int(hash.is_some_and(|hash| hash.get(&words[2]).is_some()).into()))
}

pub(super) fn len(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    Ok(Reply::count(keyspace.find::<Hash>(&words[1])?.map_or(0, |hash| hash.len())))
}

pub(super) fn keys(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let hash = keyspace.find::<Hash>(&words[1])?;
    Ok(Reply::list(hash.iter().flat_map(|hash| hash.iter()).map(|(field, _)| field)))
}

pub(super) fn get_all(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let hash = keyspace.find::<Hash>(&words[1])?;
    let pairs = hash.iter().flat_map(|hash| hash.iter());
    Ok(Reply::Map(pairs.flat_map(|(field, value)| [field, value]).cloned().map(Reply::Bulk).collect()))
}

pub(super) fn set(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let (pairs, rest) = words[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(wrong_number("hset"));
    }
    let hash = keyspace.find_or_make::<Hash>(&words[1])?;
    let added = pairs.iter().filter(|[field, value]| hash.set(field, value)).count();
    keyspace.tracking.changed(&words[1]);
    Ok(Reply::count(added))
}

pub(super) fn del(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let remove = |hash: &mut Hash| words[2..].iter().filter(|field| hash.remove(field)).count();
    Ok(Reply::count(keyspace.change(&words[1], remove)?.unwrap_or(0)))
}

/// `HRANDFIELD key [count [WITHVALUES]]`: one field. With `count`, so many different fields, or all fields if there are fewer.
pub(super) fn random(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let Some(count) = words.get(2) else {
        let len = keyspace.find::<Hash>(&words[1])?.map_or(0, |hash| hash.len());
        let chosen = keyspace.random().usize(..len.max(1));
        let hash = keyspace.find::<Hash>(&words[1])?;
        return Ok(Reply::found(hash.and_then(|hash| hash.iter().nth(chosen)).map(|(field, _)| field)));
    };
    let Ok(count) = usize::try_from(integer(count)?) else {
        return Err("ERR this server takes HRANDFIELD with a positive count only".to_owned());
    };
    let with_values = match &words[3..] {
        [] => false,
        [option] if is(option, "withvalues") => true,
        _ => return Err(SYNTAX.to_owned()),
    };
    let len = keyspace.find::<Hash>(&words[1])?.map_or(0, |hash| hash.len());
    // The fields come in any order, as in Redis.
    let mut chosen: Vec<usize> = (0..len).collect();
    if count < len {
        keyspace.random().shuffle(&mut chosen);
        chosen.truncate(count);
    }
    let Some(hash) = keyspace.find::<Hash>(&words[1])? else { return Ok(Reply::List(Vec::new())) };
    let fields: Vec<_> = hash.iter().collect();
    let mut found = Vec::new();
    for (field, value) in chosen.into_iter().map(|index| fields[index]) {
        found.push(field);
        found.extend(with_values.then_some(value));
    }
    let found = found.into_iter().cloned().map(Reply::Bulk).collect();
    Ok(if with_values { Reply::Pairs(found) } else { Reply::List(found) })
}

/// `HSCAN key cursor [COUNT count]`.
pub(super) fn scan(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let cursor = std::str::from_utf8(&words[2]).ok();
    // Redis reads an empty cursor as 0.
    let cursor = cursor.and_then(|text| if text.is_empty() { Some(0) } else { text.parse::<u64>().ok() });
    let cursor = cursor.ok_or_else(|| "ERR invalid cursor".to_owned())?;
    let answer = |cursor: u64, found: Vec<&Bytes>| {
        Reply::List(vec![Reply::bulk(cursor.to_string()), Reply::list(found)])
    };
    let Some(hash) = keyspace.find::<Hash>(&words[1])? else { return Ok(answer(0, Vec::new())) };
    let mut count = SCANNED;
    let mut options = &words[3..];
    while let [option, number, rest @ ..] = options
        && is(option, "count")
    {
        count = usize::try_from(integer(number)?).unwrap_or(0);
        if count == 0 {
            return Err(SYNTAX.to_owned());
        }
        options = rest;
    }
    if !options.is_empty() {
        return Err(SYNTAX.to_owned());
    }
    if hash.is_small() {
        let all = hash.iter().flat_map(|(field, value)| [field, value]);
        return Ok(answer(0, all.collect()));
    }
    let mut next = 0;
    let mut found = Vec::new();
    let mut rest = hash.after(cursor).peekable();
    while let Some((number, field, value)) = rest.next_if(|_| found.len() < 2 * count) {
        next = number;
        found.extend([field, value]);
    }
    let is_end = rest.peek().is_none();
    Ok(answer(if is_end { 0 } else { next }, found))
}
