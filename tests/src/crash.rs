//! Crash points: a function's process is killed at every call that it makes, the platform tries again, and what is left
//! behind is what one undisturbed run leaves.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what goes wrong fails its test on the spot and says why"
)]

mod drive;
mod function;
mod gate;
mod ledger;
mod published;
mod scenario;
mod traces;

pub use drive::{Points, World};
pub use function::{
    ACCESS_TOKEN, API_TOKEN, Answer, CHANNEL_SECRET, Functions, Order, Report, Request, carry_out,
};
pub use gate::{Call, Point, Side};
pub use scenario::Scenario;
