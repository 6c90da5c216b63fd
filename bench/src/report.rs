//! The table, and the same as JSON.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::stats::Spread;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// A second.
    PerSecond,
    /// Seconds of processor time for a thousand calls.
    CpuSeconds,
    /// Megabytes of 1 000 000 bytes.
    Megabytes,
    /// Bytes.
    Bytes,
    /// Pieces.
    Pieces,
}

impl Unit {
    /// The number with its unit.
    pub fn show(self, value: f64) -> String {
        let digits = |value: f64| match value.abs() {
            v if v >= 100.0 => format!("{value:.0}"),
            v if v >= 10.0 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        };
        match self {
            Unit::Micros => format!("{} µs", digits(value)),
            Unit::Millis => format!("{} ms", digits(value)),
            Unit::PerSecond => format!("{}/s", thousands(value)),
            Unit::CpuSeconds => format!("{value:.3} s"),
            Unit::Megabytes => format!("{} MB", digits(value)),
            Unit::Bytes => format!("{} B", thousands(value)),
            Unit::Pieces if value.fract() != 0.0 => digits(value),
            Unit::Pieces => thousands(value),
        }
    }
}

fn thousands(value: f64) -> String {
    let plain = format!("{value:.0}");
    let mut text = String::new();
    for (n, digit) in plain.chars().enumerate() {
        if n > 0 && (plain.len() - n).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// What a row should reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The ratio, at most.
    RatioAtMost(f64),
    /// The ratio, at least.
    RatioAtLeast(f64),
    /// Our own number, at most.
    AtMost(f64),
    /// Our own number, at least.
    AtLeast(f64),
}

impl Target {
    /// The number.
    pub fn limit(self) -> f64 {
        match self {
            Target::RatioAtMost(limit) | Target::RatioAtLeast(limit) => limit,
            Target::AtMost(limit) | Target::AtLeast(limit) => limit,
        }
    }
}

/// One row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What it belongs to.
    pub section: String,
    /// What was measured.
    pub name: String,
    /// In what.
    pub unit: Unit,
    /// Our number, the median of the rounds.
    pub ours: f64,
    /// With what it is compared.
    pub against: String,
    /// The other's number, the median of the rounds.
    pub other: Option<f64>,
    /// Ours divided by the other's, round by round.
    pub ratio: Option<Spread>,
    /// What it should reach.
    pub target: Option<Target>,
    /// Whether it does.
    pub hit: Option<bool>,
    /// What else was seen in the same rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// Another figure of the same rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Detail {
    /// What it is.
    pub name: String,
    /// In what.
    pub unit: Unit,
    /// Ours, the median of the rounds.
    pub ours: f64,
    /// The other's, the median of the rounds.
    pub other: f64,
}

impl Row {
    /// A number of ours.
    pub fn new(section: &str, name: impl Into<String>, unit: Unit, ours: f64) -> Row {
        Row {
            section: section.to_owned(),
            name: name.into(),
            unit,
            ours,
            against: String::new(),
            other: None,
            ratio: None,
            target: None,
            hit: None,
            details: Vec::new(),
        }
    }

    /// Adds another figure of the same rounds.
    #[must_use]
    pub fn detail(mut self, name: &str, unit: Unit, rounds: &[(f64, f64)]) -> Row {
        let ours = Spread::of(rounds.iter().map(|(ours, _)| *ours)).median;
        let other = Spread::of(rounds.iter().map(|(_, other)| *other)).median;
        self.details.push(Detail { name: name.to_owned(), unit, ours, other });
        self
    }

    /// Both numbers of every round: ours, and the other's.
    pub fn compared(
        section: &str,
        name: impl Into<String>,
        unit: Unit,
        against: &str,
        rounds: &[(f64, f64)],
    ) -> Row {
        let ours = Spread::of(rounds.iter().map(|(ours, _)| *ours)).median;
        let other = Spread::of(rounds.iter().map(|(_, other)| *other)).median;
        Row {
            against: against.to_owned(),
            other: Some(other),
            ratio: Some(Spread::of(rounds.iter().map(|(ours, other)| ours / other))),
            ..Row::new(section, name, unit, ours)
        }
    }

    /// What it should reach.
    #[must_use]
    pub fn target(self, target: Target) -> Row {
        let ratio = self.ratio.map_or(f64::NAN, |ratio| ratio.median);
        let hit = match target {
            Target::RatioAtMost(most) => ratio <= most,
            Target::RatioAtLeast(least) => ratio >= least,
            Target::AtMost(most) => self.ours <= most,
            Target::AtLeast(least) => self.ours >= least,
        };
        Row { target: Some(target), hit: Some(hit), ..self }
    }

    /// What it should reach, if anything.
    #[must_use]
    pub fn maybe_target(self, target: Option<Target>) -> Row {
        match target {
            Some(target) => self.target(target),
            None => self,
        }
    }

    fn cells(&self) -> [String; COLUMNS] {
        let other = self.other.map(|other| format!("{} {}", self.against, self.unit.show(other)));
        let ratio = self.ratio.map(|ratio| format!("{:.2} ×", ratio.median)).unwrap_or_default();
        let spread =
            self.ratio.map(|ratio| format!("{:.2}–{:.2}", ratio.low, ratio.high)).unwrap_or_default();
        let target = self.target.map(|target| match target {
            Target::RatioAtMost(most) => format!("≤ {most} ×"),
            Target::RatioAtLeast(least) => format!("≥ {least} ×"),
            Target::AtMost(most) => format!("≤ {}", self.unit.show(most)),
            Target::AtLeast(least) => format!("≥ {}", self.unit.show(least)),
        });
        let details: Vec<String> = self
            .details
            .iter()
            .map(|Detail { name, unit, ours, other }| {
                format!("{name} {} : {}", unit.show(*ours), unit.show(*other))
            })
            .collect();
        let hit = match self.hit {
            None => "",
            Some(true) => "  hit",
            Some(false) => "  MISSED",
        };
        [
            self.name.clone(),
            self.unit.show(self.ours),
            other.unwrap_or_else(|| self.against.clone()),
            ratio,
            spread,
            target.unwrap_or_default() + hit,
            details.join(", "),
        ]
    }
}

const COLUMNS: usize = 7;

/// All rows, and what they were measured on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Processor, memory, versions.
    pub machine: std::collections::BTreeMap<String, String>,
    /// Whether it was a quick run.
    pub quick: bool,
    /// How long all of it took, in seconds.
    pub seconds: f64,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Report {
    /// The rows of a section.
    pub fn section<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.section == section)
    }

    /// The one table.
    pub fn table(&self) -> String {
        let heads = ["", "ours", "against", "ratio", "spread", "target", "ours : theirs"].map(str::to_owned);
        let cells: Vec<[String; COLUMNS]> = self.rows.iter().map(Row::cells).collect();
        let width = |column: usize| {
            let all = cells.iter().chain([&heads]).map(|row| row[column].chars().count());
            all.max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
        let mut text = String::new();
        let mut line = |row: &[String]| {
            for (n, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                // Numbers to the right, words to the left.
                let _ = if matches!(n, 1 | 3) {
                    write!(text, "{pad}{cell}  ")
                } else {
                    write!(text, "{cell}{pad}  ")
                };
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        };
        let mut section = "";
        line(&heads);
        for (row, cells) in self.rows.iter().zip(&cells) {
            if row.section != section {
                section = &row.section;
                line(&[]);
                line(&[section.to_uppercase()]);
            }
            line(cells);
        }
        let judged: Vec<bool> = self.rows.iter().filter_map(|row| row.hit).collect();
        let hit = judged.iter().filter(|hit| **hit).count();
        let _ = writeln!(text, "\n{hit} of {} targets hit, in {:.0} s", judged.len(), self.seconds);
        text
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_judged_by_its_median() {
        let row =
            Row::compared("store", "get", Unit::Micros, "bare", &[(11.0, 10.0), (12.0, 10.0), (30.0, 10.0)]);
        assert_eq!(row.ratio.unwrap().median, 1.2);
        assert_eq!(row.clone().target(Target::RatioAtMost(1.2)).hit, Some(true));
        assert_eq!(row.target(Target::RatioAtMost(1.15)).hit, Some(false));
    }

    #[test]
    fn what_was_not_compared_misses_a_ratio() {
        assert_eq!(Row::new("a", "b", Unit::Pieces, 1.0).target(Target::RatioAtMost(9.0)).hit, Some(false));
    }

    #[test]
    fn the_table_names_hits_and_misses() {
        let row = |ours| Row::new("size", "binary", Unit::Megabytes, ours).target(Target::AtMost(4.0));
        let report = Report { rows: vec![row(3.0), row(5.0)], ..Report::default() };
        let table = report.table();
        assert!(table.contains("≤ 4.00 MB  hit") && table.contains("≤ 4.00 MB  MISSED"), "{table}");
        assert!(table.contains("1 of 2 targets hit"), "{table}");
    }

    #[test]
    fn numbers_are_shown_with_as_many_digits_as_they_deserve() {
        assert_eq!(Unit::Micros.show(31.26), "31.3 µs");
        assert_eq!(Unit::PerSecond.show(1234567.0), "1 234 567/s");
        assert_eq!(Unit::Pieces.show(2.0), "2");
    }
}
