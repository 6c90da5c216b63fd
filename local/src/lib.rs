#![doc = include_str!("../README.md")]
//!
//! Layout: `program` is `cargo local`; `arguments`, `environment` and `start` read its input and start it. `server` is
//! the port, with `admission` as its limit; `control` is the playground's own API, with `deliver` and `origin` beside
//! it. `outage_store` over `observed_store` is the store of all functions, `crashing_store` the consumer's; `queue`,
//! `line` and `channel` stand in for SQS and LINE, and `weather` for providers that fail. `view` is what the page shows, `live` streams
//! it, `page` holds the page's files. `demo` is the story, told through `client`;
//! `event_source` is a client that reconnects and resumes as browsers do, `event_format` what both read.

mod admission;
pub mod arguments;
mod bot;
mod bounded_map;
mod channel;
pub mod client;
mod clock;
mod control;
mod crashing_store;
mod deliver;
pub mod demo;
mod environment;
mod event_format;
pub mod event_source;
mod job_plan;
mod line;
mod live;
mod observed_store;
mod origin;
mod outage_store;
mod page;
mod program;
mod queue;
mod response;
mod runner;
mod server;
mod start;
mod view;
mod weather;

pub use admission::MAX_REQUESTS;
pub use bot::OwnBot;
pub use environment::Generated;
pub use outage_store::OutageStore;
pub use program::{main, run, run_with};
pub use start::{Local, StartError};
