//! The findings, as lines while they are found or as one JSON document at the end.

use std::io::Write;
use std::process::ExitCode;

use serde_json::json;

use crate::{Finding, Status};

/// How findings are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line for each, at once.
    Text {
        /// Whether the status is coloured.
        coloured: bool,
    },
    /// One document at the end.
    Json,
}

/// What has been found so far, and where it is shown.
pub struct Report {
    findings: Vec<Finding>,
    format: Format,
    out: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Report").field("findings", &self.findings).finish_non_exhaustive()
    }
}

impl Report {
    /// A report that is shown on `out`.
    pub fn new(format: Format, out: impl Write + Send + 'static) -> Report {
        Report { findings: Vec::new(), format, out: Box::new(out) }
    }

    /// A report that is shown nowhere.
    pub(crate) fn silent() -> Report {
        Report::new(Format::Json, std::io::sink())
    }

    /// Adds the findings of another report.
    pub(crate) fn extend(&mut self, other: Report) {
        other.findings.into_iter().for_each(|finding| self.add(finding));
    }

    /// Adds a finding, and shows it where each is shown at once.
    pub fn add(&mut self, finding: Finding) {
        if let Format::Text { coloured } = self.format {
            self.print(&text(&finding, coloured));
        }
        self.findings.push(finding);
    }

    /// What has been found so far.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The first finding of one of `checks` that is wrong, so that a check that needs them can say so.
    pub fn first_wrong(&self, checks: &[&str]) -> Option<&Finding> {
        self.findings.iter().find(|it| it.status == Status::Wrong && checks.contains(&it.check))
    }

    /// Skips `checks`, because `needed` has failed.
    pub fn skip(&mut self, of: &'static str, checks: &[&'static str], needed: &Finding) {
        checks.iter().for_each(|check| self.add(Finding::needs(of, check, needed)));
    }

    /// Shows the sum or the document. The exit code is 1 if anything is wrong.
    pub fn finish(mut self) -> ExitCode {
        let end = match self.format {
            Format::Text { .. } => {
                let sum = Status::ALL.map(|status| format!("{} {status}", self.count(status)));
                format!("\n{}", sum.join(", "))
            }
            Format::Json => self.document(),
        };
        self.print(&end);
        if self.count(Status::Wrong) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn document(&self) -> String {
        let mut document = json!({ "version": 1, "findings": self.findings });
        for status in Status::ALL {
            document[status.word()] = self.count(status).into();
        }
        format!("{document:#}")
    }

    fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|finding| finding.status == status).count()
    }

    /// Prints lines. A closed pipe is no failure.
    fn print(&mut self, lines: &str) {
        let _ = writeln!(self.out, "{lines}").and_then(|()| self.out.flush());
    }
}

/// A line, and the remedy on a second one.
fn text(finding: &Finding, coloured: bool) -> String {
    let Finding { of, check, status, seen, remedy } = finding;
    let (on, off) = match (coloured, status) {
        (false, _) => ("", ""),
        (true, Status::Ok) => ("\x1b[32m", "\x1b[0m"),
        (true, Status::Warning) => ("\x1b[33m", "\x1b[0m"),
        (true, Status::Wrong) => ("\x1b[31m", "\x1b[0m"),
        (true, Status::Skipped) => ("\x1b[2m", "\x1b[0m"),
    };
    let remedy = remedy.as_ref().map_or_else(String::new, |remedy| format!("\n{:9}→ {remedy}", ""));
    format!("{on}{status:7}{off}  {of} {check}: {seen}{remedy}")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Buffer {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn findings() -> [Finding; 3] {
        [
            Finding::ok("store", "reachable", "redis"),
            Finding::warning("redis", "eviction", "allkeys-lru", "Set `maxmemory-policy noeviction`."),
            Finding::skipped("line", "bot", "LINE_CHANNEL_ACCESS_TOKEN is not set"),
        ]
    }

    #[test]
    fn a_finding_is_printed_when_it_is_found_and_the_sum_at_the_end() {
        let out = Buffer::default();
        let mut report = Report::new(Format::Text { coloured: false }, out.clone());
        let [first, second, third] = findings();
        report.add(first);
        assert_eq!(out.text(), "ok       store reachable: redis\n");
        report.add(second);
        report.add(third);
        assert_eq!(report.finish(), ExitCode::SUCCESS);
        assert_eq!(
            out.text(),
            "ok       store reachable: redis\n\
             warning  redis eviction: allkeys-lru\n         → Set `maxmemory-policy noeviction`.\n\
             skipped  line bot: LINE_CHANNEL_ACCESS_TOKEN is not set\n\
             \n1 ok, 1 warning, 0 wrong, 1 skipped\n"
        );
    }

    #[test]
    fn json_is_one_document_at_the_end() {
        let out = Buffer::default();
        let mut report = Report::new(Format::Json, out.clone());
        findings().into_iter().for_each(|finding| report.add(finding));
        assert_eq!(out.text(), "");
        assert_eq!(report.finish(), ExitCode::SUCCESS);
        let document: Value = serde_json::from_str(&out.text()).unwrap();
        assert_eq!(
            document,
            json!({
                "version": 1,
                "findings": [
                    { "of": "store", "check": "reachable", "status": "ok", "seen": "redis", "remedy": null },
                    {
                        "of": "redis", "check": "eviction", "status": "warning", "seen": "allkeys-lru",
                        "remedy": "Set `maxmemory-policy noeviction`."
                    },
                    {
                        "of": "line", "check": "bot", "status": "skipped",
                        "seen": "LINE_CHANNEL_ACCESS_TOKEN is not set", "remedy": null
                    },
                ],
                "ok": 1, "warning": 1, "wrong": 0, "skipped": 1,
            })
        );
    }

    #[test]
    fn anything_wrong_makes_the_exit_code_1() {
        let mut report = Report::new(Format::Json, io::sink());
        report.add(Finding::wrong("store", "reachable", "no answer", "Check STORE."));
        assert_eq!(report.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn colours_surround_the_status_alone() {
        let [first, ..] = findings();
        assert_eq!(text(&first, true), "\x1b[32mok     \x1b[0m  store reachable: redis");
    }
}
