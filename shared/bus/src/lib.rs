#![doc = include_str!("../README.md")]
//!
//! Layout: `event` parses and checks what a producer sends, with `stages` (the table of stages).
//! `job` names a job's keys, `publish` is the one write, `follow` reads a job's events from where a client stopped,
//! `config` reads the environment.

mod config;
mod event;
mod follow;
mod job;
mod publish;
mod stages;

pub use config::Config;
pub use event::{Event, MAX_EVENT_BYTES, Malformed};
pub use follow::{Follower, Resume};
pub use job::{Job, key_kind};
pub use publish::{Bus, Error, Published};
pub use stages::{InvalidStages, Stage, Stages};
