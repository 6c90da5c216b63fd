//! A contestant: a program that is given orders and answers them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{from_str, to_string};

use crate::Result;
use crate::orders::{Answer, Counted, Measure, Measured, Order};

/// A program that takes orders on its standard input. It ends when this is dropped.
#[derive(Debug)]
pub struct Contestant {
    name: String,
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Contestant {
    /// Starts `program`. What it says on standard error goes to a file of its own.
    pub fn start(
        name: &str,
        program: &Path,
        arguments: &[PathBuf],
        variables: &[(String, String)],
    ) -> Result<Contestant> {
        let complaints = std::fs::File::create(format!("target/bench/{name}.log"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints)
            .spawn()
            .map_err(|error| {
                format!("{}: {error}; scripts/bench installs and builds it", program.display())
            })?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let (orders, answers) = orders.zip(answers).ok_or("a contestant without pipes")?;
        Ok(Contestant { name: name.to_owned(), child, orders, answers: BufReader::new(answers) })
    }

    /// Measures, one answer for each side.
    pub fn measure(&mut self, order: Measure) -> Result<Vec<Measured>> {
        match self.ask(&Order::Measure(order))? {
            Answer::Measured(measured) => Ok(measured),
            other => Err(self.complaint(&other)),
        }
    }

    /// What one call sends and receives.
    pub fn count(&mut self, call: crate::orders::Call, store: &str) -> Result<Counted> {
        match self.ask(&Order::Count { call, store: store.to_owned() })? {
            Answer::Counted(counted) => Ok(counted),
            other => Err(self.complaint(&other)),
        }
    }

    fn ask(&mut self, order: &Order) -> Result<Answer> {
        writeln!(self.orders, "{}", to_string(order)?)?;
        self.orders.flush()?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("{0} ended; see target/bench/{0}.log", self.name).into());
        }
        Ok(from_str(&line)?)
    }

    fn complaint(&self, answer: &Answer) -> crate::Error {
        let reason = match answer {
            Answer::Failed(reason) => reason.as_str(),
            _ => "an answer to another question",
        };
        format!("{0}: {reason}; see target/bench/{0}.log", self.name).into()
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
