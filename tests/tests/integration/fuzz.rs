//! Every fuzz target, bounded: the same inputs in every run, from a seed that is printed.
//!
//! | variable | meaning |
//! |---|---|
//! | `ONETAP_FUZZ_SECONDS` | seconds for each target instead, from a random seed |
//! | `ONETAP_FUZZ_SEED` | this seed |
//! | `ONETAP_FUZZ_INPUT` | only the input in this file |
//!
//! `scripts/fuzz` sets them.

use std::path::PathBuf;
use std::time::Duration;

use onetap_store::testing::random::Random;
use onetap_tests::fuzz::{Bound, TARGETS, Target, attempt, fuzz, keep, mutated, target};

/// An arbitrary seed; it stays the same so that every run has the same inputs.
const SEED: u64 = 20_251_129;

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_run() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets! {
    webhook_body
    signature_header
    entry_json
    ledger_record
    event_json
    rest_answer
    redis_answer
    store_address
    dynamodb_answer
    weather_answer
    if_match
    idempotency_key
    sse_query
    chat_sentence
    user_path
    month_query
    stored_value
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/fuzz")
}

fn run(name: &str) {
    let target = target(name).unwrap();
    if let Some(path) = variable("ONETAP_FUZZ_INPUT") {
        let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        if let Err(says) = attempt(&target, &input) {
            panic!("{name} fails on {path}: {says}");
        }
        return;
    }
    let seconds = variable("ONETAP_FUZZ_SECONDS").map(|text| text.parse().expect("ONETAP_FUZZ_SECONDS"));
    let given = variable("ONETAP_FUZZ_SEED").map(|text| text.parse().expect("ONETAP_FUZZ_SEED"));
    let (seed, bound) = match seconds {
        None => (given.unwrap_or(SEED), Bound::Inputs(target.bounded)),
        Some(seconds) => {
            let random = || getrandom::u64().expect("the system's randomness");
            (given.unwrap_or_else(random), Bound::Time(Duration::from_secs(seconds)))
        }
    };
    eprintln!("{name}: seed {seed}");
    match fuzz(&target, seed, bound) {
        Ok(tried) => eprintln!("{name}: {tried} inputs, none fails"),
        Err(failure) => {
            let path = keep(&folder(), &target, &failure);
            panic!(
                "{name}: seed {seed}: {}\nscripts/fuzz --target {name} --input {}",
                failure.says,
                path.display()
            );
        }
    }
}

/// Fails on what has a `7` in it, in a way that the function under test would hide.
fn has_a_bug(bytes: &[u8]) {
    let _ = std::panic::catch_unwind(|| assert!(!bytes.contains(&b'7'), "a seven"));
}

#[test]
fn a_bug_that_is_caught_inside_is_found_all_the_same_and_its_input_made_small() {
    let target =
        Target { name: "has_a_bug", run: has_a_bug, seeds: || vec![b"{\"a\":[1,2,3]}".to_vec()], bounded: 0 };
    let failure = fuzz(&target, SEED, Bound::Inputs(100_000)).unwrap_err();
    assert_eq!(failure.input, b"7");
    assert!(failure.says.contains("a seven"), "{}", failure.says);
    let folder = tempfile::tempdir().unwrap();
    let path = keep(folder.path(), &target, &failure);
    assert_eq!(std::fs::read(&path).unwrap(), b"7");
    assert!(attempt(&target, &std::fs::read(path).unwrap()).is_err());
    assert_eq!(attempt(&target, b"6"), Ok(()));
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    let seeds = vec![br#"{"events":[{"type":"message"}]}"#.to_vec()];
    let inputs = |seed| {
        let mut random = Random::new(seed);
        (0..200).map(|_| mutated(&mut random, &seeds)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(SEED), inputs(SEED));
    assert_ne!(inputs(SEED), inputs(SEED + 1));
    let json = inputs(SEED)
        .iter()
        .filter(|input| serde_json::from_slice::<serde_json::Value>(input).is_ok())
        .count();
    assert!((20..190).contains(&json), "{json} of 200 are JSON: some should be, and some not");
}
