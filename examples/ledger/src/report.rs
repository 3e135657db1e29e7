//! The report at the end.

use crate::LEASE;
use crate::check::Findings;
use crate::run::{Story, VICTIM, WORKERS};
use crate::screen::{Ink, Screen};

pub(crate) fn show(story: &Story, found: &Findings, screen: &Screen) {
    let heading = |text| println!("\n{}", screen.ink(Ink::Bold, text));

    heading("The ledger, compared with the jobs");
    row("jobs", found.jobs, "");
    let judged = |what, number: usize, is_good| {
        let ink = if is_good { Ink::Green } else { Ink::Red };
        row(what, screen.ink(ink, &format!("{number:>9}")), "");
    };
    judged("lines", found.lines, found.lines == found.jobs);
    judged("torn", found.torn, found.torn == 0);
    judged("lost", found.lost, found.lost == 0);
    judged("doubled", found.doubled, found.doubled == 0);
    judged("misplaced", found.misplaced, found.misplaced == 0);
    for sample in &found.samples {
        println!("    {sample}");
    }

    heading("Lines per worker");
    let most = found.by_worker.values().copied().max().unwrap_or(1);
    for worker in 1..=WORKERS {
        let lines = found.by_worker.get(&worker).copied().unwrap_or(0);
        let killed = if worker == VICTIM && story.killed.is_some() { " killed" } else { "" };
        row(&format!("worker {worker}"), lines, &format!("{}{killed}", "■".repeat(lines * 30 / most)));
    }

    heading("The run");
    let (Some(first), Some(last)) = (story.first, story.last) else { return };
    let mut busy = (last - first).as_secs_f64();
    let mut remark = String::new();
    if let (Some((hung, _)), Some(killed), Some(reacquired)) = (story.hangs, story.killed, story.reacquired) {
        let closed = (reacquired - killed).as_secs_f64();
        row("locked after the kill", format!("{closed:>7.2} s"), &format!("the lease is {LEASE:?}"));
        let blocked = (reacquired - hung).as_secs_f64();
        busy -= blocked;
        remark = format!(", without the {blocked:.1} s in which worker {VICTIM} blocked the others");
    }
    row("locks lost during work", story.locks_lost, "");
    let rate = found.jobs as f64 / busy;
    row("jobs per second", format!("{rate:>9.0}"), &format!("in {busy:.1} s{remark}"));
}

fn row(what: &str, value: impl std::fmt::Display, remark: &str) {
    println!("{}", format!("  {what:<26}{value:>9}  {remark}").trim_end());
}
