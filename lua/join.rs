//! Joins scripts with what they include. `build.rs`, the crate of the tests' servers and `scripts/lua` use this file.

use std::fs;
use std::path::Path;

/// The folder of what scripts include: files that are no scripts themselves.
const INCLUDES: &str = "includes";

/// Returns the text of a script as a single server gets it: what the script includes follows its first line.
pub fn joined(lua: &Path, file: &str) -> String {
    let script = read(&lua.join(file));
    let (first_line, rest) = script.split_once('\n').expect("more than one line");
    let mut included = String::new();
    include(lua, &script, &mut Vec::new(), &mut included);
    format!("{first_line}\n{included}{rest}")
}

/// Adds what a text includes, each file once, and before it what that file includes.
fn include(lua: &Path, text: &str, known: &mut Vec<String>, included: &mut String) {
    for name in includes(text) {
        if !known.iter().any(|known| known == name) {
            known.push(name.to_owned());
            let text = read(&lua.join(INCLUDES).join(format!("{name}.lua")));
            include(lua, &text, known, included);
            included.push_str(&text);
        }
    }
}

/// The names that a script or an included file has after `With`.
pub fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("  With  ").or_else(|| line.strip_prefix("-- With  ")))
        .flat_map(str::split_whitespace)
}

/// Returns the text of a script as a server of a cluster gets it: it publishes only within the shard, and counts those who listen there.
pub fn sharded(joined: &str) -> String {
    joined.replace("'publish'", "'spublish'").replace("'pubsub', 'numsub'", "'pubsub', 'shardnumsub'")
}

/// Returns the text of a script that does for many items what the script does for one. An item has as many keys and arguments as the
/// script. The reply is a list of the replies: false for nil, and a list of its text for an error.
///
/// A script reads its keys and arguments as `KEYS[1]` and so on. Here they are parameters, so that an item costs no table.
pub fn batch(joined: &str) -> String {
    let (first_line, rest) = joined.split_once('\n').expect("more than one line");
    let (included, script) = rest.split_once("--[[\n").expect("a header");
    let (header, body) = script.split_once("]]\n").expect("the end of the header");
    let (mut parameters, mut values) = (Vec::new(), Vec::new());
    let mut body = body.trim_end().to_owned();
    let named = |all: &str| header.lines().filter(|line| line.starts_with(&format!("  {all}["))).count();
    let keys = named("KEYS");
    for (all, name) in [("KEYS", "key"), ("ARGV", "arg")] {
        let count = named(all);
        for number in 1..=count {
            body = body.replace(&format!("{all}[{number}]"), &format!("{name}_{number}"));
            parameters.push(format!("{name}_{number}"));
            values.push(format!("{all}[i * {count} + {number}]"));
        }
    }
    let (parameters, values) = (parameters.join(", "), values.join(", "));
    format!(
        "{first_line}\n{included}local function of_one({parameters})\n{body}\nend\n
local replies = {{}}
for i = 0, #KEYS / {keys} - 1 do
  local ran, reply = pcall(of_one, {values})
  if not ran then
    local text = type(reply) == 'table' and reply.err or tostring(reply)
    reply = {{ string.find(text, '^%u+ ') and text or 'ERR ' .. text }}
  end
  replies[i + 1] = reply or false
end
return replies
"
    )
}

/// The paths of all scripts below `lua/`, such as `rlock/acquire.lua`.
pub fn scripts(lua: &Path) -> Vec<String> {
    let mut scripts = lua_files(lua);
    scripts.retain(|file| !file.starts_with(INCLUDES));
    scripts
}

/// The paths below a folder of all files in Lua, sorted.
pub fn lua_files(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let entry = entry.expect("a readable folder");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        if entry.path().is_dir() {
            files.extend(lua_files(&entry.path()).iter().map(|file| format!("{name}/{file}")));
        } else if name.ends_with(".lua") {
            files.push(name);
        }
    }
    files.sort();
    files
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
