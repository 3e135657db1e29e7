//! Runs scripts.
//!
//! Each thread has one Lua interpreter, which keeps the compiled scripts by their hash.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value, Variadic};

use crate::number;
use crate::value::Bytes;
use crate::wire::Reply;

/// What a script can call.
pub(crate) trait Host {
    /// A script begins. An error if it may not.
    fn begin(&mut self, _source: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Runs a command.
    fn call(&mut self, words: &[Bytes]) -> Reply;

    /// A script ended a part of itself, which it ran with `pcall`: with these values, and with this reply.
    fn ran_part(&mut self, _values: Vec<Bytes>, _reply: Reply) {}

    /// Whether the command with this name, in small letters, takes so many words. `None`: there is no such command.
    fn takes(&self, name: &str, words: usize) -> Option<bool>;
}

struct Machine {
    lua: Lua,
    /// By the hash, with the text: a simulation may replace the text.
    compiled: RefCell<HashMap<String, Compiled>>,
}

/// The text of a script, and what it was compiled to.
type Compiled = (Bytes, Function);

thread_local! {
    static MACHINE: Machine = Machine::new().expect("Lua starts");
}

/// Scripts share no variables. An error that `redis.call` raises is a text for `pcall`, as on a server.
const PROTECT: &str = "
    dofile, loadfile, print = nil, nil, nil
    local protected_call, kind, text = pcall, type, tostring
    local function as_text(ran, reply, ...)
        if ran or kind(reply) == 'string' then
            return ran, reply, ...
        end
        return false, text(reply):match('^[^\\n]*')
    end
    local depth = 0
    function pcall(part, ...)
        depth = depth + 1
        local ran, reply = as_text(protected_call(part, ...))
        depth = depth - 1
        if depth == 0 then
            redis.ran_part(reply, ...)
        end
        return ran, reply
    end
    setmetatable(_G, {
        __index = function(_, name)
            error(\"Script attempted to access nonexistent global variable '\" .. tostring(name) .. \"'\", 2)
        end,
        __newindex = function() error('Attempt to modify a readonly table', 2) end,
    })
";

/// An error of a command that a script ran with `redis.call`.
#[derive(Debug)]
struct Raised {
    text: String,
    line: Option<usize>,
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}

/// Checks that a script can be run.
///
/// # Errors
///
/// The error of the server.
pub(crate) fn check(hash: &str, source: &Bytes) -> Result<(), String> {
    MACHINE.with(|machine| machine.compile(hash, source).map(drop))
}

/// Runs a script that was [checked](check).
pub(crate) fn run(hash: &str, source: &Bytes, keys: &[Bytes], args: &[Bytes], host: &mut dyn Host) -> Reply {
    MACHINE.with(|machine| {
        let function = match machine.compile(hash, source) {
            Ok(function) => function,
            Err(text) => return Reply::Error(text),
        };
        machine.run(&function, keys, args, host).unwrap_or_else(|error| Reply::Error(refusal(&error, hash)))
    })
}

impl Machine {
    fn new() -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        lua.globals().set("redis", lua.create_table()?)?;
        lua.load(PROTECT).exec()?;
        // Scripts leave little garbage. To collect it costs more than to keep it for a while.
        lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(1_000)));
        Ok(Self { lua, compiled: RefCell::default() })
    }

    fn compile(&self, hash: &str, source: &Bytes) -> Result<Function, String> {
        if let Some((text, function)) = self.compiled.borrow().get(hash)
            && (Arc::ptr_eq(text, source) || *text == *source)
        {
            return Ok(function.clone());
        }
        let function = self.lua.load(body(source)?).set_name("@user_script").into_function();
        let function = function.map_err(|error| {
            let text = error.to_string();
            let text = text.split_once("user_script:").map_or(&*text, |(_, text)| text);
            format!("ERR Error compiling script (new function): user_script:{text}")
        })?;
        self.compiled.borrow_mut().insert(hash.to_owned(), (Arc::clone(source), function.clone()));
        Ok(function)
    }

    fn run(
        &self,
        function: &Function,
        keys: &[Bytes],
        args: &[Bytes],
        host: &mut dyn Host,
    ) -> mlua::Result<Reply> {
        let (lua, globals) = (&self.lua, self.lua.globals());
        let strings = |words: &[Bytes]| -> mlua::Result<Table> {
            let strings = words.iter().map(|word| lua.create_string(word));
            lua.create_sequence_from(strings.collect::<mlua::Result<Vec<_>>>()?)
        };
        globals.raw_set("KEYS", strings(keys)?)?;
        globals.raw_set("ARGV", strings(args)?)?;
        let redis: Table = globals.raw_get("redis")?;
        let host = RefCell::new(host);
        lua.scope(|scope| {
            let call =
                scope.create_function(|lua, args: Variadic<Value>| match run_command(&host, &args) {
                    Reply::Error(text) => {
                        let line = lua.inspect_stack(1, |caller| caller.current_line()).flatten();
                        Err(mlua::Error::external(Raised { text, line }))
                    }
                    reply => to_lua(lua, &reply),
                })?;
            let pcall = scope
                .create_function(|lua, args: Variadic<Value>| to_lua(lua, &run_command(&host, &args)))?;
            let acl_check_cmd = scope.create_function(|lua, args: Variadic<Value>| {
                let name = args.first().and_then(word).unwrap_or_default();
                let name = String::from_utf8_lossy(&name).to_ascii_lowercase();
                // This server refuses a wrong number of words, as newer servers do. Redis 7.0 takes any number here.
                let problem = match host.borrow().takes(&name, args.len()) {
                    Some(true) => return Ok(true),
                    Some(false) => "Wrong number of args for",
                    None => "Invalid command passed to",
                };
                let text = format!("ERR {problem} redis.acl_check_cmd()");
                let line = lua.inspect_stack(1, |caller| caller.current_line()).flatten();
                Err(mlua::Error::external(Raised { text, line }))
            })?;
            let ran_part = scope.create_function(|_, (reply, values): (Value, Variadic<Value>)| {
                host.borrow_mut().ran_part(values.iter().filter_map(word).collect(), from_lua(&reply));
                Ok(())
            })?;
            redis.raw_set("ran_part", ran_part)?;
            redis.raw_set("call", call)?;
            redis.raw_set("pcall", pcall)?;
            redis.raw_set("acl_check_cmd", acl_check_cmd)?;
            Ok(from_lua(&function.call(())?))
        })
    }
}

const OOM: &[u8] = b"allow-oom";

/// What the first line of a script may say.
const FLAGS: [&str; 2] = ["flags=allow-oom", "flags=allow-oom,allow-cross-slot-keys"];

const CROSS_SLOTS: &[u8] = b"allow-cross-slot-keys";

/// Whether the first line of a script lets it run without memory.
pub(crate) fn allows_oom(source: &[u8]) -> bool {
    has_flag(source, OOM)
}

/// Whether a script can use keys of several slots: its first line lets it do so, or has no flags.
pub(crate) fn crosses_slots(source: &[u8]) -> bool {
    !source.starts_with(b"#!") || has_flag(source, CROSS_SLOTS)
}

/// Whether the first line of a script has this flag.
fn has_flag(source: &[u8], flag: &[u8]) -> bool {
    let line = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.windows(flag.len()).any(|part| part == flag)
}

/// The script without its first line, such as `#!lua flags=allow-oom`. The line stays as an empty one, so that lines keep their
/// numbers.
fn body(source: &[u8]) -> Result<&[u8], String> {
    if !source.starts_with(b"#!") {
        return Ok(source);
    }
    let end = source.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| "ERR Invalid script shebang".to_owned())?;
    let line = String::from_utf8_lossy(&source[2..end]);
    let mut words = line.split(' ');
    if words.next() != Some("lua") {
        return Err(format!("ERR Unexpected engine in script shebang: #!{line}"));
    }
    match words.find(|word| !FLAGS.contains(word)) {
        Some(word) => Err(format!("ERR Unknown lua shebang option: {word}")),
        None => Ok(&source[end..]),
    }
}

fn run_command(host: &RefCell<&mut dyn Host>, args: &[Value]) -> Reply {
    if args.is_empty() {
        return Reply::Error("ERR Please specify at least one argument for this redis lib call".to_owned());
    }
    match args.iter().map(word).collect::<Option<Vec<_>>>() {
        Some(words) => host.borrow_mut().call(&words),
        None => Reply::Error("ERR Lua redis lib command arguments must be strings or integers".to_owned()),
    }
}

fn word(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(Arc::from(&*text.as_bytes())),
        Value::Integer(number) => Some(number::text(*number as f64).as_bytes().into()),
        Value::Number(number) => Some(number::text(*number).as_bytes().into()),
        _ => None,
    }
}

fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let named = |name: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Bulk(bytes) => lua.create_string(bytes).map(Value::String),
        Reply::Double(text) | Reply::Verbatim(text) => lua.create_string(text).map(Value::String),
        Reply::Error(text) => named("err", text),
        Reply::Int(number) => Ok(Value::Integer(*number)),
        Reply::List(items) | Reply::Map(items) | Reply::Pairs(items) | Reply::Push(items) => {
            let items = items.iter().map(|item| to_lua(lua, item));
            lua.create_sequence_from(items.collect::<mlua::Result<Vec<_>>>()?).map(Value::Table)
        }
        Reply::Nil | Reply::NilList => Ok(Value::Boolean(false)),
        Reply::Status(text) => named("ok", text),
    }
}

fn from_lua(value: &Value) -> Reply {
    match value {
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(*number),
        #[allow(clippy::cast_possible_truncation, reason = "Redis cuts the fraction off")]
        Value::Number(number) => Reply::Int(*number as i64),
        Value::String(text) => Reply::bulk(&*text.as_bytes()),
        Value::Table(table) => from_table(table),
        _ => Reply::Nil,
    }
}

fn from_table(table: &Table) -> Reply {
    let text = |name: &str| table.raw_get::<Option<mlua::LuaString>>(name).ok().flatten();
    if let Some(text) = text("err") {
        return Reply::Error(text.to_string_lossy());
    }
    if let Some(text) = text("ok") {
        return Reply::Status(text.to_string_lossy());
    }
    let items = (1..).map_while(|index: i64| match table.raw_get::<Value>(index) {
        Ok(Value::Nil) | Err(_) => None,
        Ok(item) => Some(from_lua(&item)),
    });
    Reply::List(items.collect())
}

/// The reply to a script that failed.
fn refusal(error: &mlua::Error, hash: &str) -> String {
    let (text, line) = match error {
        mlua::Error::CallbackError { cause, .. } => return refusal(cause, hash),
        mlua::Error::RuntimeError(text) => {
            let text = text.split_once("\nstack traceback:").map_or(&**text, |(text, _)| text);
            let line = text.strip_prefix("user_script:").and_then(|text| text.split(':').next());
            (format!("ERR {text}"), line.and_then(|line| line.parse().ok()))
        }
        error => match error.downcast_ref::<Raised>() {
            Some(raised) => (raised.text.clone(), raised.line),
            None => (format!("ERR {error}"), None),
        },
    };
    let place = line.map_or_else(String::new, |line| format!(", on @user_script:{line}."));
    format!("{text} script: {hash}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each command with its words.
    struct Echo;

    impl Host for Echo {
        fn call(&mut self, words: &[Bytes]) -> Reply {
            if *words[0] == *b"fail" { Reply::Error("WRONGTYPE no".to_owned()) } else { Reply::list(words) }
        }

        fn takes(&self, name: &str, words: usize) -> Option<bool> {
            (name == "get").then_some(words == 2)
        }
    }

    fn eval(source: &str) -> Reply {
        let keys: [Bytes; 1] = [b"key".as_slice().into()];
        run(&format!("hash of {source}"), &source.as_bytes().into(), &keys, &[], &mut Echo)
    }

    #[test]
    fn values_are_translated_both_ways() {
        assert_eq!(eval("#!lua\nreturn KEYS[1]"), Reply::bulk("key"));
        assert_eq!(eval("return 3.9"), Reply::Int(3));
        assert_eq!(eval("return false"), Reply::Nil);
        assert_eq!(eval("return {1, 'a', nil, 2}"), Reply::List(vec![Reply::Int(1), Reply::bulk("a")]));
        assert_eq!(
            eval("return redis.call('x', 1, 1e15 + 0.5)"),
            Reply::List(vec![Reply::bulk("x"), Reply::bulk("1"), Reply::bulk("1000000000000000.5")])
        );
        assert_eq!(eval("return type(redis.pcall('fail'))"), Reply::bulk("table"));
        assert_eq!(eval("return redis.acl_check_cmd('GET', 'a')"), Reply::Int(1));
    }

    #[test]
    fn errors_name_the_line() {
        let text = |source: &str| match eval(source) {
            Reply::Error(text) => text,
            reply => panic!("{reply:?}"),
        };
        assert!(text("#!lua\n\nreturn redis.call('fail')").ends_with(", on @user_script:3."));
        assert!(text("#!lua\n\nreturn redis.call('fail')").starts_with("WRONGTYPE no script: hash of"));
        assert!(text("\nlocal a = nil + 1").starts_with("ERR user_script:2: attempt to perform arithmetic"));
        assert!(text("return redis.acl_check_cmd('get')").starts_with("ERR Wrong number of args for"));
        assert!(text("return redis.acl_check_cmd('put', 'a')").starts_with("ERR Invalid command"));
        assert!(text("return nothing").contains("nonexistent global variable 'nothing'"));
        assert!(text("a = 1").contains("readonly"));
        assert!(text("#!lua flags=no-writes\nreturn 1").contains("shebang"));
        assert!(text("return (").contains("Error compiling script"));
    }
}
