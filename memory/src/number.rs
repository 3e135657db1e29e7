//! Numbers as text.

/// Writes a number as C does with `%.17g`, which is how Redis writes scores and the numbers of scripts.
pub(crate) fn text(number: f64) -> String {
    const DIGITS: i32 = 17;
    if !number.is_finite() {
        return match number {
            f64::INFINITY => "inf".to_owned(),
            f64::NEG_INFINITY => "-inf".to_owned(),
            _ => "nan".to_owned(),
        };
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        return without_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn numbers_are_written_as_c_does() {
        let texts = [
            (0.0, "0"),
            (-1.0, "-1"),
            (1_795_342_787_000.0, "1795342787000"),
            (1_795_342_787_123_456.0, "1795342787123456"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.25e20, "1.25e+20"),
            (1e-5, "1.0000000000000001e-05"),
            (f64::INFINITY, "inf"),
        ];
        for (number, expected) in texts {
            assert_eq!(text(number), expected);
        }
    }
}
