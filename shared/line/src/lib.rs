#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

pub mod config;
pub mod message;
pub mod reply;
pub mod signature;
#[cfg(feature = "testing")]
pub mod testing;
pub mod webhook;

pub use config::Config;
pub use message::{Action, Message, Messages};
pub use reply::{Client, Outcome, Reply};
pub use signature::Verdict;
pub use webhook::{Event, WebhookBody};
