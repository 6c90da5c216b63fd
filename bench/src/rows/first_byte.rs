//! The first byte of a stream of job-events against its whole answers, and such an answer against the bare runtime's.

use std::path::Path;

use super::{Bench, PROGRAMS, example};
use crate::Result;
use crate::programs::{Program, event, function, hello};
use crate::report::{Row, Target, Unit};
use crate::runtime_api::Function;
use crate::stats::median;

const SECTION: &str = "stream";
const REFUSAL: &str = "job-events, a refused request (no outside call)";

/// Measures both.
pub fn run(bench: &mut Bench) -> Result<()> {
    if bench.wants(SECTION, REFUSAL) {
        bench.say("refusals of job-events, and the floor");
        let (refusal, verify) = (event("job-events/without-a-token.json")?, event("webhook/verify.json")?);
        let mut ours = warm(&job_events(bench, "dynamodb")?)?;
        let mut floor = warm(&hello(example("hello"), r#""statusCode":200"#, verify.clone()))?;
        let rounds = in_turns(bench, || Ok((millis(&mut ours, &refusal)?, millis(&mut floor, &verify)?)))?;
        bench.rows.push(Row::compared(SECTION, REFUSAL, Unit::Millis, "hello", &rounds));
    }
    for store in bench.stores() {
        let name = format!("job-events, {store}: first byte of a stream");
        if !bench.wants(SECTION, &name) {
            continue;
        }
        bench.say(&format!("first bytes of streams, {store}"));
        let mut writer = function("queue-consumer", Path::new(PROGRAMS), &bench.variables(store)?, "")?;
        writer.event = event("queue-consumer/whole-job.json")?;
        warm(&writer)?;
        let (stream, state) = (event("job-events/follow-a-job.json")?, event("job-events/state.json")?);
        let mut function = warm(&job_events(bench, store)?)?;
        let rounds =
            in_turns(bench, || Ok((millis(&mut function, &stream)?, millis(&mut function, &state)?)))?;
        let row = Row::compared(SECTION, name, Unit::Millis, "its whole answer", &rounds);
        bench.rows.push(row.target(Target::RatioAtMost(1.3)));
    }
    Ok(())
}

fn job_events(bench: &Bench, store: &str) -> Result<Program> {
    let mut program = function("job-events", Path::new(PROGRAMS), &bench.variables(store)?, "")?;
    // The stream of a job that has ended ends with it.
    program.variables.push(("SSE_GRACE_SECONDS".to_owned(), "0".to_owned()));
    Ok(program)
}

/// Starts it; its first event is answered.
fn warm(program: &Program) -> Result<Function> {
    let mut function = program.start()?;
    function.first_answer()?;
    Ok(function)
}

/// To the first byte, in milliseconds.
fn millis(function: &mut Function, event: &[u8]) -> Result<f64> {
    Ok(function.first_byte(event)?.as_secs_f64() * 1e3)
}

/// The medians of both sides, by round.
fn in_turns(bench: &Bench, mut both: impl FnMut() -> Result<(f64, f64)>) -> Result<Vec<(f64, f64)>> {
    let mut round = || -> Result<(f64, f64)> {
        let (mut ours, mut others): (Vec<f64>, Vec<f64>) =
            (0..100).map(|_| both()).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok((median(&mut ours), median(&mut others)))
    };
    (0..bench.options.either(5, 15)).map(|_| round()).collect()
}
