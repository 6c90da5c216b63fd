#![doc = include_str!("../README.md")]
//!
//! Layout: `arguments`, `environment` and `start` are how it begins, `server` is the port, `crowd` how many it serves
//! at a time, `control` the playground's own calls with `deliver` and `guard` beside it. `switch` over `mirror` is the
//! store, `fuse` the consumer's, `queue` and `line` are AWS's and LINE's side. `view` is what the page shows, `live`
//! how it is told, `page` the page itself, `demo` the story, `client` what tells it.

mod answer;
pub mod arguments;
mod bounded;
pub mod client;
mod clock;
mod control;
mod crowd;
mod deliver;
pub mod demo;
mod environment;
mod fuse;
mod guard;
mod line;
mod live;
mod mirror;
mod page;
mod program;
mod queue;
mod runner;
mod server;
mod start;
mod stopping;
mod switch;
mod view;

pub use crowd::PLACES;
pub use environment::Made;
pub use program::main;
pub use start::{Local, StartError};
