#![doc = include_str!("../README.md")]

pub mod audience;
pub mod bare;
pub mod chart;
pub mod contestant;
pub mod distant;
pub mod multiplexed;
pub mod orders;
pub mod ours;
pub mod programs;
pub mod recorder;
pub mod report;
pub mod rows;
pub mod runtime_api;
pub mod slow;
pub mod stats;
pub mod summary;
pub mod worker;

/// What goes wrong in a benchmark stops it, with a sentence.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A result of the benchmark.
pub type Result<T> = std::result::Result<T, Error>;
