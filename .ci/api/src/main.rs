//! Prints the public API that a file of rustdoc's JSON describes, one item a line. `.ci/compile` compares it with `public_api.txt`.

fn main() {
    let file = std::env::args().nth(1).expect("the path of a file of rustdoc's JSON");
    let api = public_api::Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build();
    for item in api.expect("JSON of the right format").items() {
        println!("{item}");
    }
}
