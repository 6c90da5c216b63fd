//! The linearizability test. Clients lock, claim, compare-and-swap and append while faults are injected; every call and
//! its answer is recorded as a history; a checker decides whether a single store that executes one call after another
//! could have given these answers.
//!
//! ```text
//! run ──▶ clients (processes of their own, or tasks on memory) ──▶ recorder ──▶ link or trouble ──▶ store
//!  │          what they intend               what they ask of the store         the faults
//!  └──▶ history (a line of JSON before each call and after it) ──▶ check ──▶ report
//! ```
//!
//! One seed determines everything random: which client does what, and which fault happens when. The same seed gives the
//! same operations and the same schedule of faults. Their timing depends on the machine, except on memory, where a
//! paused clock and a single thread make the whole run deterministic.
//!
//! # Layout
//!
//! - `event.rs`: the lines of a history. `journal.rs` writes them, `history.rs` reads them.
//! - `recorder.rs`: a store that writes down every call. `client.rs`: the random workload of a client.
//! - `book.rs`: what a client does to the ledgers. `locks.rs`: to the locks. `publish.rs`: one record for one marker.
//! - `queue.rs`: queues of messages, and a client that is given a batch of them.
//! - `check/`: the linearizability checker, without I/O: a history in, a report out.
//! - `trouble.rs`: faults inside a process. `link.rs`: faults on the network. `schedule.rs`: which fault when.
//! - `arena.rs`: the servers. `process.rs`: a client as a process. `run.rs`, `lanes.rs`: one run from start to report.
//! - `sabotage.rs`: stores with one safeguard removed, to show that the checker detects it.
//! - `table.rs`: faults and operations by backend, as `scripts/soak` writes them. `operations.rs`: the kinds of operations.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what cannot go on fails its test on the spot and says why"
)]

pub mod arena;
pub mod book;
pub mod check;
pub mod client;
pub mod event;
#[allow(clippy::module_inception, reason = "a history is what it holds")]
pub mod history;
pub mod journal;
pub mod lanes;
pub mod link;
mod locks;
pub mod operations;
pub mod process;
pub mod publish;
pub mod queue;
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
