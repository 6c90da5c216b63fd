//! The arguments of `cargo local`.

/// What `--help` prints.
pub const HELP: &str = "\
usage: cargo local [--port PORT] [--store STORE] [--demo]

  The whole bundle on this machine, and a page to play on.

  --port PORT    listen there (9000; 0 takes a free one)
  --store STORE  memory, upstash, redis or dynamodb, instead of the variable STORE; the others need their variables,
                 and dynamodb a build by `cargo local-dynamodb`, which has the same options
  --demo         tell the story in the terminal, on a free port, and say whether it was told right
";

/// What the arguments ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `--help`
    Help,
    /// Run, with the page or with the demo.
    Run(Options),
}

/// The options of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--port`
    pub port: Option<u16>,
    /// `--store`: replaces the variable `STORE`.
    pub store: Option<String>,
    /// `--demo`
    pub demo: bool,
    /// The webhook's time limits. No argument sets them; tests do.
    pub times: webhook::Times,
}

impl Command {
    /// Parses the arguments after the program's name. An error is one line.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, String> {
        let mut options = Options::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (name, attached) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            let mut value = |what: &str| {
                let value = attached.clone().or_else(|| arguments.next()).filter(|value| !value.is_empty());
                value.ok_or_else(|| format!("{name} needs {what}"))
            };
            match name {
                "-h" | "--help" => return Ok(Command::Help),
                "--demo" if attached.is_none() => options.demo = true,
                "--store" => options.store = Some(value("a store: memory, upstash, redis or dynamodb")?),
                "--port" => {
                    let port = value("a port")?;
                    let wrong = |_| format!("--port: `{port}` is not a port, 0 to 65535");
                    options.port = Some(port.parse().map_err(wrong)?);
                }
                _ => return Err(format!("`{argument}` is not an argument of this; --help lists them")),
            }
        }
        Ok(Command::Run(options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Command, String> {
        Command::parse(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn every_argument_is_understood_with_a_space_or_an_equals_sign() {
        let all =
            Options { port: Some(8000), store: Some("redis".to_owned()), demo: true, ..Options::default() };
        assert_eq!(parse(&["--port", "8000", "--store=redis", "--demo"]), Ok(Command::Run(all)));
        assert_eq!(parse(&[]), Ok(Command::Run(Options::default())));
        assert_eq!(parse(&["--demo", "-h"]), Ok(Command::Help));
    }

    #[test]
    fn what_is_wrong_is_named_in_one_line() {
        for (arguments, named) in [
            (&["--prot", "9"][..], "--prot"),
            (&["9000"], "9000"),
            (&["--demo=yes"], "--demo=yes"),
            (&["--port"], "--port"),
            (&["--port", "70000"], "70000"),
            (&["--port", "http"], "http"),
            (&["--store="], "--store"),
        ] {
            let wrong = parse(arguments).unwrap_err();
            assert!(wrong.contains(named) && wrong.lines().count() == 1, "{wrong}");
        }
    }
}
