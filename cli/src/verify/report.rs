//! The verdict, for people.

use std::fmt::Write;

use super::judge::{Rule, Verdict};
use crate::text::visible;

/// What to look at, for each rule.
const ADVICE: [(Rule, &str); 6] = [
    (
        Rule::TwoHolders,
        "did the server lose data: a failover (`min-replicas-to-write`, `sync_replicas`), a restart (`appendfsync`), an eviction \
         (`maxmemory-policy`), a deleted key, or a clock that jumped? docs/operate.md has a list",
    ),
    (
        Rule::ToldLate,
        "was the key deleted, or was the data lost? A client perhaps notices that only at its next renewal",
    ),
    (
        Rule::TokenNotGreater,
        "did the server lose the counter of the tokens, or the data of the last seconds?",
    ),
    (Rule::SleepingWaiter, "do messages (pub/sub) reach the clients? `lockkeeper doctor` measures it"),
    (Rule::OutOfTurn, "did the server lose the queue, or did somebody delete its keys?"),
    (Rule::LeftBehind, "did another program write these keys? Otherwise please report it"),
];

pub(super) fn text(verdict: &Verdict) -> String {
    let mut text = String::new();
    let _ = write_all(&mut text, verdict);
    text
}

fn write_all(text: &mut String, verdict: &Verdict) -> std::fmt::Result {
    let count = |rule| grouped(verdict.count(rule));
    writeln!(
        text,
        "grants {}  handed over between processes {}  worker deaths {}  pauses {}  cuts {}  failovers seen {}",
        grouped(verdict.grants),
        grouped(verdict.handed_over),
        verdict.deaths,
        verdict.pauses,
        verdict.cuts,
        verdict.failovers
    )?;
    let notice = match verdict.earliest_notice_ms {
        Some(ms) => {
            format!("losses told {}, the latest of them {ms} ms before the next grant", verdict.losses_told)
        }
        None => format!("losses told {}", verdict.losses_told),
    };
    let wait =
        format!("longest wait beside a free lock {} ms", grouped(verdict.longest_wait_beside_free_lock_ms));
    let left = match verdict.keys_left_behind {
        Some(_) => "keys after the end of all leases",
        None => "not counted",
    };
    let rows = [
        ("two holders at once", Rule::TwoHolders, ""),
        ("told late", Rule::ToldLate, &notice),
        ("tokens that did not grow", Rule::TokenNotGreater, ""),
        ("a waiter left sleeping", Rule::SleepingWaiter, &wait),
        ("served out of turn", Rule::OutOfTurn, ""),
        ("left behind", Rule::LeftBehind, left),
    ];
    for (name, rule, remark) in rows {
        let number = match rule {
            Rule::LeftBehind => verdict.keys_left_behind.map_or_else(|| "?".to_owned(), grouped),
            rule => count(rule),
        };
        writeln!(text, "{}", format!("{name:<26}{number:>6}  {remark}").trim_end())?;
    }
    for violation in &verdict.violations {
        writeln!(text, "\nVIOLATION: {}", visible(&violation.text))?;
        violation.picture.iter().try_for_each(|line| writeln!(text, "  {line}"))?;
    }
    let broken = ADVICE.iter().filter(|(rule, _)| verdict.count(*rule) > 0);
    broken.clone().try_for_each(|(_, advice)| writeln!(text, "look at: {advice}"))?;
    let violations: u64 = verdict.counts.values().sum();
    let of = format!(
        "in {} grants, {} deaths, {} pauses, {} cuts and {} failovers of {} s",
        grouped(verdict.grants),
        verdict.deaths,
        verdict.pauses,
        verdict.cuts,
        verdict.failovers,
        verdict.seconds
    );
    if violations == 0 {
        writeln!(
            text,
            "no violation {of}. This is evidence, not a proof. What no test can show: cli/README.md"
        )
    } else {
        writeln!(text, "{} violations {of}", grouped(violations))
    }
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
