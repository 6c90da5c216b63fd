//! The linearizability checker: could a single store that executes one call after another have given all these answers?
//!
//! # The rules
//!
//! - **Registers** (`registers.rs`, `linear.rs`). For each group of keys that commits tie together, the calls must be
//!   linearizable: each definite call takes effect at one moment between its beginning and its end, and in that order
//!   every answer is the one that a single store would have given. A call that is *unknown* takes effect at some
//!   moment after its beginning, or never. A call that was *not sent*, or was refused, never does.
//! - **A resend is a call of its own.** A batch that may be sent twice (a claim, a renewal, a release) may have an
//!   unknown twin: sent first, its answer lost, landing at any time or never. A swap has none, because it is never
//!   sent twice: one that was is caught by this.
//! - **Expiry.** Let a value be written by the call `w` with a TTL. A call `c` may take it as *lapsed* only if
//!   `c.end + c.skew ≥ w.start + w.skew + ttl`: the latest moment at which `c` can have looked at the clock is not
//!   before the earliest end that `w` can have set. (`c.end` is no later than the end of any definite call that the
//!   order puts after `c`, so that an unknown call has an end too.) And `c` may take it as *standing* only if
//!   `c.start + c.skew < w.end + w.skew + ttl`. Where the store keeps the time (Redis, memory) every skew is zero, the
//!   life of a value counts from no earlier than what the order puts before `w`, and what was once seen as lapsed has
//!   lapsed for all; where callers do (DynamoDB) it may stand for a slower clock, until somebody writes. `slack` covers
//!   the rounding to milliseconds.
//! - **Leases** are registers too, twice: as the store was asked, and as the caller meant it ("this write under this
//!   token", "acquired"). So two holders at a time, a release of another's lock, and a write of a stale owner over a
//!   standing successor are all orders that no single store could have produced. A caller who never heard whether it
//!   acquired may have, under a token that nobody saw.
//! - **Logs** (`logs.rs`). The log as it was last read is the witness: positions rise, no text is there twice, what was
//!   acknowledged is there at its position, what was refused or not sent is not, an append that ended before another
//!   began stands before it, and every earlier reading is a part of it without a hole; a page that is full may end before
//!   the log does. A marker has one record, and holds its position.
//! - **Logs that are cleared** (`cleared.rs`). Every reading is judged by itself: each of its records may be there (an
//!   append of it has begun, and no clear began after that append had happened and ended before the reading), and what
//!   it lacks may be gone (some clear may have come after the append). The records of a batch are there together.
//!   Positions rise over all lives of the log.
//! - **The newest** (`newest.rs`). The sequence number under a key never falls, neither below what was acknowledged nor below what
//!   was seen. Of two texts with one number only the first is ever there.
//! - **Queues** (`queues.rs`). A message that was acknowledged was handled with success before. No delivery that began after
//!   its result was recorded handles it. Where it may be handled at most once, it is handled again only after its handler
//!   said that it failed. When a message of a FIFO group is handled, all before it that anybody can read are done.
//! - **Ledgers** (`ledger.rs`). Each month is folded as it was last read. Every confirmed entry is there once, unless a
//!   deletion or an erasure explains its absence; nothing is there that nobody can have entered; each field is as its last
//!   edit left it, and each entry in the month of its date; no two entries have one id; and nothing is there that was
//!   confirmed before a confirmed erasure began.
//! - **Results** (`results.rs`). All who were told a key's result were told the same; a function that may run at most
//!   once has; a counter stands at the number of results that moved it, and increments add up.

mod cleared;
mod ledger;
mod linear;
mod logs;
mod newest;
mod queues;
mod registers;
mod results;
#[cfg(test)]
mod tests;

use std::fmt;

use super::event::{Answer, Layer};
use super::history::{History, Operation};

pub(super) use results::number;

/// Whose clock says that a value has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The store's own.
    Store,
    /// That of whoever asks.
    Callers,
}

/// What the history was recorded on.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whose clock counts.
    pub expiry: Expiry,
    /// Whether the store may send a repeatable batch twice.
    pub resends: bool,
    /// How far apart two clocks of one machine may be, in microseconds.
    pub slack: u64,
}

/// Something that must not be.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What.
    pub what: String,
    /// The calls that show it.
    pub calls: Vec<String>,
    /// Since when it was in the making.
    pub from: u64,
    /// Until when.
    pub to: u64,
}

impl Violation {
    fn new<'a>(what: impl Into<String>, calls: impl IntoIterator<Item = &'a Operation>) -> Violation {
        let calls: Vec<&Operation> = calls.into_iter().collect();
        let from = calls.iter().map(|call| call.start).min().unwrap_or(0);
        let to = calls.iter().map(|call| call.end.unwrap_or(call.start)).max().unwrap_or(u64::MAX);
        let calls = calls.into_iter().map(Operation::to_string).collect();
        Violation { what: what.into(), calls, from, to }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        // The whole history is in the file; a page of it is enough here.
        for call in self.calls.iter().take(40) {
            writeln!(f, "    {call}")?;
        }
        Ok(())
    }
}

/// What the checker found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many calls of the store it looked at.
    pub calls: usize,
    /// How many of them had no certain answer.
    pub unknown: usize,
    /// What must not be.
    pub violations: Vec<Violation>,
}

/// Checks a history whose keys and logs were all fresh, and were all read once more after everybody had stopped.
pub fn check(history: &History, rules: &Rules) -> Report {
    let mut violations = Vec::new();
    for operation in &history.operations {
        if let Answer::Rejected(reason) = &operation.answer {
            violations.push(Violation::new(format!("a sound call was rejected: {reason}"), [operation]));
        }
    }
    ledger::check(history, &mut violations);
    let report = Report { calls: history.calls(), unknown: history.unknown(), violations: Vec::new() };
    // What is asked of the store for a ledger ties all of its keys and those of its calls together: too much to find an
    // order for.
    let history = &ledger::without_ledgers(history);
    cleared::check(history, &mut violations);
    newest::check(history, rules, &mut violations);
    queues::check(history, &mut violations);
    let places = logs::check(history, rules, &mut violations);
    for layer in [Layer::Store, Layer::Api] {
        registers::check(history, layer, rules, &places, &mut violations);
    }
    results::check(history, rules, &mut violations);
    Report { violations, ..report }
}
