//! The table of the candidates and what each of them does.

use super::table::Table;

pub const TITLE: &str = "What is compared";

pub const TEXT: &str = "\
Each crate is used as its README shows, with its own defaults for waiting and a lease of 30 s. *Bare* sends lockkeeper's
scripts with nothing around them: it survives no fault, and renews nothing. Redisson has its default configuration. It
runs in a warm JVM, with one thread per task; one command starts all of them.

On a free lock some crates are faster than lockkeeper. The columns show why: a SET costs the server less than a script,
and a script without PUBLISH wakes no waiter.";

const COMPARED: [[&str; 6]; 9] = [
    ["lockkeeper", "script", "script", "yes", "yes", "message"],
    ["bare", "lockkeeper's script", "lockkeeper's script", "", "", "message"],
    ["Redisson's scripts, bare", "Redisson's script", "Redisson's script, then DEL", "", "", "message"],
    ["Redisson, JVM", "script", "script, then DEL", "yes", "yes", "message"],
    ["rslock", "SET NX", "script of GET, DEL", "", "", "polls after 0..200 ms"],
    ["rlock", "SET NX", "script of GET, DEL", "", "yes", "polls every 100 ms"],
    [
        "relock",
        "script of SET NX, new connection",
        "script of GET, DEL, new connection",
        "",
        "",
        "polls every 200 ms",
    ],
    ["distkit", "SET NX", "script of GET, DEL", "", "yes", "polls every 50 ms"],
    ["async-redis-lock", "script of EXISTS, SET", "script of GET, DEL", "", "yes", "polls every 100 ms"],
];

pub fn table() -> Table {
    let mut table = Table::new(["candidate", "acquire", "release", "re-entry", "renewal", "waiting"]);
    COMPARED.into_iter().for_each(|row| table.row(row.map(Into::into)));
    table
}
