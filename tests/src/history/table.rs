//! Backend by fault: what happened, and what came of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::arena::Backend;
use super::event::{Answer, Layer};
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
    }

    /// All of a backend so far, and in how many runs.
    pub fn total(&self, backend: Backend) -> (Row, usize) {
        let total = self.totals.get(&backend).copied().unwrap_or_default();
        (total, self.runs.get(&backend).copied().unwrap_or_default())
    }

    /// As Markdown.
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
