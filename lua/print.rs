//! Prints a script as a server gets it. `scripts/lua` compiles and runs this.

#![allow(missing_docs, unused, reason = "a program of one page")]

#[path = "join.rs"]
mod join;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [lua, file, options @ ..] = &args[..] else { panic!("print <folder> <script> [--cluster]") };
    let text = join::joined(lua.as_ref(), file);
    print!("{}", if options == ["--cluster"] { join::sharded(&text) } else { text });
}
