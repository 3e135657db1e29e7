//! The patterns of `SCAN`.

/// Whether a text fits a pattern, byte by byte: `*` stands for any text, `?` for one byte, `[a-c]` for one of these, `[^a-c]` for one
/// of the others, and a byte behind `\` for itself.
pub(crate) fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    match (first, text.split_first()) {
        (b'*', _) => (0..=text.len()).any(|from| fits(rest, &text[from..])),
        (_, None) => false,
        (b'?', Some((_, text))) => fits(rest, text),
        (b'[', Some((byte, text))) => {
            let (is_in, rest) = class(rest, *byte);
            is_in && fits(rest, text)
        }
        (_, Some((byte, text))) => {
            let (literal, rest) = match rest.split_first() {
                Some((escaped, rest)) if first == b'\\' => (*escaped, rest),
                _ => (first, rest),
            };
            literal == *byte && fits(rest, text)
        }
    }
}

/// Whether a byte is in the class at the start of a pattern, behind its `[`; and what comes behind its `]`.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_negated, mut pattern) = match pattern.split_first() {
        Some((b'^', rest)) => (true, rest),
        _ => (false, pattern),
    };
    let mut is_in = false;
    loop {
        pattern = match pattern {
            [] => return (is_in != is_negated, pattern),
            [b']', rest @ ..] => return (is_in != is_negated, rest),
            [b'\\', escaped, rest @ ..] => {
                is_in |= *escaped == byte;
                rest
            }
            [from, b'-', to, rest @ ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest
            }
            [one, rest @ ..] => {
                is_in |= *one == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    /// As the command `KEYS` of Redis 7.0 says.
    #[test]
    fn patterns_mean_what_they_mean_to_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("a*c", "abbc"),
            ("a?c", "abc"),
            ("a[bx]c", "abc"),
            ("a[a-c]c", "abc"),
            ("a[c-a]c", "abc"),
            ("a[^x]c", "abc"),
            ("a\\*c", "a*c"),
            ("[\\]]", "]"),
            ("**b*", "abc"),
            ("[a", "a"),
        ] {
            assert!(fits(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("?", ""),
            ("a*c", "ab"),
            ("a[^b]c", "abc"),
            ("a\\*c", "abc"),
            ("[]", "a"),
            ("a*", "b"),
            ("A", "a"),
        ] {
            assert!(!fits(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }
}
