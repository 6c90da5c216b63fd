//! Where a user's ledger is kept, and for how long.

use std::fmt;
use std::time::Duration;

use onetap_store::{Error, Keep, Key, Log, Ttl};

use crate::{Config, Moment, Month};

/// The edits that do not renew the TTL of their month shorten its retention by up to this part.
const MAX_SHORTENING: u32 = 100;

/// The keys of one user's ledger. `Debug` does not show whose.
///
/// | key | value |
/// |---|---|
/// | `user:{user_id}:last_transaction` | the last transaction, while it can be edited |
/// | `user:{user_id}:ledger:{YYYY-MM}` | a log: what happened to the entries of that month |
/// | `user:{user_id}:ledger` | the months that have a log: [`Months`](crate::Months) |
/// | `user:{user_id}:pending` | an entry in which something is missing |
#[derive(Clone, PartialEq, Eq)]
pub struct Book {
    last_transaction: Key,
    months: Key,
    pending: Key,
    config: Config,
}

impl fmt::Debug for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What a key holds, for the store's metrics: `transaction` or `other`.
pub fn key_kind(key: &Key) -> &'static str {
    let rest = key.as_str().strip_prefix("user:");
    if rest.is_some_and(|rest| rest.ends_with(":last_transaction")) { "transaction" } else { "other" }
}

impl Book {
    /// The ledger of a user id of 1 to 64 letters, digits, `_` and `-`. Any other is refused: a colon or a slash in it could
    /// name somebody else's key.
    pub fn new(user_id: &str, config: Config) -> Option<Book> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let valid = (1..=64).contains(&user_id.len()) && user_id.bytes().all(plain);
        let key = |name: &str| valid.then(|| Key::new(format!("user:{user_id}:{name}")))?.ok();
        Some(Book {
            last_transaction: key("last_transaction")?,
            months: key("ledger")?,
            pending: key("pending")?,
            config,
        })
    }

    /// The key of the last transaction.
    pub fn last_transaction(&self) -> &Key {
        &self.last_transaction
    }

    /// The key of the list of months.
    pub fn months(&self) -> &Key {
        &self.months
    }

    /// The key of an entry in which something is missing.
    pub fn pending(&self) -> &Key {
        &self.pending
    }

    /// The keys of everything but the logs.
    pub fn keys(&self) -> [Key; 3] {
        [&self.last_transaction, &self.months, &self.pending].map(Key::clone)
    }

    /// The log of a month.
    pub fn log(&self, month: Month) -> Result<Log, Error> {
        Log::new(format!("{}:{month}", self.months.as_str()))
    }

    /// How long the last transaction can be edited after it was written.
    pub fn life(&self) -> Duration {
        self.config.last_transaction
    }

    /// How long a month is kept after its last entry. Most [edits](Book::renews_at) of it do not renew this time, so after an
    /// edit it may be up to a hundredth less.
    pub fn retention(&self) -> Ttl {
        self.config.retention
    }

    /// A month keeps all of its records.
    pub(crate) fn keep(&self) -> Keep {
        Keep::all_for(self.config.retention)
    }

    /// Whether an edit at `now` renews the TTL of its month. Time is divided into slots, each as long as the last
    /// transaction can be edited after its last write. So a transaction that is edited on and on is edited in every slot, and
    /// it is enough that the edits of one slot in many renew.
    pub fn renews_at(&self, now: Moment) -> bool {
        let slot = now.unix().div_euclid(i64::try_from(self.life().as_secs().max(1)).unwrap_or(i64::MAX));
        match self.config.retention {
            Ttl::Forever => false,
            Ttl::Of(_) => self.renewal_period().is_none_or(|slots| slot.rem_euclid(slots.into()) == 0),
        }
    }

    /// From one slot whose edits renew to the next, in slots; `None` if every edit renews. One slot more is left for clocks
    /// that differ.
    fn renewal_period(&self) -> Option<u32> {
        let Ttl::Of(retention) = self.config.retention else { return None };
        let shortening = (retention / MAX_SHORTENING).as_secs();
        let slots =
            u32::try_from(shortening / self.life().as_secs().max(1)).unwrap_or(u32::MAX).checked_sub(1)?;
        (slots > 1).then_some(slots)
    }
}
