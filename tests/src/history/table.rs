//! What happened, by fault and backend, and what the clients did, by operation and backend: the tables of
//! `docs/guarantees.md`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::arena::Backend;
use super::event::Layer;
use super::operations::{KINDS, is_confirmed, kind};
use super::run::Outcome;
use super::schedule::Kind;

/// A cell: how often a fault was injected, and what happened meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cell {
    /// Times.
    pub injected: usize,
    /// Calls of the store that overlap with it.
    pub calls: usize,
    /// Violations that overlap with it.
    pub violations: usize,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cell { injected, calls, violations } = *self;
        write!(f, "{} × · {} · {}", grouped(injected), grouped(calls), grouped(violations))
    }
}

/// All of a backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    /// All faults, calls and violations.
    pub cell: Cell,
    /// Calls without a certain answer.
    pub unknown: usize,
    /// Runs.
    pub runs: usize,
}

/// The runs so far.
#[derive(Debug, Default)]
pub struct Table {
    faults: BTreeMap<(Kind, Backend), Cell>,
    totals: BTreeMap<Backend, Total>,
    /// How many calls of each kind there were, and how many of them were confirmed.
    kinds: BTreeMap<(&'static str, Backend), (usize, usize)>,
}

impl Table {
    /// Adds a run.
    pub fn add(&mut self, outcome: &Outcome) {
        let (backend, history) = (outcome.backend, &outcome.history);
        for kind in Kind::on(backend) {
            let windows: Vec<(u64, u64)> = history
                .faults
                .iter()
                .filter(|fault| fault.kind == kind.name())
                .map(|fault| (fault.from, fault.to))
                .collect();
            let meets = |from: u64, to: u64| windows.iter().any(|window| from <= window.1 && to >= window.0);
            let cell = self.faults.entry((kind, backend)).or_default();
            cell.injected += windows.len();
            let calls = history.operations.iter().filter(|operation| operation.layer == Layer::Store);
            cell.calls += calls.filter(|call| meets(call.start, call.end.unwrap_or(call.start))).count();
            cell.violations += outcome.report.violations.iter().filter(|bad| meets(bad.from, bad.to)).count();
        }
        let total = self.totals.entry(backend).or_default();
        total.cell.injected += history.faults.len();
        total.cell.calls += outcome.report.calls;
        total.cell.violations += outcome.report.violations.len();
        total.unknown += outcome.report.unknown;
        total.runs += 1;
        for operation in &history.operations {
            if let Some(kind) = kind(operation) {
                let (calls, confirmed) = self.kinds.entry((kind, backend)).or_default();
                *calls += 1;
                *confirmed += usize::from(is_confirmed(&operation.answer));
            }
        }
    }

    /// All of a backend so far.
    pub fn total(&self, backend: Backend) -> Total {
        self.totals.get(&backend).copied().unwrap_or_default()
    }

    /// How many calls of a kind were confirmed, on all backends.
    pub fn confirmed(&self, kind: &'static str) -> usize {
        let of_kind = self.kinds.iter().filter(|((this, _), _)| *this == kind);
        of_kind.map(|(_, (_, confirmed))| confirmed).sum()
    }

    /// The faults, as Markdown. A fault that a backend cannot have is a dash.
    pub fn faults(&self) -> String {
        let mut text = self.head("fault");
        for kind in Kind::ALL {
            let cell = |backend| self.faults.get(&(kind, backend)).map_or("–".to_owned(), Cell::to_string);
            self.row(&mut text, kind.name(), cell);
        }
        self.row(&mut text, "**all**", |backend| format!("**{}**", self.total(backend).cell));
        text
    }

    /// What the clients did, as Markdown: calls, and how many of them were confirmed.
    pub fn operations(&self) -> String {
        let mut text = self.head("operation");
        for kind in KINDS {
            let counts = |backend| self.kinds.get(&(kind, backend)).copied().unwrap_or_default();
            self.row(&mut text, kind, |backend| {
                let (calls, confirmed) = counts(backend);
                format!("{} · {}", grouped(calls), grouped(confirmed))
            });
        }
        text
    }

    /// Both tables after the command that repeats the run, as `docs/guarantees.md` has them.
    pub fn page(&self, command: &str) -> String {
        format!("`{command}`\n\n{}\n{}", self.faults(), self.operations())
    }

    fn head(&self, first: &str) -> String {
        let names: Vec<&str> = self.totals.keys().map(|backend| backend.name()).collect();
        format!("| {first} | {} |\n|---|{}\n", names.join(" | "), "---:|".repeat(names.len()))
    }

    fn row(&self, text: &mut String, first: &str, cell: impl Fn(Backend) -> String) {
        let cells: Vec<String> = self.totals.keys().map(|backend| cell(*backend)).collect();
        let _ = writeln!(text, "| {first} | {} |", cells.join(" | "));
    }
}

/// A number with a space between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::check::{Report, Violation};
    use crate::history::event::{Answer, Call, Fault};
    use crate::history::history::{History, Operation};

    fn operation(layer: Layer, call: Call, start: u64, answer: Answer) -> Operation {
        Operation { client: "c".to_owned(), skew: 0, layer, call, start, end: Some(start + 5), answer }
    }

    /// A call and its read of the store during a lost reply, and 1233 calls after it that are unknown.
    fn outcome(backend: Backend, violations: Vec<Violation>) -> Outcome {
        let value = Answer::Value(None);
        let mut operations = vec![
            operation(Layer::Api, Call::OwnGet("k".to_owned()), 10, value.clone()),
            operation(Layer::Store, Call::Get("k".to_owned()), 10, value),
        ];
        let late = operation(Layer::Store, Call::Get("k".to_owned()), 100, Answer::Unknown);
        operations.extend(std::iter::repeat_n(late, 1233));
        let faults = vec![Fault { kind: Kind::ReplyLost.name().to_owned(), from: 0, to: 12 }];
        let history = History { operations, faults };
        let report = Report { calls: history.calls(), unknown: history.unknown(), violations };
        Outcome { backend, seed: 1, history, report }
    }

    #[test]
    fn the_tables_have_faults_and_operations_as_rows_and_backends_as_columns() {
        let mut table = Table::default();
        let bad = Violation { what: "bad".to_owned(), calls: Vec::new(), from: 11, to: 13 };
        table.add(&outcome(Backend::DynamoDb, vec![bad]));
        table.add(&outcome(Backend::Memory, Vec::new()));
        table.add(&outcome(Backend::Memory, Vec::new()));
        let page = table.page("scripts/soak --minutes 10 --backend all --seed 7");
        let lines: Vec<&str> = page.lines().collect();
        let faults = [
            "`scripts/soak --minutes 10 --backend all --seed 7`",
            "",
            "| fault | memory | dynamodb |",
            "|---|---:|---:|",
            "| request lost | 0 × · 0 · 0 | 0 × · 0 · 0 |",
            "| reply lost | 2 × · 2 · 0 | 1 × · 1 · 1 |",
        ];
        assert_eq!(lines[..6], faults);
        let others = [
            "| server restarted | – | 0 × · 0 · 0 |",
            "| clock skewed by a lease | – | 0 × · 0 · 0 |",
            "| **all** | **2 × · 2 468 · 0** | **1 × · 1 234 · 1** |",
            "",
            "| operation | memory | dynamodb |",
            "|---|---:|---:|",
            "| key: read | 2 · 2 | 1 · 1 |",
        ];
        assert_eq!(lines[10..17], others);
        assert_eq!(lines.len(), 16 + KINDS.len());
        assert_eq!((table.total(Backend::Memory).unknown, table.total(Backend::Memory).runs), (2466, 2));
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 1_065_077].map(grouped), ["0", "999", "1 000", "1 065 077"]);
    }

    #[test]
    fn the_page_has_both_tables_in_this_form() {
        let mut table = Table::default();
        for backend in Backend::ALL {
            table.add(&outcome(backend, Vec::new()));
        }
        let form = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == ' ', "");
        let page = include_str!("../../../docs/guarantees.md");
        let tables = format!("\n{}\n{}", table.faults(), table.operations());
        assert!(form(page).contains(&form(&tables)), "docs/guarantees.md lacks tables like these:\n{tables}");
    }
}
