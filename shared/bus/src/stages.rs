//! The stages of a job: their sequence numbers, which of them set the state, and which event ends the job.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::job::is_name;

/// The name for every stage without an entry of its own.
const OTHERS: &str = "*";
/// Largest sequence number: up to 2^53 all JSON parsers are exact.
const MAX_SEQ: u64 = 1 << 53;

/// The table of stages that [`Stages::default`] has.
const DEFAULT: [(&str, u64, u64, Option<u64>); 6] = [
    ("vision", 10, 19, None),
    ("rule", 20, 29, None),
    ("answer", 30, 39, None),
    ("reward", 40, 49, None),
    ("done", 50, 59, Some(51)),
    (OTHERS, 0, 9, None),
];

/// A stage of a job.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    #[serde(rename = "stage")]
    name: String,
    first: u64,
    last: u64,
    #[serde(default = "yes", rename = "state")]
    sets_state: bool,
    #[serde(default)]
    ends: Option<u64>,
}

fn yes() -> bool {
    true
}

impl Stage {
    /// The name; `*` means all stages without an entry of their own.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sequence numbers of its events.
    pub fn seqs(&self) -> RangeInclusive<u64> {
        self.first..=self.last
    }

    /// Whether its events become the job's latest state. The others are appended and streamed only.
    pub fn sets_state(&self) -> bool {
        self.sets_state
    }

    /// The sequence number from which on its events end the job, if they do.
    pub fn ends(&self) -> Option<u64> {
        self.ends
    }

    /// Whether its event with this number ends the job.
    pub fn is_final(&self, seq: u64) -> bool {
        self.ends.is_some_and(|ends| (ends..=self.last).contains(&seq))
    }
}

/// The table of a job's stages. [`Stages::default`] is `vision` 10–19, `rule` 20–29, `answer` 30–39, `reward` 40–49,
/// `done` 50–59, which ends the job from 51 on, and 0–9 for all other stages.
///
/// ```
/// use onetap_bus::Stages;
///
/// let stages = Stages::from_json(
///     r#"[{"stage":"plan","first":0,"last":9},
///         {"stage":"token","first":1000,"last":999999,"state":false},
///         {"stage":"done","first":10,"last":19,"ends":10}]"#,
/// )?;
/// assert_eq!(stages.seq("token", 41), Some(1041));
/// # Ok::<(), onetap_bus::InvalidStages>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages(Arc<[Stage]>);

impl Default for Stages {
    fn default() -> Stages {
        let stage = |(name, first, last, ends): (&str, _, _, _)| Stage {
            name: name.to_owned(),
            first,
            last,
            sets_state: true,
            ends,
        };
        Stages(DEFAULT.into_iter().map(stage).collect())
    }
}

/// Why a table of stages cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidStages(String);

impl fmt::Display for InvalidStages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidStages {}

impl Stages {
    /// Reads a table: a JSON array of objects with the members
    ///
    /// | member | |
    /// |---|---|
    /// | `stage` | the name: 1 to 32 of `a-z 0-9 _ -`, or `*` for all stages without an entry |
    /// | `first`, `last` | its sequence numbers, both included; no two stages share one |
    /// | `state` | `false`: its events leave the job's state alone. `true` if absent |
    /// | `ends` | its events from this sequence number on end the job. At least one stage has it |
    pub fn from_json(json: &str) -> Result<Stages, InvalidStages> {
        let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(json) else {
            return Err(InvalidStages("is not a JSON array".to_owned()));
        };
        let entries = entries.into_iter().enumerate();
        let stages: Vec<Stage> = entries.map(|(n, json)| entry(n + 1, json)).collect::<Result<_, _>>()?;
        match problem(&stages) {
            Some(problem) => Err(InvalidStages(problem)),
            None => Ok(Stages(stages.into())),
        }
    }

    /// The entries, in the order in which they were given.
    pub fn iter(&self) -> std::slice::Iter<'_, Stage> {
        self.0.iter()
    }

    /// The entry of a stage: its own, or that of all others.
    pub fn get(&self, stage: &str) -> Option<&Stage> {
        let named = |name: &str| self.iter().find(|entry| entry.name == name);
        if is_name(stage) { named(stage).or_else(|| named(OTHERS)) } else { None }
    }

    /// The sequence number of a stage's `nth` event, from 0; `None` past its last, and for a stage that the table does
    /// not have.
    ///
    /// ```
    /// let stages = onetap_bus::Stages::default();
    /// assert_eq!(stages.seq("rule", 1), Some(21));
    /// assert_eq!(stages.seq("rule", 10), None, "30 belongs to the next stage");
    /// assert_eq!(stages.seq("queued", 3), Some(3));
    /// ```
    pub fn seq(&self, stage: &str, nth: u64) -> Option<u64> {
        let seqs = self.get(stage)?.seqs();
        seqs.start().checked_add(nth).filter(|seq| seqs.contains(seq))
    }

    /// Whether the event of this stage with this number ends its job.
    pub(crate) fn is_final(&self, stage: &str, seq: u64) -> bool {
        self.get(stage).is_some_and(|entry| entry.is_final(seq))
    }

    /// The sequence numbers that end a job.
    pub(crate) fn final_seqs(&self) -> impl Iterator<Item = u64> {
        self.iter().filter_map(|entry| Some(entry.ends?..=entry.last)).flatten()
    }
}

impl<'a> IntoIterator for &'a Stages {
    type Item = &'a Stage;
    type IntoIter = std::slice::Iter<'a, Stage>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The `n`th entry of a table. The error quotes names of members, and no values: the wrong variable may hold a
/// secret.
fn entry(n: usize, json: &RawValue) -> Result<Stage, InvalidStages> {
    serde_json::from_str(json.get()).map_err(|error| {
        let said = error.to_string();
        let about_a_name = ["unknown field", "missing field", "duplicate field"].iter().any(|m| said.starts_with(m));
        let problem = if about_a_name {
            said.split(" at line").next().unwrap_or_default()
        } else {
            "is not an object with a text as `stage`, whole numbers as `first`, `last` and `ends`, and true or false as `state`"
        };
        InvalidStages(format!("entry {n}: {problem}"))
    })
}

/// The first thing that is wrong with a table.
fn problem(stages: &[Stage]) -> Option<String> {
    for (n, stage) in stages.iter().enumerate() {
        let Stage { name, first, last, ends, .. } = stage;
        if name != OTHERS && !is_name(name) {
            return Some(format!("entry {}: `stage` is neither `*` nor 1 to 32 of a-z 0-9 _ -", n + 1));
        }
        if first > last {
            return Some(format!("{name}: `first` is above `last`"));
        }
        if *last > MAX_SEQ {
            return Some(format!("{name}: `last` is above 2^53"));
        }
        if ends.is_some_and(|ends| !stage.seqs().contains(&ends)) {
            return Some(format!("{name}: `ends` is not between `first` and `last`"));
        }
        for earlier in &stages[..n] {
            if earlier.name == *name {
                return Some(format!("{name} is there twice"));
            }
            if earlier.first <= *last && *first <= earlier.last {
                return Some(format!("{} and {name} share sequence numbers", earlier.name));
            }
        }
    }
    let ends = stages.iter().any(|stage| stage.ends.is_some());
    (!ends).then(|| "no stage has `ends`, so that no job would end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: &str = r#"[{"stage":"plan","first":0,"last":9},
        {"stage":"token","first":1000,"last":999999,"state":false},{"stage":"done","first":10,"last":19,"ends":12}]"#;

    fn read(json: &str) -> Result<Stages, String> {
        Stages::from_json(json).map_err(|error| error.to_string())
    }

    #[test]
    fn every_stage_has_its_ten_numbers() {
        let stages = Stages::default();
        for (stage, first) in
            [("vision", 10), ("rule", 20), ("answer", 30), ("reward", 40), ("done", 50), ("queued", 0)]
        {
            assert_eq!(stages.seq(stage, 0), Some(first), "{stage}");
            assert_eq!(stages.seq(stage, 9), Some(first + 9), "{stage}");
            assert_eq!(stages.seq(stage, 10), None, "{stage}");
        }
        assert_eq!(stages.seq("done", u64::MAX), None);
    }

    #[test]
    fn a_job_ends_with_done_from_51_on() {
        let stages = Stages::default();
        assert!(stages.is_final("done", 51) && stages.is_final("done", 59));
        assert!(!stages.is_final("done", 50), "50 is a stage's beginning, not a job's end");
        assert!(!stages.is_final("reward", 51));
        assert!(stages.final_seqs().eq(51..=59));
    }

    #[test]
    fn a_number_of_an_earlier_table_ends_nothing() {
        let stages = read(r#"[{"stage":"*","first":0,"last":9,"ends":9}]"#).unwrap();
        assert!(stages.is_final("any", 9));
        assert!(!stages.is_final("vision", 10), "it was published when the table had that stage");
    }

    #[test]
    fn the_default_is_a_table_like_any_other() {
        assert_eq!(problem(&Stages::default().0), None);
        let json = r#"[{"stage":"vision","first":10,"last":19},{"stage":"rule","first":20,"last":29},
            {"stage":"answer","first":30,"last":39},{"stage":"reward","first":40,"last":49,"state":true},
            {"stage":"done","first":50,"last":59,"ends":51},{"stage":"*","first":0,"last":9}]"#;
        assert_eq!(read(json), Ok(Stages::default()));
    }

    #[test]
    fn another_table_has_its_own_stages_and_no_others() {
        let stages = read(TOKENS).unwrap();
        assert_eq!(stages.seq("token", 0), Some(1000));
        assert_eq!((stages.seq("vision", 0), stages.seq("*", 0)), (None, None));
        assert!(!stages.get("token").unwrap().sets_state() && stages.get("plan").unwrap().sets_state());
        assert!(stages.is_final("done", 12) && !stages.is_final("done", 11));
        assert_eq!(Stages::default().get("*"), None, "`*` is no name of a stage");
    }

    #[test]
    fn a_table_that_cannot_be_used_says_why() {
        let done = r#"{"stage":"done","first":50,"last":59,"ends":51}"#;
        let with = |entry: &str| format!("[{done},{entry}]");
        for (json, problem) in [
            ("[]".to_owned(), "no stage has `ends`"),
            (r#"[{"stage":"a","first":0,"last":9}]"#.to_owned(), "no stage has `ends`"),
            (with(r#"{"stage":"a","first":59,"last":70}"#), "done and a share sequence numbers"),
            (with(r#"{"stage":"*","first":0,"last":50}"#), "done and * share sequence numbers"),
            (with(r#"{"stage":"a","first":51,"last":52}"#), "done and a share sequence numbers"),
            (with(r#"{"stage":"done","first":0,"last":9}"#), "done is there twice"),
            (with(r#"{"stage":"a","first":9,"last":0}"#), "a: `first` is above `last`"),
            (with(r#"{"stage":"a","first":60,"last":9007199254740993}"#), "a: `last` is above 2^53"),
            (with(r#"{"stage":"a","first":0,"last":9,"ends":10}"#), "a: `ends` is not between"),
            (with(r#"{"stage":"A","first":0,"last":9}"#), "entry 2: `stage` is neither"),
            (with(r#"{"stage":"","first":0,"last":9}"#), "entry 2: `stage` is neither"),
            (with(r#"{"stage":"a","first":0,"last":9,"end":9}"#), "entry 2: unknown field `end`"),
            (with(r#"{"stage":"a","first":0}"#), "entry 2: missing field `last`"),
            (with(r#"{"stage":"a","first":0,"first":1,"last":9}"#), "entry 2: duplicate field `first`"),
            (with(r#"{"stage":"a","first":-1,"last":9}"#), "entry 2: is not an object with"),
            (with(r#"{"stage":"a","first":"s3cret","last":9}"#), "entry 2: is not an object with"),
            (with(r#""s3cret""#), "entry 2: is not an object with"),
            (done.to_owned(), "is not a JSON array"),
            (r#""s3cret""#.to_owned(), "is not a JSON array"),
            ("s3cret".to_owned(), "is not a JSON array"),
            (format!("[{done}] x"), "is not a JSON array"),
        ] {
            let said = read(&json).unwrap_err();
            assert!(said.contains(problem) && !said.contains("s3cret"), "{json}: {said}");
        }
    }
}
