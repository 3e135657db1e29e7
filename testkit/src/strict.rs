//! Services that want the keys of a script to be declared, as some managed services do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::{Proxy, lua};

/// What a service wants of the keys of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "tests look at each of them")]
pub enum Wants {
    /// At least one: it routes by that.
    AKey,
    /// Each key that the script uses.
    AllKeys,
}

impl Wants {
    /// How a service says that a script lacks a key.
    pub const fn refusal(self) -> &'static str {
        match self {
            Self::AKey => "ERR Lua scripts without any input keys are not supported.",
            Self::AllKeys => "ERR script tried accessing undeclared key, key: ",
        }
    }
}

/// A service of this kind in front of a server. It has a thread of its own, so it uses no task of a test.
#[derive(Debug)]
pub struct Strict {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Strict {
    /// Listens on a free port, and forwards to the server on this port what the service does not refuse.
    pub fn before(upstream: u16, wants: Wants) -> Self {
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let proxy = Proxy::to(upstream).await;
            match wants {
                Wants::AKey => want_a_key(&proxy),
                Wants::AllKeys => want_all_keys(&proxy),
            }
            tell.send(proxy.port()).expect("the caller waits");
            let _ = stopped.await;
        };
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let thread = thread::spawn(move || runtime.block_on(serve));
        Self { port: told.recv().expect("it listens"), stop: Some(stop), thread: Some(thread) }
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port on which it listens, of the address 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the service panicked");
    }
}

fn want_a_key(proxy: &Proxy) {
    proxy.answer(|words| {
        let is_refused = is_script(&words[0]) && words.get(2).is_some_and(|count| count == "0");
        is_refused.then(|| format!("-{}\r\n", Wants::AKey.refusal()))
    });
}

/// Puts a [`GUARD`] into each script. The server gets no hashes: it would know the scripts without it.
fn want_all_keys(proxy: &Proxy) {
    let known: HashMap<String, String> = lua::sources()
        .iter()
        .flat_map(|source| [source.clone(), lua::sharded(source)])
        .map(|source| (hash(&source), guarded(&source)))
        .collect();
    let known = Arc::new(Mutex::new(known));
    let guards = Arc::clone(&known);
    proxy.replace(move |words| {
        let [command, script, rest @ ..] = words else { return None };
        let script = String::from_utf8_lossy(script);
        let mut known = guards.lock().unwrap();
        let text = match *command {
            b"EVAL" => known.entry(hash(&script)).or_insert_with(|| guarded(&script)),
            b"EVALSHA" => known.get_mut(&*script)?,
            _ => return None,
        };
        Some([&[b"EVAL", text.as_bytes()], rest].concat().into_iter().map(<[u8]>::to_vec).collect())
    });
    proxy.answer(move |words| {
        let is_unknown = words[0] == "EVALSHA" && !known.lock().unwrap().contains_key(&words[1]);
        is_unknown.then(|| "-NOSCRIPT No matching script.\r\n".to_owned())
    });
}

fn is_script(command: &str) -> bool {
    command == "EVAL" || command == "EVALSHA"
}

fn hash(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

fn guarded(text: &str) -> String {
    let (first_line, rest) = text.split_once('\n').unwrap_or((text, ""));
    format!("{first_line}\n{GUARD}{rest}")
}

/// Refuses commands on keys that are not in `KEYS`. Of the commands without a key, it knows those that the scripts of lockkeeper run.
const GUARD: &str = "\
local redis = (function()
  local server, declared = redis, {}
  for _, key in ipairs(KEYS) do
    declared[key] = true
  end
  local without_key = { time = true, publish = true, spublish = true, scan = true, pubsub = true }
  local all_are_keys = { del = true, exists = true }
  local function refusal(words)
    local command = string.lower(words[1])
    for i = 2, without_key[command] and 1 or all_are_keys[command] and #words or 2 do
      if not declared[words[i]] then
        return { err = 'ERR script tried accessing undeclared key, key: ' .. tostring(words[i]) }
      end
    end
    return nil
  end
  return {
    acl_check_cmd = server.acl_check_cmd,
    pcall = function(...)
      return refusal({ ... }) or server.pcall(...)
    end,
    call = function(...)
      local refused = refusal({ ... })
      if refused then
        error(refused)
      end
      return server.call(...)
    end,
  }
end)()
";

#[cfg(test)]
mod tests {
    use redis::{Client, Cmd, RedisResult, cmd};

    use super::*;
    use crate::Server;

    fn run(service: &Strict, command: &Cmd) -> RedisResult<Option<String>> {
        command.query(&mut Client::open(service.url()).unwrap().get_connection().unwrap())
    }

    #[test]
    fn scripts_are_refused_whose_keys_are_not_declared() {
        let server = Server::start();
        server.run::<()>(&["SET", "a", "\u{e4}"]);
        let both = [Wants::AKey, Wants::AllKeys].map(|wants| Strict::before(server.port(), wants));
        let get = |name: &str, keys: &[&str], args: &[&str]| {
            let text = "#!lua\nreturn redis.call('get', KEYS[1] or ARGV[1])";
            let script = if name == "EVAL" { text.to_owned() } else { hash(text) };
            cmd(name).arg(script).arg(keys.len()).arg(keys).arg(args).clone()
        };
        for service in &both {
            let error = run(service, &get("EVALSHA", &["a"], &[])).unwrap_err();
            assert_eq!(error.code(), Some("NOSCRIPT"));
            for name in ["EVAL", "EVALSHA"] {
                assert_eq!(run(service, &get(name, &["a"], &[])).unwrap().as_deref(), Some("\u{e4}"));
                assert!(run(service, &get(name, &[], &["a"])).is_err());
            }
        }
        let [a_key, all_keys] = &both;
        let said = |service, keys: &[&str]| {
            let text = "#!lua\nlocal reply = redis.pcall('exists', KEYS[1] or 'b', ARGV[1])\nreturn reply.err or 'none'";
            run(
                service,
                cmd("EVAL")
                    .arg(text.replace("reply.err", "type(reply) == 'table' and reply.err"))
                    .arg(keys.len())
                    .arg(keys)
                    .arg("a"),
            )
        };
        assert_eq!(said(a_key, &["b"]).unwrap().as_deref(), Some("none"));
        assert_eq!(said(all_keys, &["a"]).unwrap().as_deref(), Some("none"));
        let refused = said(all_keys, &["b"]).unwrap().unwrap();
        assert!(refused.starts_with(Wants::AllKeys.refusal()), "{refused}");
        assert_eq!(run(all_keys, cmd("GET").arg("a")).unwrap().as_deref(), Some("\u{e4}"));
    }
}
