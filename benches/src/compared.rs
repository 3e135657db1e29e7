//! What is compared, in a table: whoever does less may well be faster.

use crate::table::Table;

const COMPARED: [[&str; 6]; 9] = [
    ["lockkeeper", "script", "script", "yes", "yes", "message"],
    ["bare", "lockkeeper's script", "lockkeeper's script", "", "", "message"],
    ["Redisson's scripts, bare", "Redisson's script", "Redisson's script, then DEL", "", "", "message"],
    ["Redisson, JVM", "script", "script, then DEL", "yes", "yes", "message"],
    ["rslock", "SET NX", "script of GET, DEL", "", "", "asks after 0..200 ms"],
    ["rlock", "SET NX", "script of GET, DEL", "", "yes", "asks every 100 ms"],
    [
        "relock",
        "script of SET NX, new connection",
        "script of GET, DEL, new connection",
        "",
        "",
        "asks every 200 ms",
    ],
    ["distkit", "SET NX", "script of GET, DEL", "", "yes", "asks every 50 ms"],
    ["async-redis-lock", "script of EXISTS, SET", "script of GET, DEL", "", "yes", "asks every 100 ms"],
];

pub fn describe() {
    println!("\n## What is compared\n");
    println!(
        "Each crate as its README uses it, with its own defaults for waiting and a lease of 30 s. Redisson as its"
    );
    println!(
        "configuration is by default, in a JVM with a thread for each task, told what to do by one order for all. The"
    );
    println!(
        "bare scripts survive no fault. Where another crate is faster on a free lock, the reason is in its columns: a SET"
    );
    println!("costs the server less than a script, and a script without PUBLISH wakes nobody.\n");
    let mut table = Table::new(["candidate", "acquire", "release", "re-entry", "renewal", "who waits"]);
    for row in COMPARED {
        table.row(row.map(str::to_owned));
    }
    print!("{table}");
}
