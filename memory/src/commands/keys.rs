//! Commands on keys of any type.

use std::sync::Arc;

use super::parse::{SYNTAX, integer, is, wrong_number};
use crate::glob::fits;
use crate::keyspace::Keyspace;
use crate::value::Bytes;
use crate::wire::{Outcome, Reply};

pub(super) fn del(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    Ok(Reply::count(words[1..].iter().filter(|key| keyspace.remove(key)).count()))
}

/// `FLUSHALL` and `FLUSHDB`: there is one database.
pub(super) fn flush(keyspace: &mut Keyspace, _: &[Bytes]) -> Outcome {
    keyspace.clear();
    keyspace.tracking.flushed();
    Ok(Reply::ok())
}

pub(super) fn rename(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let [_, from, to] = words else { return Err(wrong_number("rename")) };
    if from != to || !keyspace.exists(from) {
        let entry = keyspace.take(from).ok_or_else(|| "ERR no such key".to_owned())?;
        keyspace.put(Arc::clone(to), entry);
    }
    Ok(Reply::ok())
}

pub(super) fn exists(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    Ok(Reply::count(words[1..].iter().filter(|key| keyspace.exists(key)).count()))
}

pub(super) fn kind(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    Ok(Reply::Status(keyspace.value(&words[1]).map_or("none", |value| value.kind()).to_owned()))
}

pub(super) fn time(keyspace: &mut Keyspace, _: &[Bytes]) -> Outcome {
    let now = keyspace.now();
    let parts = [now.as_secs().to_string(), now.subsec_micros().to_string()];
    Ok(Reply::List(parts.map(Reply::bulk).into()))
}

pub(super) fn ttl(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let now = keyspace.now_ms();
    Ok(Reply::Int(match keyspace.expiry(&words[1]) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => (at - now).max(0),
    }))
}

pub(super) fn persist(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    if !matches!(keyspace.expiry(&words[1]), Some(Some(_))) {
        return Ok(Reply::Int(0));
    }
    keyspace.set_expiry(&words[1], None);
    Ok(Reply::Int(1))
}

pub(super) fn expire(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let mut has = [false; 4];
    for word in &words[3..] {
        let option = ["nx", "xx", "gt", "lt"].iter().position(|option| is(word, option));
        let option =
            option.ok_or_else(|| format!("ERR Unsupported option {}", String::from_utf8_lossy(word)))?;
        has[option] = true;
    }
    let [nx, xx, gt, lt] = has;
    if nx && (xx || gt || lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".to_owned());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".to_owned());
    }
    let time = integer(&words[2])?;
    let at = time.checked_add(keyspace.now_ms());
    let at = at.ok_or_else(|| "ERR invalid expire time in 'pexpire' command".to_owned())?;
    let Some(old) = keyspace.expiry(&words[1]) else { return Ok(Reply::Int(0)) };
    // A key without an expiry counts as a key that lasts for ever.
    let is_refused = match old {
        None => xx || gt,
        Some(old) => nx || (gt && at <= old) || (lt && at >= old),
    };
    if is_refused {
        return Ok(Reply::Int(0));
    }
    keyspace.set_expiry(&words[1], Some(at));
    Ok(Reply::Int(1))
}

/// Returns all keys at once, whatever the count: a real server may do that, too.
pub(super) fn scan(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let is_number = std::str::from_utf8(&words[1]).is_ok_and(|cursor| cursor.parse::<u64>().is_ok());
    if !is_number {
        return Err("ERR invalid cursor".to_owned());
    }
    let (mut pattern, mut kind): (&[u8], Option<&[u8]>) = (b"*", None);
    for option in words[2..].chunks(2) {
        match option {
            [name, value] if is(name, "match") => pattern = value,
            [name, value] if is(name, "type") => kind = Some(value),
            [name, value] if is(name, "count") => {
                if integer(value)? < 1 {
                    return Err(SYNTAX.to_owned());
                }
            }
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    let fitting: Vec<Bytes> = keyspace.keys().filter(|key| fits(pattern, key)).cloned().collect();
    let mut is_wanted = |key: &&Bytes| {
        kind.is_none_or(|kind| keyspace.value(key).is_some_and(|value| is(kind, value.kind())))
    };
    let mut found: Vec<&Bytes> = fitting.iter().filter(|key| is_wanted(key)).collect();
    found.sort(); // so that a test can be repeated exactly
    Ok(Reply::List(vec![Reply::bulk("0"), Reply::list(found)]))
}
