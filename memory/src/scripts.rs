//! The scripts that a server knows.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lua::{self, Host};
use crate::value::Bytes;
use crate::wire::Outcome;

const UNKNOWN: &str = "NOSCRIPT No matching script. Please use EVAL.";

const LEN_OF_HASH: usize = 40;

#[derive(Default)]
pub(crate) struct Scripts {
    /// By their hash.
    known: HashMap<String, Bytes>,
    /// Texts that are replaced in scripts.
    pub(crate) replacements: Vec<(String, String)>,
    /// There is no memory for scripts that need some.
    pub(crate) is_full: bool,
}

impl Scripts {
    /// Keeps a script. Returns its hash.
    pub(crate) fn load(&mut self, source: &Bytes) -> Result<String, String> {
        let hash = sha1_smol::Sha1::from(source).hexdigest();
        let source = self.replaced(source);
        lua::check(&hash, &source)?;
        self.known.insert(hash.clone(), source);
        Ok(hash)
    }

    /// Forgets all scripts, as a server that starts.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    fn replaced(&self, source: &Bytes) -> Bytes {
        if self.replacements.is_empty() {
            return Arc::clone(source);
        }
        let replace = |text: String, (find, replace): &(String, String)| text.replace(&**find, replace);
        let text = String::from_utf8_lossy(source).into_owned();
        self.replacements.iter().fold(text, replace).as_bytes().into()
    }

    pub(crate) fn eval(&mut self, words: &[Bytes], host: &mut dyn Host) -> Outcome {
        let (keys, args) = parameters(words)?;
        let hash = self.load(&words[1])?;
        self.run(&hash, keys, args, host)
    }

    pub(crate) fn eval_hash(&self, words: &[Bytes], host: &mut dyn Host) -> Outcome {
        let hash = String::from_utf8_lossy(&words[1]).to_ascii_lowercase();
        if hash.len() != LEN_OF_HASH {
            return Err(UNKNOWN.to_owned());
        }
        let (keys, args) = parameters(words)?;
        self.run(&hash, keys, args, host)
    }

    fn run(&self, hash: &str, keys: &[Bytes], args: &[Bytes], host: &mut dyn Host) -> Outcome {
        let source = self.known.get(hash);
        let source = source.ok_or_else(|| UNKNOWN.to_owned())?;
        if self.is_full && source.starts_with(b"#!") && !lua::allows_oom(source) {
            return Err("OOM the script has no flag allow-oom, and used memory > 'maxmemory'.".to_owned());
        }
        host.begin(source)?;
        Ok(lua::run(hash, source, keys, args, host))
    }
}

/// The keys and the arguments of a script.
pub(crate) fn parameters(words: &[Bytes]) -> Result<(&[Bytes], &[Bytes]), String> {
    let keys = std::str::from_utf8(&words[2]).ok().and_then(|text| text.parse::<i64>().ok());
    let keys = keys.ok_or_else(|| "ERR value is not an integer or out of range".to_owned())?;
    let keys = usize::try_from(keys).map_err(|_| "ERR Number of keys can't be negative".to_owned())?;
    let parameters = words[3..].split_at_checked(keys);
    parameters.ok_or_else(|| "ERR Number of keys can't be greater than number of args".to_owned())
}
