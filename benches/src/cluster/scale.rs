//! What many masters and many holds cost, calculated from the costs of a few.

use super::held::{Cost, PERIOD};
use crate::report::{Report, Table, number, percent};

const SLOTS: f64 = 16_384.0;

/// The client looks for holds that are due so many times in each period.
const TICKS: f64 = 16.0;

/// Connections of a client to each master: one for commands, as there are at least two masters, one for messages, and one for
/// questions.
const CONNECTIONS: usize = 1 + 1 + 1;

/// Holds for each command, at most.
const BATCH: f64 = 100.0;

/// The client's CPU time is proportional to the holds and to the commands.
pub fn calculate([single, cluster]: [Cost; 2], report: &mut Report) {
    let period = PERIOD.as_secs_f64();
    let holds = single.holds / period;
    let of_command = (cluster.client - single.client) / (cluster.commands - single.commands);
    let of_hold = (single.client - of_command * single.commands) / holds;
    report.section(
        "Large clusters, calculated",
        format!(
            "The client's CPU time is taken as {:.1} µs for each renewal and {:.1} µs for each command more, as measured above.\n\
             A command renews holds of one slot that are due at about the same time.",
            of_hold * 1e6,
            of_command * 1e6
        ),
    );
    let mut table = Table::new([
        "masters",
        "holds",
        "connections",
        "commands per period",
        "holds per command",
        "client CPU",
    ]);
    for (masters, holds) in [(3, 1e4), (3, 1e5), (100, 1e5), (100, 1e6)] {
        let commands = commands(holds);
        let client = (of_hold * holds + of_command * commands) / period;
        table.row([
            masters.into(),
            number(holds, 0),
            (masters * CONNECTIONS).into(),
            number(commands, 0),
            number(holds / commands, 1),
            percent(client, 1),
        ]);
    }
    report.table(table);
}

/// The commands for each period. In each tick: the slots that any of the holds has which are due then.
fn commands(holds: f64) -> f64 {
    let due = holds / TICKS;
    let slots = SLOTS * (1.0 - (-due / SLOTS).exp());
    TICKS * slots.max(due / BATCH)
}
