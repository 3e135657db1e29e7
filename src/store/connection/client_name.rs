//! The name that the connections of a client have at the server.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value, cmd};
use uuid::Uuid;

use super::wire;
use crate::base::config::LockConfig;
use crate::base::fault::FaultKind;

/// With what each name begins.
const PREFIX: &str = "lockkeeper:";

/// The longest program or host in a name.
const LONGEST: usize = 64;

/// The name that the connections of a client have at the server: `lockkeeper:{client}:{identity}`.
#[derive(Default)]
pub(crate) struct ClientName {
    name: String,
    is_refused: AtomicBool,
}

impl ClientName {
    pub(crate) fn new(client: Uuid, config: &LockConfig) -> Self {
        Self { name: format!("{PREFIX}{client}:{}", identity(config)), is_refused: AtomicBool::new(false) }
    }

    /// Whether a server refused the name.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Sends the command that names the connection, in one write with others. Returns the replies to those.
    pub(crate) async fn set_with(
        &self,
        commands: &[&Cmd],
        connection: &mut MultiplexedConnection,
        server: &str,
    ) -> RedisResult<Vec<Value>> {
        let mut all = redis::pipe();
        all.add_command(cmd("CLIENT").arg("SETNAME").arg(&self.name).clone());
        commands.iter().for_each(|command| _ = all.add_command((*command).clone()));
        let mut replies = connection.send_packed_commands(&all, 0, all.len()).await?.into_iter();
        let named = replies.next().unwrap_or(Value::Nil);
        let replies = replies.map(Value::extract_error).collect::<RedisResult<_>>()?;
        self.look_at(named, server)?;
        Ok(replies)
    }

    /// Names the connection.
    pub(crate) async fn set(&self, connection: &mut MultiplexedConnection, server: &str) -> RedisResult<()> {
        self.set_with(&[], connection, server).await.map(drop)
    }

    /// Reports that the server refuses the name, once for the client. Fails only if the server wants a login.
    fn look_at(&self, reply: Value, server: &str) -> RedisResult<()> {
        let Err(error) = reply.extract_error() else { return Ok(()) };
        let fault = wire::fault(error.clone());
        if fault.kind == FaultKind::Authentication {
            return Err(error);
        }
        if !self.is_refused.swap(true, Ordering::Relaxed) {
            tracing::info!(
                %fault, server,
                "the server refuses to name the connections of this client: lists show its id only"
            );
        }
        Ok(())
    }
}

/// Returns the identity by which lists name a client with these settings. It has no spaces.
pub(crate) fn identity(config: &LockConfig) -> String {
    config.identity().map_or_else(of_process, str::to_owned)
}

/// The client and the identity in a line of `CLIENT LIST`. `None`: it is not of lockkeeper.
pub(crate) fn in_line(line: &str) -> Option<(&str, &str)> {
    let name = line.split(' ').find_map(|field| field.strip_prefix("name="))?;
    name.strip_prefix(PREFIX)?.split_once(':')
}

/// `program@host:pid`. What a name may not contain is replaced.
fn of_process() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_stem()).unwrap_or_default().to_string_lossy();
    let host = host();
    format!("{}@{}:{}", printable(&program), printable(&host), std::process::id())
}

fn printable(text: &str) -> String {
    let text = text.chars().take(LONGEST);
    text.map(|char| if char.is_ascii_graphic() { char } else { '_' }).collect()
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_a_line_and_has_no_spaces() {
        let client = Uuid::nil();
        let config = LockConfig::builder().identity("billing:7").build().expect("valid");
        let line = |config| format!("id=3 name={} age=0", ClientName::new(client, config).name);
        let id = client.to_string();
        assert_eq!(in_line(&line(&config)), Some((&*id, "billing:7")));
        let line = line(&LockConfig::default());
        let (found, identity) = in_line(&line).expect("a name");
        assert!(found == id && identity.ends_with(&format!(":{}", std::process::id())), "{line}");
        assert_eq!(in_line("id=3 name=redisson age=0"), None);
        assert_eq!(printable("mein Programm ü"), "mein_Programm__");
    }
}
