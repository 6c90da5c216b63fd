//! The variables of the store and of each function, read as the function reads them when it starts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use edit_last_transaction::EditLastTransaction;
use job_events::JobEvents;
use onetap_config::{ConfigError, Variables};
use onetap_store::config::{Config, open};
use queue_consumer::QueueConsumer;

use crate::{Finding, Report};

const CHECK: &str = "variables";

/// Reads variables as somebody does. Which ones is theirs to know.
type Read = fn(&Variables<'_>) -> Result<(), ConfigError>;

const STORE: Read = |variables| open(&Config::from_variables(variables)?).map(drop);

const FUNCTIONS: [(&str, Read); 4] = [
    ("webhook", |variables| webhook::from_variables(variables).map(drop)),
    ("edit-last-transaction", |variables| EditLastTransaction::from_variables(variables).map(drop)),
    ("queue-consumer", |variables| QueueConsumer::from_variables(variables).map(drop)),
    ("job-events", |variables| JobEvents::from_variables(variables).map(drop)),
];

/// A finding for the store, and one for each function, without what is the store's. Returns the functions that are used
/// here: people do not deploy all four.
pub(crate) fn examine(variables: &Variables<'_>, report: &mut Report) -> Vec<&'static str> {
    let nothing = Variables::from_lookup(|_| None);
    let [store, bare_store] = [variables, &nothing].map(|variables| Reading::of(STORE, variables));
    let mut used: Vec<&str> = Vec::new();
    let mut reported: BTreeMap<String, &str> = BTreeMap::new();
    for (function, read) in FUNCTIONS {
        let mut reading = Reading::of(read, variables);
        reading.subtract(&store);
        let mut bare = Reading::of(read, &nothing);
        bare.subtract(&bare_store);
        // A function is used if anything is set that it requires, or, where it requires nothing, that it reads.
        let mut signs: Vec<&str> = bare.problems.iter().map(ConfigError::variable).collect();
        if signs.is_empty() {
            signs = reading.names.iter().map(String::as_str).collect();
        }
        if signs.iter().any(|name| variables.optional(name) != Ok(None)) {
            used.push(function);
            report.add(new_finding(function, &reading.problems, &mut reported));
        } else {
            let why = format!("not used here: none of {} is set", signs.join(", "));
            report.add(Finding::skipped(function, CHECK, why));
        }
    }
    report.add(finding("store", &store.problems));
    used
}

/// The finding of a function, without problems that were `reported` for another one.
fn new_finding(
    of: &'static str,
    problems: &[ConfigError],
    reported: &mut BTreeMap<String, &'static str>,
) -> Finding {
    let (old, new): (Vec<_>, Vec<_>) =
        problems.iter().cloned().partition(|problem| reported.contains_key(problem.variable()));
    reported.extend(new.iter().map(|problem| (problem.variable().to_owned(), of)));
    match old.first().and_then(|problem| reported.get(problem.variable())) {
        Some(other) if new.is_empty() => Finding::skipped(of, CHECK, format!("needs {other} {CHECK}")),
        _ => finding(of, &new),
    }
}

fn finding(of: &'static str, problems: &[ConfigError]) -> Finding {
    if problems.is_empty() {
        return Finding::ok(of, CHECK, "complete");
    }
    let seen: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let remedy = format!("Set {} as the README's table of variables says.", names(problems));
    Finding::wrong(of, CHECK, seen.join("; "), remedy)
}

fn names(problems: &[ConfigError]) -> String {
    let names: Vec<&str> = problems.iter().map(ConfigError::variable).collect();
    names.join(", ")
}

/// What somebody reads, and what they refuse.
struct Reading {
    names: BTreeSet<String>,
    problems: Vec<ConfigError>,
}

impl Reading {
    /// Finds everything that `read` refuses, not only the first: what it refuses is replaced by what it accepts, until it
    /// accepts all.
    fn of(read: Read, variables: &Variables<'_>) -> Reading {
        // One of these suits each variable: unset, a provider or any text, a store, addresses, a number.
        const STAND_INS: [Option<&str>; 6] = [
            None,
            Some("sample"),
            Some("memory"),
            Some("http://localhost"),
            Some("redis://localhost"),
            Some("1"),
        ];
        let names = RefCell::new(BTreeSet::new());
        let mut problems: Vec<ConfigError> = Vec::new();
        let mut replaced: BTreeMap<String, usize> = BTreeMap::new();
        loop {
            let lookup = |name: &str| {
                names.borrow_mut().insert(name.to_owned());
                match replaced.get(name) {
                    Some(tried) => Ok(STAND_INS[*tried].map(str::to_owned)),
                    None => variables.optional(name),
                }
            };
            let Err(problem) = read(&Variables::try_from_lookup(lookup)) else { break };
            match replaced.get_mut(problem.variable()) {
                None => {
                    replaced.insert(problem.variable().to_owned(), 0);
                    problems.push(problem);
                }
                Some(tried) if *tried + 1 < STAND_INS.len() => *tried += 1,
                // Nothing suits it. What would be read after it is not seen.
                Some(_) => break,
            }
        }
        Reading { names: names.into_inner(), problems }
    }

    /// Leaves out what is somebody else's.
    fn subtract(&mut self, other: &Reading) {
        self.names.retain(|name| !other.names.contains(name));
        self.problems.retain(|problem| !other.names.contains(problem.variable()));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Format, Status};

    use super::*;

    fn found(set: &[(&str, &str)]) -> Vec<(&'static str, Status, String)> {
        let lookup = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let mut report = Report::new(Format::Json, std::io::sink());
        examine(&Variables::from_lookup(lookup), &mut report);
        report.findings().iter().map(|finding| (finding.of, finding.status, finding.seen.clone())).collect()
    }

    fn faults(set: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let faults = found(set).into_iter().filter(|(_, status, _)| *status == Status::Wrong);
        faults.map(|(of, _, seen)| (of, seen)).collect()
    }

    #[test]
    fn a_function_that_lacks_all_it_requires_is_not_used_here() {
        let statuses: Vec<_> =
            found(&[("STORE", "memory"), ("EDIT_API_TOKEN", "s3cret"), ("IDEM_PREFIX", "i:")])
                .into_iter()
                .map(|(of, status, _)| (of, status))
                .collect();
        assert_eq!(
            statuses,
            [
                ("webhook", Status::Skipped),
                ("edit-last-transaction", Status::Ok),
                ("queue-consumer", Status::Skipped),
                ("job-events", Status::Skipped),
                ("store", Status::Ok),
            ]
        );
    }

    #[test]
    fn every_missing_and_malformed_variable_of_a_function_is_named() {
        let set = [
            ("STORE", "memory"),
            ("LINE_CHANNEL_SECRET", "s3cret"),
            ("PROCESSING_LOCK_SCOPE", "some"),
            ("WEATHER_PROVIDER", "cwa"),
            ("CWA_API_BASE_URL", "here"),
            ("EVENT_SHARD_COUNT", "0"),
        ];
        assert_eq!(
            faults(&set),
            [
                (
                    "webhook",
                    "PROCESSING_LOCK_SCOPE: is not selective or all; LINE_CHANNEL_ACCESS_TOKEN: is not set; \
                     CWA_API_KEY: is not set; CWA_API_BASE_URL: is not an http:// or https:// URL"
                        .to_owned()
                ),
                ("queue-consumer", "EVENT_SHARD_COUNT: is not a whole number above 0".to_owned()),
            ]
        );
    }

    #[test]
    fn what_two_functions_read_is_said_once() {
        let set = [
            ("STORE", "memory"),
            ("LINE_CHANNEL_SECRET", "s3cret"),
            ("LINE_CHANNEL_ACCESS_TOKEN", "s3cret"),
            ("WEATHER_PROVIDER", "sample"),
            ("EDIT_API_TOKEN", "s3cret"),
            ("LEDGER_RETENTION_DAYS", "some"),
        ];
        let faults = faults(&set);
        assert_eq!((faults.len(), faults[0].0), (1, "webhook"), "{faults:?}");
        let edit = found(&set).into_iter().find(|(of, ..)| *of == "edit-last-transaction").unwrap();
        assert_eq!((edit.1, edit.2.as_str()), (Status::Skipped, "needs webhook variables"));
    }

    #[test]
    fn what_is_wrong_with_the_store_is_said_once() {
        let token = ("EDIT_API_TOKEN", "s3cret");
        let store = |set: &[(&str, &str)]| {
            let set: Vec<_> = set.iter().copied().chain([token]).collect();
            match &*faults(&set) {
                [("store", seen)] => seen.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert!(store(&[]).starts_with("STORE: is not set"));
        assert_eq!(
            store(&[("STORE", "upstash"), ("STORE_TIMEOUT_MS", "soon")]),
            "UPSTASH_REDIS_REST_URL: is not set; UPSTASH_REDIS_REST_TOKEN: is not set; \
             STORE_TIMEOUT_MS: is not a whole number above 0"
        );
        assert_eq!(
            store(&[("STORE", "redis"), ("REDIS_URL", "localhost:6379")]),
            "REDIS_URL: is not a redis:// or rediss:// URL"
        );
    }
}
