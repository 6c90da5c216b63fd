//! A history as the checker reads it: whole calls instead of lines.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::path::Path;

use super::event::{Answer, Call, Change, Fault, Layer, Line};

/// A call from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Whose.
    pub client: String,
    /// By how many microseconds its clock was ahead.
    pub skew: i64,
    /// Of what.
    pub layer: Layer,
    /// What.
    pub call: Call,
    /// When it began.
    pub start: u64,
    /// When its client had an answer, or gave up; never, if it was killed.
    pub end: Option<u64>,
    /// The answer.
    pub answer: Answer,
}

impl Operation {
    /// Since when its effect may have been there, and until when at the latest it was: without a limit where the
    /// answer does not say.
    pub fn window(&self) -> (u64, u64) {
        let open = matches!(self.answer, Answer::Unknown);
        (self.start, self.end.filter(|_| !open).unwrap_or(u64::MAX))
    }
}

/// What all clients did, and what was done to them.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Every call, by its beginning.
    pub operations: Vec<Operation>,
    /// Every fault.
    pub faults: Vec<Fault>,
}

impl History {
    /// Adds what one journal holds. A last line without its end is one that a killed client was writing.
    pub fn add(&mut self, journal: &str) {
        let whole = journal.rfind('\n').map_or("", |end| &journal[..end]);
        let (mut client, mut ahead) = (String::new(), 0);
        let mut open: HashMap<u64, usize> = HashMap::new();
        for line in whole.lines() {
            match serde_json::from_str(line).expect("a journal holds lines of JSON") {
                Line::Client { name, skew } => (client, ahead) = (name, skew),
                Line::Fault(fault) => self.faults.push(fault),
                Line::Call { id, at, layer, call } => {
                    open.insert(id, self.operations.len());
                    let (client, answer) = (client.clone(), Answer::Unknown);
                    let operation =
                        Operation { client, skew: ahead, layer, call, start: at, end: None, answer };
                    self.operations.push(operation);
                }
                Line::Answer { id, at, answer } => {
                    let operation = &mut self.operations[open.remove(&id).expect("an answer has its call")];
                    (operation.end, operation.answer) = (Some(at), answer);
                }
            }
        }
        self.operations.sort_by_key(|operation| operation.start);
    }

    /// Every key and every log that a commit has named.
    pub fn names(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut keys, mut logs) = (BTreeSet::new(), BTreeSet::new());
        for operation in self.operations.iter().filter(|operation| operation.layer == Layer::Store) {
            let Call::Commit(changes) = &operation.call else { continue };
            for change in changes {
                match change {
                    Change::Append { log, .. } | Change::Clear { log } => logs.insert(log.clone()),
                    Change::Check { key, .. }
                    | Change::Put { key, .. }
                    | Change::Delete { key, .. }
                    | Change::Newest { key, .. } => keys.insert(key.clone()),
                };
            }
        }
        (keys, logs)
    }

    /// How many calls of the store there were.
    pub fn calls(&self) -> usize {
        self.operations.iter().filter(|operation| operation.layer == Layer::Store).count()
    }

    /// How many changes of ledgers were confirmed.
    pub fn ledger_changes(&self) -> usize {
        let confirmed = |operation: &&Operation| {
            matches!((&operation.call, &operation.answer), (Call::Ledger { .. }, Answer::Result(_)))
        };
        self.operations.iter().filter(confirmed).count()
    }

    /// How many of them never had a certain answer.
    pub fn unknown(&self) -> usize {
        let unknown = |operation: &&Operation| {
            operation.layer == Layer::Store && matches!(operation.answer, Answer::Unknown)
        };
        self.operations.iter().filter(unknown).count()
    }

    /// Keeps it where a person can read it: a line for each call, by its beginning.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let mut text = String::new();
        for fault in &self.faults {
            let _ = writeln!(text, "{:>12} ..{:>12} fault: {}", fault.from, fault.to, fault.kind);
        }
        for operation in &self.operations {
            let _ = writeln!(text, "{operation}");
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = self.end.map_or("never".to_owned(), |end| end.to_string());
        write!(f, "{:>12} ..{end:>12} {} ", self.start, self.client)?;
        if self.skew != 0 {
            write!(f, "(clock {:+} ms) ", self.skew / 1000)?;
        }
        write!(f, "{:?} {:?} -> {:?}", self.layer, self.call, self.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, History};

    #[test]
    fn what_a_killed_client_had_begun_is_unknown_and_half_a_line_is_none() {
        let journal = concat!(
            r#"{"client":{"name":"c","skew":5}}"#,
            "\n",
            r#"{"call":{"id":0,"at":1,"layer":"store","call":{"get":"k"}}}"#,
            "\n",
            r#"{"call":{"id":1,"at":2,"layer":"store","call":{"get":"k"}}}"#,
            "\n",
            r#"{"answer":{"id":0,"at":3,"answer":{"value":null}}}"#,
            "\n",
            r#"{"answer":{"id":1,"at":4,"ans"#,
        );
        let mut history = History::default();
        history.add(journal);
        let ends: Vec<_> =
            history.operations.iter().map(|call| (call.skew, call.end, &call.answer)).collect();
        assert_eq!(ends, [(5, Some(3), &Answer::Value(None)), (5, None, &Answer::Unknown)]);
    }
}
