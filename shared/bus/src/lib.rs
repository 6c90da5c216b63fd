#![doc = include_str!("../README.md")]
//!
//! Layout: `event` is what a producer sends and what is wrong with it, `sequence` the table of stages, `job` whose
//! events they are and where its things lie, `publish` the one write, `follow` reading a job's events from where a client left off, `config` the environment.

mod config;
mod event;
mod follow;
mod job;
mod publish;
mod sequence;

pub use config::Config;
pub use event::{Event, MAX_EVENT, Malformed};
pub use follow::{Follower, Resume};
pub use job::Job;
pub use publish::{Bus, Error, Published};
pub use sequence::{FINAL_SEQ, next_seq};
