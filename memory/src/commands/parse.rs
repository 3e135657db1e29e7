//! Arguments and numbers, as Redis reads and writes them.

use std::ops::Range;

pub(super) const SYNTAX: &str = "ERR syntax error";

const NOT_INTEGER: &str = "ERR value is not an integer or out of range";

pub(crate) fn wrong_number(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Reads an integer. It must be written as Redis would write it: `01`, `+1` and ` 1` are errors.
pub(crate) fn integer(word: &[u8]) -> Result<i64, String> {
    exact(word).ok_or_else(|| NOT_INTEGER.to_owned())
}

pub(super) fn exact(word: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == word).then_some(number)
}

/// Reads a number that must not be negative.
pub(super) fn count(word: &[u8]) -> Result<usize, String> {
    let number = exact(word).and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| "ERR value is out of range, must be positive".to_owned())
}

pub(super) fn float(word: &[u8]) -> Result<f64, String> {
    let text = std::str::from_utf8(word).unwrap_or_default();
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    // Rust reads `1e400` as infinity and `1e-400` as zero. Redis refuses both.
    let is_in_range =
        |number: f64| number.is_finite() && number != 0.0 || !mantissa.contains(|c| ('1'..='9').contains(&c));
    let number = text.parse().ok().filter(|number: &f64| !number.is_nan() && is_in_range(*number));
    number.ok_or_else(|| "ERR value is not a valid float".to_owned())
}

/// Whether a word is this option, in any case.
pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// The part of `len` items from `start` to `stop`. A negative `start` or `stop` counts from the end.
pub(super) fn part(len: usize, start: i64, stop: i64) -> Range<usize> {
    let signed = i64::try_from(len).unwrap_or(i64::MAX);
    let from_start = |at: i64| if at < 0 { at.saturating_add(signed) } else { at };
    let start = usize::try_from(from_start(start)).unwrap_or(0);
    let end = usize::try_from(from_start(stop).saturating_add(1)).unwrap_or(0).min(len);
    if start < end { start..end } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact() {
        for text in ["", "+1", "01", " 1", "1 ", "-0", "1.0", "9223372036854775808"] {
            assert!(integer(text.as_bytes()).is_err(), "{text}");
        }
        for number in [0, -1, 42, i64::MIN, i64::MAX] {
            assert_eq!(integer(number.to_string().as_bytes()), Ok(number));
        }
    }

    #[test]
    fn parts_count_from_both_ends() {
        assert_eq!(part(5, 0, -1), 0..5);
        assert_eq!(part(5, -2, -1), 3..5);
        assert_eq!(part(5, -9, 1), 0..2);
        assert_eq!(part(5, 3, 9), 3..5);
        assert_eq!(part(5, 4, 2), 0..0);
        assert_eq!(part(0, 0, -1), 0..0);
        assert_eq!(part(5, i64::MIN, i64::MAX), 0..5);
    }
}
