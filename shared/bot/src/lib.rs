#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod answer;
mod bot;
mod claims;
pub mod config;
mod context;
mod delivery;
mod incoming;
mod locks;
mod panics;
mod reply;
mod run;
mod session;
mod state;
#[cfg(feature = "testing")]
pub mod testing;
mod webhook;
mod work;

pub use onetap_config::{ConfigError, Secret, Variables};
pub use onetap_http::Client as HttpClient;
pub use onetap_idem::{EffectKey, EffectKeys};
pub use onetap_line::webhook::{Chat, Event, IncomingMessage, Kind, Source};
pub use onetap_line::{self as line, Action, Message, Messages};
pub use onetap_store as store;
pub use onetap_store::{Batch, Edit, Expect, Key, Log, Ttl, Values};

pub use answer::{Answer, Change, IntoReply};
pub use bot::{Bot, Error, Overlap, ReplyFn, Result, reply_fn};
pub use config::{Channel, Config, Lock, Times};
pub use context::Context;
pub use delivery::{Ended, Ending, Endings};
pub use incoming::Incoming;
pub use run::{run, run_with};
pub use state::State;
pub use webhook::Webhook;
