//! Our contestant: reads orders from standard input, one a line, and answers on standard output.
//!
//! `worker CALL SIDE STORE N` makes N calls and ends, for a tool that counts what a whole process does.

use std::io::{BufRead, Write};

use onetap_bench::Result;
use onetap_bench::orders::{Answer, Measure, Order};
use onetap_bench::worker::Worker;
use serde_json::{from_str, from_value, json, to_string};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut worker = Worker::new(from_str(&std::env::var("BENCH_STORES")?)?);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [call, side, store, calls] = arguments.as_slice() {
        let (call, side, calls) = (from_value(json!(call))?, from_value(json!(side))?, calls.parse()?);
        let order = Measure { call, store: store.clone(), callers: 1, calls, blocks: 0, sides: vec![side] };
        return match worker.obey(&Order::Measure(order)).await {
            Answer::Failed(reason) => Err(reason.into()),
            _ => Ok(()),
        };
    }
    for line in std::io::stdin().lock().lines() {
        let answer = worker.obey(&from_str(&line?)?).await;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", to_string(&answer)?)?;
        out.flush()?;
    }
    Ok(())
}
