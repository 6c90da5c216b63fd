#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

pub use onetap_idem as idem;
pub use onetap_store as store;

#[doc(no_inline)]
pub use onetap_idem::{Call, ConsumeOutcome, EffectKey, EffectKeys, Failure, Idempotency, Policy, Returned};
#[doc(no_inline)]
pub use onetap_store::{
    Batch, Commit, Config, ConfigError, Edit, Expect, Key, Lease, Store, Ttl, Values, Variables, edit, lease,
    open,
};

#[cfg(feature = "tower")]
#[doc(no_inline)]
pub use onetap_idem::{Caller, http};

#[cfg(feature = "grpc")]
#[doc(no_inline)]
pub use onetap_idem::grpc;

#[cfg(feature = "sqs")]
#[doc(no_inline)]
pub use onetap_idem::sqs;

#[cfg(feature = "bot")]
#[doc(no_inline)]
pub use onetap_bot as bot;

#[cfg(feature = "dynamodb")]
#[doc(no_inline)]
pub use onetap_store::DynamoDb;
#[cfg(feature = "memory")]
#[doc(no_inline)]
pub use onetap_store::Memory;
#[cfg(feature = "redis")]
#[doc(no_inline)]
pub use onetap_store::Redis;
#[cfg(feature = "upstash")]
#[doc(no_inline)]
pub use onetap_store::Upstash;

/// Its examples are tested with the guide's.
#[cfg(doctest)]
#[doc = include_str!("../docs/coming-from-powertools.md")]
mod coming_from_powertools {}

/// So are those of the first page of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod first_page {}
