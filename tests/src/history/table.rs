//! Backend by fault: what happened, and what came of it. Operation by backend: what the clients did.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::arena::Backend;
use super::event::{Answer, Layer};
use super::operations::{KINDS, is_confirmed, kind};
use super::run::Outcome;
use super::schedule::Kind;

/// One row: how often a fault was injected, the calls that were under way meanwhile, and what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Times.
    pub injected: usize,
    /// Calls of the store that overlap with it.
    pub operations: usize,
    /// Those among them without a certain answer.
    pub unknown: usize,
    /// Violations that overlap with it.
    pub violations: usize,
}

/// The rows of all runs so far.
#[derive(Debug, Default)]
pub struct Table {
    rows: BTreeMap<(Backend, Kind), Row>,
    totals: BTreeMap<Backend, Row>,
    runs: BTreeMap<Backend, usize>,
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
            let row = self.rows.entry((backend, kind)).or_default();
            row.injected += windows.len();
            for operation in history.operations.iter().filter(|operation| operation.layer == Layer::Store) {
                if meets(operation.start, operation.end.unwrap_or(operation.start)) {
                    row.operations += 1;
                    row.unknown += usize::from(matches!(operation.answer, Answer::Unknown));
                }
            }
            row.violations += outcome.report.violations.iter().filter(|bad| meets(bad.from, bad.to)).count();
        }
        let total = self.totals.entry(backend).or_default();
        total.injected += history.faults.len();
        total.operations += outcome.report.calls;
        total.unknown += outcome.report.unknown;
        total.violations += outcome.report.violations.len();
        *self.runs.entry(backend).or_default() += 1;
        for operation in &history.operations {
            if let Some(kind) = kind(operation) {
                let (calls, confirmed) = self.kinds.entry((kind, backend)).or_default();
                *calls += 1;
                *confirmed += usize::from(is_confirmed(&operation.answer));
            }
        }
    }

    /// All of a backend so far, and in how many runs.
    pub fn total(&self, backend: Backend) -> (Row, usize) {
        let total = self.totals.get(&backend).copied().unwrap_or_default();
        (total, self.runs.get(&backend).copied().unwrap_or_default())
    }

    /// How many calls of a kind were confirmed, on all backends.
    pub fn confirmed(&self, kind: &'static str) -> usize {
        let of_kind = self.kinds.iter().filter(|((this, _), _)| *this == kind);
        of_kind.map(|(_, (_, confirmed))| confirmed).sum()
    }

    /// What the clients did, as Markdown: calls, and how many of them were confirmed.
    pub fn operations(&self) -> String {
        let names: Vec<&str> = self.totals.keys().map(|backend| backend.name()).collect();
        let mut text =
            format!("| operation | {} |\n|---|{}\n", names.join(" | "), "---:|".repeat(names.len()));
        for kind in KINDS {
            let _ = write!(text, "| {kind} |");
            for backend in self.totals.keys() {
                let (calls, confirmed) = self.kinds.get(&(kind, *backend)).copied().unwrap_or_default();
                let _ = write!(text, " {calls} · {confirmed} |");
            }
            text.push('\n');
        }
        text
    }

    /// The faults, as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| backend | fault | injected | operations | unknown | violations |\n|---|---|---:|---:|---:|---:|\n",
        );
        for (backend, total) in &self.totals {
            let rows = self.rows.range((*backend, Kind::RequestLost)..=(*backend, Kind::Skewed));
            for ((_, kind), row) in rows {
                line(&mut text, backend.name(), kind.name(), row);
            }
            line(&mut text, backend.name(), "**all**", total);
        }
        text
    }
}

fn line(text: &mut String, backend: &str, fault: &str, row: &Row) {
    let Row { injected, operations, unknown, violations } = row;
    let _ = writeln!(text, "| {backend} | {fault} | {injected} | {operations} | {unknown} | {violations} |");
}
