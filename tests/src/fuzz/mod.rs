//! Fuzzing: functions that take any bytes, hand them to a parser or a whole function, and panic where a promise is
//! broken; and what runs them, bounded in every run of the tests and for as long as one likes by `scripts/fuzz`.
//!
//! Mutation by chance over the repository's own scenarios, not guided by coverage: that needs a nightly compiler, and
//! these targets are plain functions that such a fuzzer can be put in front of.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a broken promise is a panic, and whoever fuzzes is told on the spot"
)]

mod functions;
mod mutate;
mod parsers;
mod servers;

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use onetap_store::testing::random::Random;

pub use functions::{
    event_json, idempotency_key, if_match, month_query, sse_query, stored_value, user_path, webhook_body,
};
pub use mutate::mutated;
pub use parsers::{chat_sentence, entry_json, ledger_record, signature_header};
pub use servers::{dynamodb_answer, redis_answer, rest_answer, store_address, weather_answer};

/// Time limit for one input, long enough for a busy machine.
const INPUT_TIMEOUT: Duration = Duration::from_secs(20);

/// Something to fuzz.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Takes any bytes, and panics where a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Number of inputs in a run of the tests.
    pub bounded: usize,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Everything that takes what others send.
pub const TARGETS: [Target; 17] = [
    Target { name: "webhook_body", run: webhook_body, seeds: functions::deliveries, bounded: 600 },
    Target { name: "signature_header", run: signature_header, seeds: parsers::signatures, bounded: 4000 },
    Target { name: "entry_json", run: entry_json, seeds: parsers::entries, bounded: 4000 },
    Target { name: "ledger_record", run: ledger_record, seeds: parsers::ledger_records, bounded: 4000 },
    Target { name: "event_json", run: event_json, seeds: functions::events, bounded: 1500 },
    Target { name: "rest_answer", run: rest_answer, seeds: servers::rest_answers, bounded: 400 },
    Target { name: "redis_answer", run: redis_answer, seeds: servers::redis_answers, bounded: 200 },
    Target { name: "store_address", run: store_address, seeds: servers::store_addresses, bounded: 4000 },
    Target { name: "dynamodb_answer", run: dynamodb_answer, seeds: servers::dynamodb_answers, bounded: 100 },
    Target { name: "weather_answer", run: weather_answer, seeds: servers::weather_answers, bounded: 300 },
    Target { name: "if_match", run: if_match, seeds: functions::conditions, bounded: 1500 },
    Target { name: "idempotency_key", run: idempotency_key, seeds: functions::keys, bounded: 1000 },
    Target { name: "sse_query", run: sse_query, seeds: functions::queries, bounded: 600 },
    Target { name: "chat_sentence", run: chat_sentence, seeds: parsers::sentences, bounded: 1500 },
    Target { name: "user_path", run: user_path, seeds: functions::user_ids, bounded: 2000 },
    Target { name: "month_query", run: month_query, seeds: functions::month_queries, bounded: 2000 },
    Target { name: "stored_value", run: stored_value, seeds: functions::stored, bounded: 120 },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// An input that breaks a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The input, as small as it was made.
    pub input: Vec<u8>,
    /// What it does.
    pub says: String,
}

thread_local! {
    static SAYS: RefCell<Option<String>> = const { RefCell::new(None) };
    static LISTENING: Cell<bool> = const { Cell::new(false) };
}

/// Runs the target on one input. A panic counts also where the function under test catches it: on Lambda one bad
/// event must not harm its neighbours, and here it must not be hidden by that.
pub fn attempt(target: &Target, input: &[u8]) -> Result<(), String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if LISTENING.get() {
                SAYS.with_borrow_mut(|says| _ = says.get_or_insert_with(|| panic.to_string()));
            } else {
                before(panic);
            }
        }));
    });
    let start = Instant::now();
    LISTENING.set(true);
    let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    LISTENING.set(false);
    let says = SAYS.take();
    match (ended, says) {
        (Ok(()), None) if start.elapsed() > INPUT_TIMEOUT => Err(format!("it took {:?}", start.elapsed())),
        (Ok(()), None) => Ok(()),
        (_, says) => Err(says.unwrap_or_else(|| "a panic without words".to_owned())),
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// After this number of inputs.
    Inputs(usize),
    /// After this time.
    Time(Duration),
}

/// Tries the seeds, then changed ones from `seed` on, until something fails or the bound is reached: how many.
pub fn fuzz(target: &Target, seed: u64, bound: Bound) -> Result<usize, Failure> {
    let (seeds, start) = ((target.seeds)(), Instant::now());
    assert!(!seeds.is_empty(), "{target:?} has nothing to begin with");
    let mut random = Random::new(seed);
    let mut tried = 0;
    loop {
        let input = seeds.get(tried).cloned().unwrap_or_else(|| mutated(&mut random, &seeds));
        if let Err(says) = attempt(target, &input) {
            return Err(smaller(target, Failure { input, says }));
        }
        tried += 1;
        let over = match bound {
            Bound::Inputs(most) => tried >= most.max(seeds.len()),
            Bound::Time(most) => start.elapsed() >= most,
        };
        if over {
            return Ok(tried);
        }
    }
}

/// The failure with what can be left out of its input left out.
fn smaller(target: &Target, mut failure: Failure) -> Failure {
    let mut piece = failure.input.len() / 2;
    let mut tries = 300;
    while piece > 0 && tries > 0 {
        let mut at = 0;
        while at < failure.input.len() && tries > 0 {
            let mut input = failure.input.clone();
            input.drain(at..(at + piece).min(input.len()));
            tries -= 1;
            match attempt(target, &input) {
                Err(says) => failure = Failure { input, says },
                Ok(()) => at += piece,
            }
        }
        piece /= 2;
    }
    failure
}

/// Keeps the input of a failure in `folder`, and says where.
pub fn keep(folder: &Path, target: &Target, failure: &Failure) -> PathBuf {
    let mut hash = DefaultHasher::new();
    failure.input.hash(&mut hash);
    let path = folder.join(format!("{}-{:016x}", target.name, hash.finish()));
    fs::create_dir_all(folder).expect("a folder for failing inputs");
    fs::write(&path, &failure.input).expect("a file for a failing input");
    path
}

/// The repository's own files below `folder` whose names end in `ending`, by name.
pub(crate) fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|_| panic!("no {}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

thread_local! {
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// Runs what is asynchronous, on a runtime of this thread's own.
pub(crate) fn now<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| {
        runtime
            .block_on(async { tokio::time::timeout(INPUT_TIMEOUT, work).await.expect("an answer in time") })
    })
}
