//! The group of a lock: a label that the user chooses.

use std::borrow::Cow;

use crate::base::error::{Error, Result};

/// The longest name of a group, in bytes.
const LONGEST: usize = 64;

/// Refuses a name that is no label.
pub(crate) fn parse_group(group: Cow<'static, str>) -> Result<Cow<'static, str>> {
    let problem = match group.len() {
        0 => "it is empty",
        1..=LONGEST => return Ok(group),
        _ => "it is longer than 64 bytes",
    };
    Err(Error::InvalidGroup { group: group.into_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_1_to_64_bytes() {
        for (len, is_valid) in [(0, false), (1, true), (64, true), (65, false)] {
            assert_eq!(parse_group("g".repeat(len).into()).is_ok(), is_valid, "{len}");
        }
    }
}
