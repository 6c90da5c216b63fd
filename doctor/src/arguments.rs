//! The arguments of `cargo doctor`.

/// What `--help` prints.
pub const HELP: &str = "\
usage: cargo doctor [--json] [--send] [--seconds N]

  Checks the services that the environment names, the same that the functions read. Changes nothing that is theirs:
  it writes under random names, and removes what it wrote.

  --json       one JSON document at the end, instead of a line for each check
  --send       also asks LINE to call the webhook, with a delivery that has no events
  --seconds N  how long the store may be checked (40). More is for a store that is far away

  The exit code is 0, or 1 if anything is wrong, or 2 for other arguments. Ctrl-C removes what was written and ends with 130.
";

const MAX_SECONDS: u64 = 3600;

/// What the arguments ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `--help`
    Help,
    /// Examine.
    Examine(Options),
}

/// The options of an examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `--json`
    pub json: bool,
    /// `--send`
    pub send: bool,
    /// `--seconds`
    pub seconds: u64,
}

impl Default for Options {
    fn default() -> Options {
        // What is written is removed after that: the whole takes under a minute.
        Options { json: false, send: false, seconds: 40 }
    }
}

impl Command {
    /// Parses the arguments after the program's name. An error is one line.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, String> {
        let mut options = Options::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "-h" | "--help" => return Ok(Command::Help),
                "--json" => options.json = true,
                "--send" => options.send = true,
                "--seconds" => {
                    let seconds = arguments.next().and_then(|seconds| seconds.parse().ok());
                    let known = seconds.filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
                    options.seconds =
                        known.ok_or_else(|| format!("--seconds takes a number from 1 to {MAX_SECONDS}"))?;
                }
                _ => return Err(format!("`{argument}` is not an argument of this; --help lists them")),
            }
        }
        Ok(Command::Examine(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Command, String> {
        Command::parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn every_argument_is_understood_and_others_are_named() {
        assert_eq!(parse(&[]), Ok(Command::Examine(Options::default())));
        assert_eq!(
            parse(&["--json", "--send"]),
            Ok(Command::Examine(Options { json: true, send: true, seconds: 40 }))
        );
        let patient = Options { seconds: 120, ..Options::default() };
        assert_eq!(parse(&["--seconds", "120"]), Ok(Command::Examine(patient)));
        for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "soon"], &["--seconds", "3601"]]
        {
            assert_eq!(parse(wrong), Err("--seconds takes a number from 1 to 3600".to_owned()));
        }
        assert_eq!(parse(&["--json", "-h"]), Ok(Command::Help));
        assert!(parse(&["--jsno"]).unwrap_err().contains("--jsno"));
    }
}
