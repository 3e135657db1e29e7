//! The scripts, by their names: lockkeeper's as the crate has them, and Redisson's.

macro_rules! files {
    ($folder:literal, $($name:literal)*) => {
        &[$(($name, include_str!(concat!($folder, $name)))),*]
    };
}

const LOCKKEEPER: &[(&str, &str)] = files!("../../../lua/",
    "rlock/shared.lua" "rlock/acquire.lua" "rlock/reenter.lua" "rlock/release.lua" "rlock/renew.lua"
    "fair/shared.lua" "fair/acquire.lua" "fair/release.lua" "fair/heartbeat.lua"
    "fenced/acquire.lua"
    "read/shared.lua" "read/acquire.lua" "read/reenter.lua" "read/release.lua" "read/renew.lua"
    "write/acquire.lua" "write/release.lua"
);

const REDISSON: &[(&str, &str)] = files!("../../redisson/",
    "rlock/acquire.lua" "rlock/unlock.lua" "rlock/renew.lua"
    "fair/acquire.lua" "fair/unlock.lua"
    "fenced/acquire.lua"
    "read/acquire.lua" "read/unlock.lua" "read/renew.lua"
    "write/acquire.lua" "write/unlock.lua"
);

pub fn redisson(name: &str) -> String {
    find(REDISSON, name).to_owned()
}

/// A script, with the files that its header names under "With" behind its first line.
pub fn lockkeeper(name: &str) -> String {
    let script = find(LOCKKEEPER, name);
    let Some(with) = script.lines().find_map(|line| line.strip_prefix("  With  ")) else {
        return script.to_owned();
    };
    let (first_line, rest) = script.split_once('\n').expect("more than one line");
    let shared: String = with.split_whitespace().map(|name| find(LOCKKEEPER, name)).collect();
    format!("{first_line}\n{shared}{rest}")
}

fn find(files: &[(&str, &'static str)], name: &str) -> &'static str {
    let file = files.iter().find(|(known, _)| *known == name);
    file.unwrap_or_else(|| panic!("no script {name}")).1
}
