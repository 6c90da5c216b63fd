//! Many callers of one key in a process of their own, for the tests that need several, and need to kill one.
//!
//! ```text
//! STORE=redis REDIS_URL=… idem_worker KEY CALLERS MODE COUNTER
//! ```
//!
//! The store and the engine are configured by the environment. Every run of the function adds one to COUNTER, in
//! the same store, and knows by that which run it is, over all processes. MODE says what becomes of the first:
//! `ok`, it returns like any other; `fail-first`, it fails; `hang`, it never returns. Prints a line for each caller,
//! `ok` and the result's JSON or `error` and what it is, and `hanging` as soon as it does.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use onetap_idem as idem;
use onetap_idem::Idempotency;
use onetap_store::Variables;
use onetap_store::lease::unique_token;
use onetap_store::{Batch, Commit, Config, Expect, Found, Key, Store, Ttl, open};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

#[derive(Clone, Copy)]
enum Mode {
    Ok,
    FailFirst,
    Hang,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [key, callers, mode, counter] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| USAGE)?;
    let (callers, counter) = (callers.parse::<usize>()?, Key::new(counter)?);
    let mode = match mode.as_str() {
        "ok" => Mode::Ok,
        "fail-first" => Mode::FailFirst,
        "hang" => Mode::Hang,
        _ => Err(USAGE)?,
    };
    let variables = Variables::from_env();
    let store = open(&Config::from_variables(&variables)?)?;
    let config = idem::Config::from_variables(&variables)?;

    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        // An engine each: nothing is shared but the store.
        let idem = Idempotency::with_config(store.clone(), config.clone());
        let (store, key, counter) = (store.clone(), key.clone(), counter.clone());
        tasks.spawn(async move { idem.execute(&key, || run(&*store, &counter, mode)).await });
    }
    while let Some(ended) = tasks.join_next().await {
        match ended? {
            Ok(result) => say(&format!("ok {result}"))?,
            Err(error) => say(&format!("error {error}"))?,
        }
    }
    Ok(())
}

const USAGE: &str = "usage: idem_worker KEY CALLERS ok|fail-first|hang COUNTER";

async fn run(
    store: &dyn Store,
    counter: &Key,
    mode: Mode,
) -> Result<Box<RawValue>, Box<dyn Error + Send + Sync>> {
    let run = increment(store, counter).await?;
    match mode {
        Mode::FailFirst if run == 1 => {
            // Long enough for the others to be waiting.
            tokio::time::sleep(Duration::from_millis(200)).await;
            Err("the first run fails")?
        }
        Mode::Hang if run == 1 => {
            say("hanging")?;
            std::future::pending().await
        }
        _ => {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let process = std::process::id();
            Ok(RawValue::from_string(format!(r#"{{"run":{run},"process":{process},"odd":[1.10,null,""]}}"#))?)
        }
    }
}

/// One more, by compare-and-swap. The number stands before a token, by which a write is known again whose reply was lost: a run is
/// counted once.
async fn increment(store: &dyn Store, counter: &Key) -> Result<usize, onetap_store::Error> {
    let token = unique_token();
    let mut there = store.get(counter).await?;
    loop {
        let run = there.as_deref().and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0usize);
        if there.as_deref().is_some_and(|text| text.ends_with(&token)) {
            return Ok(run);
        }
        let (next, expect) = (run + 1, there.map_or(Expect::Absent, Expect::Is));
        let batch = Batch::new().put(counter, expect, format!("{next} {token}"), Ttl::Forever);
        match store.commit(&batch).await? {
            Commit::Applied(_) => return Ok(next),
            Commit::Refused(refusal) => there = refusal.get(counter).and_then(Found::text).map(str::to_owned),
        }
    }
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
