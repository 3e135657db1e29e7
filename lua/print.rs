//! Prints a script as a server gets it. `scripts/lua` compiles and runs this.

#![allow(missing_docs, unused, reason = "a program of one page")]

#[path = "join.rs"]
mod join;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [lua, file, options @ ..] = &args[..] else { panic!("print <folder> <script> [--cluster | --batch]") };
    let text = join::joined(lua.as_ref(), file);
    let text = match options {
        [option] if option == "--cluster" => join::sharded(&text),
        [option] if option == "--batch" => join::batch(&text),
        _ => text,
    };
    print!("{text}");
}
