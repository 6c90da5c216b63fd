#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

mod credentials;
mod signer;
pub mod sqs;

pub use credentials::Credentials;
pub use signer::{Signer, timestamp};
