#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

pub mod account;
pub mod client;
pub mod config;
pub mod content;
mod loading;
pub mod message;
pub mod push;
pub mod reply;
pub mod signature;
#[cfg(feature = "testing")]
pub mod testing;
pub mod webhook;

pub use account::{BotInfo, Profile, Quota};
pub use client::{CallError, Client};
pub use config::Config;
pub use content::Content;
pub use message::{Action, Card, DateTimePicker, Message, Messages, PickerMode, WrongCount};
pub use push::{Push, PushOutcome, RetryKey};
pub use reply::{Reply, ReplyOutcome};
pub use signature::Verdict;
pub use webhook::{Event, WebhookBody};
