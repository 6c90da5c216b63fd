//! The README's table: every aim in one line, with the rows that it holds for. `scripts/bench` writes it there.

use std::fmt::Write;

use crate::report::{Report, Row, Target};

const BEGIN: &str = "<!-- written by scripts/bench -->\n";
const END: &str = "<!-- end -->";

/// An aim, and the rows that it holds for.
struct Aim {
    what: &'static str,
    rows: fn(&Row) -> bool,
}

fn store(row: &Row, name: &str) -> bool {
    row.section == "store" && row.name.starts_with(&format!("{name}: "))
}

fn start(row: &Row, against: &str, dynamodb: bool) -> bool {
    row.section == "start" && row.against == against && row.name.contains("DynamoDB") == dynamodb
}

fn weight(row: &Row, what: &str, dynamodb: bool) -> bool {
    row.section == "start" && row.name.ends_with(what) && row.name.contains("DynamoDB") == dynamodb
}

fn race(row: &Row, what: &str, against: &str) -> bool {
    row.section == "throughput" && row.name.contains(what) && row.against == against
}

const AIMS: [Aim; 24] = [
    Aim { what: "one call on Redis, against the bare round trip", rows: |row| store(row, "redis") },
    Aim { what: "one call on Upstash's REST API, the same", rows: |row| store(row, "upstash") },
    Aim { what: "one call on DynamoDB (dynoxide), the same", rows: |row| store(row, "dynamodb") },
    Aim { what: "one call on DynamoDB Local, the same", rows: |row| store(row, "dynamodb-local") },
    Aim {
        what: "`execute` by 64 callers, against Powertools for Python",
        rows: |row| race(row, "execute", "Powertools Python"),
    },
    Aim {
        what: "`execute` by 64 callers, against Powertools for TypeScript",
        rows: |row| race(row, "execute", "Powertools TypeScript"),
    },
    Aim {
        what: "SQS messages in batches of ten, new and again, against Powertools for Python",
        rows: |row| race(row, "SQS", "Powertools Python"),
    },
    Aim {
        what: "SQS messages in batches of ten, against Powertools for TypeScript",
        rows: |row| race(row, "SQS", "Powertools TypeScript"),
    },
    Aim {
        what: "cold start with Upstash, exec to first poll, against a bare `lambda_http`",
        rows: |row| start(row, "hello", false),
    },
    Aim { what: "cold start with DynamoDB, the same", rows: |row| start(row, "hello", true) },
    Aim {
        what: "cold start, against Python with Powertools",
        rows: |row| start(row, "Python", false) || start(row, "Python", true),
    },
    Aim {
        what: "the first tap after a cold start, against a warm one",
        rows: |row| row.section == "first tap",
    },
    Aim {
        what: "a warm webhook without outside calls, against a bare `lambda_http`",
        rows: |row| row.section == "warm",
    },
    Aim {
        what: "the first byte of a stream, against a whole answer of the same function",
        rows: |row| row.section == "stream",
    },
    Aim {
        what: "cost of a call, from 1 000 to 1 000 000 keys, events, and from 10 to 10 000 users",
        rows: |row| row.section == "scale",
    },
    Aim {
        what: "publishing an event, from 10 to 10 000 events in the job's log",
        rows: |row| row.section == "streams",
    },
    Aim { what: "memory of a warm function, Upstash", rows: |row| weight(row, "resident, warm", false) },
    Aim { what: "memory of a warm function, DynamoDB", rows: |row| weight(row, "resident, warm", true) },
    Aim { what: "binary built for Upstash alone", rows: |row| weight(row, "size of the binary", false) },
    Aim { what: "binary with every store", rows: |row| weight(row, "size of the binary", true) },
    Aim {
        what: "seeds: lock on a local Redis, p95",
        rows: |row| row.section == "seeds" && row.name.contains("lock"),
    },
    Aim {
        what: "seeds: get, set and delete on a local Redis, p95",
        rows: |row| row.section == "seeds" && row.name.ends_with("p95") && !row.name.contains("lock"),
    },
    Aim {
        what: "seeds: writes and reads a second of one caller",
        rows: |row| row.section == "seeds" && row.name.ends_with("one caller"),
    },
    Aim { what: "round trips of a call", rows: |row| row.section == "counts" },
];

/// The table, as Markdown.
pub fn table(report: &Report) -> String {
    let mut text = String::from(
        "| what | aim | seen, in the best and the worst row | rows that hit |\n|---|---|---|---|\n",
    );
    for aim in AIMS {
        let rows: Vec<&Row> =
            report.rows.iter().filter(|row| row.target.is_some() && (aim.rows)(row)).collect();
        let Some(target) = rows.first().and_then(|row| row.target) else { continue };
        let hits = rows.iter().filter(|row| row.hit == Some(true)).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {hits} of {} |",
            aim.what,
            wanted(&rows, target),
            seen(&rows, target),
            rows.len()
        );
    }
    let judged = report.rows.iter().filter(|row| row.hit.is_some()).count();
    let hits = report.rows.iter().filter(|row| row.hit == Some(true)).count();
    let processor = report.machine.get("processor").map_or("", String::as_str);
    let cores = report.machine.get("cores").map_or("", String::as_str);
    let _ = writeln!(text, "\n{hits} of {judged} aims hit, on {cores} cores of {processor}.");
    text
}

/// What the rows should reach; from and to where they differ.
fn wanted(rows: &[&Row], first: Target) -> String {
    let aims: Vec<f64> = rows.iter().filter_map(|row| row.target).map(Target::limit).collect();
    let (low, high) = ends(&aims);
    let show = |value: f64| match first {
        Target::RatioAtMost(_) | Target::RatioAtLeast(_) => format!("{value} ×"),
        Target::AtMost(_) | Target::AtLeast(_) => rows[0].unit.show(value),
    };
    let sign = match first {
        Target::RatioAtMost(_) | Target::AtMost(_) => "≤",
        Target::RatioAtLeast(_) | Target::AtLeast(_) => "≥",
    };
    if low == high {
        format!("{sign} {}", show(low))
    } else {
        format!("{sign} {} to {}", show(low), show(high))
    }
}

/// The best and the worst of them.
fn seen(rows: &[&Row], target: Target) -> String {
    let show = |row: &Row| match (target, row.ratio) {
        (Target::RatioAtMost(_) | Target::RatioAtLeast(_), Some(ratio)) => ratio.median,
        _ => row.ours,
    };
    let values: Vec<f64> = rows.iter().map(|row| show(row)).collect();
    let (low, high) = ends(&values);
    let (best, worst) = match target {
        Target::RatioAtMost(_) | Target::AtMost(_) => (low, high),
        Target::RatioAtLeast(_) | Target::AtLeast(_) => (high, low),
    };
    let text = |value: f64| match target {
        Target::RatioAtMost(_) | Target::RatioAtLeast(_) if value >= 10.0 => format!("{value:.0} ×"),
        Target::RatioAtMost(_) | Target::RatioAtLeast(_) if value < 0.1 => format!("{value:.3} ×"),
        Target::RatioAtMost(_) | Target::RatioAtLeast(_) => format!("{value:.2} ×"),
        Target::AtMost(_) | Target::AtLeast(_) => rows[0].unit.show(value),
    };
    if rows.len() == 1 { text(best) } else { format!("{} – {}", text(best), text(worst)) }
}

fn ends(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (low, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// `page` with this table in the place that is kept for it; `None` if there is no such place.
pub fn placed(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some([before, BEGIN, table, END, after].concat())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use crate::report::Unit;

    #[test]
    fn an_aim_is_a_line_with_its_best_and_worst_row() {
        let row = |name: &str, ours| {
            Row::compared("store", name, Unit::Micros, "bare", &[(ours, 10.0)])
                .target(Target::RatioAtMost(1.15))
        };
        let rows = vec![row("redis: get", 11.0), row("redis: set", 12.0), row("dynamodb: get", 20.0)];
        let table = table(&Report { rows, ..Report::default() });
        assert!(
            table.contains("against the bare round trip | ≤ 1.15 × | 1.10 × – 1.20 × | 1 of 2 |"),
            "{table}"
        );
        assert!(table.contains("(dynoxide), the same | ≤ 1.15 × | 2.00 × | 0 of 1 |"), "{table}");
        assert!(table.contains("1 of 3 aims hit"), "{table}");
    }

    #[test]
    fn every_row_with_a_target_is_in_one_line() {
        let report: Report = serde_json::from_str(include_str!("../results.json")).unwrap();
        for row in report.rows.iter().filter(|row| row.target.is_some()) {
            let lines: Vec<&str> = AIMS.iter().filter(|aim| (aim.rows)(row)).map(|aim| aim.what).collect();
            assert_eq!(lines.len(), 1, "{}, {} is in {lines:?}", row.section, row.name);
        }
    }

    #[test]
    fn the_readme_says_what_the_results_say() {
        let results = include_str!("../results.json");
        let report: Report = serde_json::from_str(results).unwrap();
        let readme = include_str!("../../README.md");
        assert_eq!(placed(readme, &table(&report)).unwrap(), readme);
        assert!(!report.quick);
    }

    #[test]
    fn the_picture_is_of_the_same_results() {
        let report: Report = serde_json::from_str(include_str!("../results.json")).unwrap();
        assert_eq!(crate::chart::draw(&report), include_str!("../../docs/bench.svg"));
    }
}
