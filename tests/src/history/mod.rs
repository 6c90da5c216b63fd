//! Histories: clients that lock, claim, swap and append while things go wrong, what each of them called and was
//! answered, and a checker that says whether one store in one place could have given those answers.
//!
//! ```text
//! run ──▶ clients (processes of their own, or tasks on memory) ──▶ recorder ──▶ link or trouble ──▶ store
//!  │          what they meant to do          what they asked the store          what goes wrong
//!  └──▶ history (a line of JSON before each call and after it) ──▶ check ──▶ report
//! ```
//!
//! Everything that is drawn is drawn from one seed: which client does what, and which fault happens when. The same
//! seed gives the same operations and the same schedule; how they meet is up to the machine, except on memory, where
//! a paused clock and one thread make the whole run the same each time.
//!
//! # Layout
//!
//! - `event.rs`: the lines of a history. `journal.rs` writes them, `history.rs` reads them.
//! - `recorder.rs`: a store that writes down every call. `client.rs`: what a client does all day.
//! - `check/`: the checker. Pure: a history in, a report out.
//! - `trouble.rs`: faults inside a process. `link.rs`: faults on the wire. `schedule.rs`: which fault when.
//! - `arena.rs`: the servers. `process.rs`: a client as a process. `run.rs`, `lanes.rs`: one run from start to report.
//! - `sabotage.rs`: stores with one fence taken down, to show that the checker would see it.
//! - `table.rs`: backend by fault, as `scripts/soak` prints it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what cannot go on fails its test on the spot and says why"
)]

pub mod arena;
pub mod check;
pub mod client;
pub mod event;
#[allow(clippy::module_inception, reason = "a history is what it holds")]
pub mod history;
pub mod journal;
pub mod lanes;
pub mod link;
pub mod process;
pub mod recorder;
pub mod run;
pub mod sabotage;
pub mod schedule;
pub mod seed;
pub mod table;
pub mod trouble;

pub use arena::Backend;
pub use check::{Report, Rules, Violation, check};
pub use history::History;
pub use lanes::on_servers;
pub use run::{Outcome, on_memory};
