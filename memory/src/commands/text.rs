//! Commands on strings.

use std::sync::Arc;

use super::parse::{SYNTAX, exact, integer, is};
use crate::keyspace::{Keyspace, WRONG_TYPE};
use crate::value::{Bytes, Value};
use crate::wire::{Outcome, Reply};

pub(super) fn get(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    match keyspace.value(&words[1]) {
        None => Ok(Reply::Nil),
        Some(Value::Text(text)) => Ok(Reply::found(Some(text))),
        Some(_) => Err(WRONG_TYPE.to_owned()),
    }
}

/// `SET key value [PX milliseconds] [NX]`.
pub(super) fn set(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let (lasts_ms, only_new) = match &words[3..] {
        [] => (None, false),
        [nx] if is(nx, "nx") => (None, true),
        [option, time] if is(option, "px") => (Some(integer(time)?), false),
        [option, time, nx] if is(option, "px") && is(nx, "nx") => (Some(integer(time)?), true),
        _ => return Err(SYNTAX.to_owned()),
    };
    let expires = match lasts_ms.map(|time| (time, time.checked_add(keyspace.now_ms()))) {
        None => None,
        Some((1.., Some(at))) => Some(at),
        Some(_) => return Err("ERR invalid expire time in 'set' command".to_owned()),
    };
    if only_new && keyspace.value(&words[1]).is_some() {
        return Ok(Reply::Nil);
    }
    keyspace.set(&words[1], Value::Text(Arc::clone(&words[2])));
    keyspace.set_expiry(&words[1], expires);
    Ok(Reply::ok())
}

pub(super) fn incr(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    add(keyspace, &words[1], 1)
}

/// `INCRBY key increment`.
pub(super) fn incr_by(keyspace: &mut Keyspace, words: &[Bytes]) -> Outcome {
    let by = integer(&words[2])?;
    add(keyspace, &words[1], by)
}

fn add(keyspace: &mut Keyspace, key: &Bytes, by: i64) -> Outcome {
    let text = match keyspace.value(key) {
        None => {
            keyspace.set(key, Value::Text(by.to_string().as_bytes().into()));
            return Ok(Reply::Int(by));
        }
        Some(Value::Text(text)) => text,
        Some(_) => return Err(WRONG_TYPE.to_owned()),
    };
    let number = exact(text).ok_or_else(|| "ERR value is not an integer or out of range".to_owned())?;
    let next = number.checked_add(by);
    let next = next.ok_or_else(|| "ERR increment or decrement would overflow".to_owned())?;
    *text = next.to_string().as_bytes().into();
    keyspace.tracking.changed(key);
    Ok(Reply::Int(next))
}
