//! Shows what was found.

use std::env;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use super::finding::{Finding, Level};
use crate::exit::{Failure, print, print_json};
use crate::text::visible;

/// People see each finding at once, because some checks take a second. JSON is one array at the end.
pub(super) struct Report {
    is_json: bool,
    has_colours: bool,
    /// The checks that do not count.
    ignored: Vec<String>,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(is_json: bool, ignored: &[String]) -> Self {
        let has_colours =
            io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
        Self { is_json, has_colours, ignored: ignored.to_vec(), findings: Vec::new() }
    }

    pub(super) fn add(&mut self, mut finding: Finding) -> Result<(), Failure> {
        finding.ignored =
            finding.level != Level::Ok && self.ignored.iter().any(|check| check == finding.check);
        if !self.is_json {
            print(line(&finding, self.has_colours).as_bytes())?;
        }
        self.findings.push(finding);
        Ok(())
    }

    pub(super) fn add_all(&mut self, findings: impl IntoIterator<Item = Finding>) -> Result<(), Failure> {
        findings.into_iter().try_for_each(|finding| self.add(finding))
    }

    /// The exit code tells the worst that was found and is not ignored.
    pub(super) fn end(self) -> Result<ExitCode, Failure> {
        if self.is_json {
            print_json(&self.findings)?;
        }
        let level = |finding: &Finding| if finding.ignored { Level::Ok } else { finding.level };
        let worst = self.findings.iter().map(level).max();
        Ok(worst.unwrap_or(Level::Unknown).code().into())
    }
}

fn line(finding: &Finding, has_colours: bool) -> String {
    let Finding { check, level, server, text, advice, ignored } = finding;
    let mut level_name = format!("{:<7}", if *ignored { "ignored".to_owned() } else { level.name() });
    if has_colours {
        level_name = format!("\u{1b}[{}m{level_name}\u{1b}[0m", if *ignored { GREY } else { colour(*level) });
    }
    let server = server.as_ref().map(|server| format!("{server}: ")).unwrap_or_default();
    let advice = advice.as_ref().map(|advice| format!(" → {advice}")).unwrap_or_default();
    format!("{level_name}  {check:<17}  {}\n", visible(&format!("{server}{text}{advice}")))
}

const GREY: u8 = 90;

const fn colour(level: Level) -> u8 {
    match level {
        Level::Ok => 32,
        Level::Unknown | Level::Warning => 33,
        Level::Error => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding::warning("memory-policy", "a\nb", "do this").at("host:1");
        assert_eq!(line(&finding, false), "warning  memory-policy      host:1: a\\nb → do this\n");
        let coloured = line(&Finding::ok("clock", "even"), true);
        assert_eq!(coloured, "\u{1b}[32mok     \u{1b}[0m  clock              even\n");
    }

    #[test]
    fn the_worst_finding_decides_the_exit_code() {
        let ends = |levels: &[Level]| {
            let mut report = Report::new(false, &[]);
            let finding = |level: &Level| Finding { level: *level, ..Finding::ok("check", "") };
            report.findings.extend(levels.iter().map(finding));
            format!("{:?}", report.end().ok())
        };
        let code = |code: u8| format!("{:?}", Some(ExitCode::from(code)));
        assert_eq!(ends(&[Level::Ok, Level::Ok]), code(0));
        assert_eq!(ends(&[Level::Ok, Level::Unknown]), code(1));
        assert_eq!(ends(&[Level::Warning, Level::Ok]), code(1));
        assert_eq!(ends(&[Level::Warning, Level::Error, Level::Ok]), code(2));
    }
}
