//! The scripts by their names: lockkeeper's as the crate sends them, and Redisson's.

pub use lockkeeper_testkit::lua::source as lockkeeper;

macro_rules! files {
    ($folder:literal, $($name:literal)*) => {
        &[$(($name, include_str!(concat!($folder, $name)))),*]
    };
}

const REDISSON: &[(&str, &str)] = files!("../../redisson/",
    "rlock/acquire.lua" "rlock/unlock.lua" "rlock/renew.lua"
    "fair/acquire.lua" "fair/unlock.lua"
    "fenced/acquire.lua"
    "read/acquire.lua" "read/unlock.lua" "read/renew.lua"
    "write/acquire.lua" "write/unlock.lua"
);

pub fn redisson(name: &str) -> String {
    let file = REDISSON.iter().find(|(known, _)| *known == name);
    file.unwrap_or_else(|| panic!("no script {name}")).1.to_owned()
}
