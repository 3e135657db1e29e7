//! Commands that look into the server. No client can send them; simulations and tests use them.

use crate::state::Data;
use crate::value::Bytes;
use crate::wire::Reply;

/// Answers a question about the whole server. `None`: it is another command.
pub(crate) fn look(data: &Data, words: &[Bytes]) -> Option<Reply> {
    let words: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).to_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["client", "list"] => Some(data.client_list()),
        ["info", "commandstats"] => {
            let lines =
                data.calls.iter().map(|(name, calls)| format!("cmdstat_{name}:calls={calls},usec=0\r\n"));
            Some(Reply::bulk(lines.collect::<String>()))
        }
        ["keys", "*"] => Some(Reply::list(data.keyspace.keys())),
        ["pubsub", "channels"] => Some(Reply::list(data.channels.all().chain(data.shard_channels.all()))),
        _ => None,
    }
}
