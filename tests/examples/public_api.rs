//! Prints the public API of a crate, from rustdoc's JSON: `public_api FILE`. `scripts/api` compares it with what is
//! recorded. Ends with status 3 if this compiler writes a format of JSON that cannot be read here.

#![allow(clippy::print_stdout, reason = "this is its output")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("usage: public_api FILE");
        return ExitCode::from(2);
    };
    // What every type has, or derives, would hide what is particular to it.
    let api = public_api::Builder::from_rustdoc_json(file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build();
    match api {
        Ok(api) => {
            println!("{api}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(3)
        }
    }
}
