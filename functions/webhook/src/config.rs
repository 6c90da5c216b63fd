//! The settings that the function reads from its environment.

use std::time::Duration;

use onetap_config::{ConfigError, Variables};
use onetap_idem as idem;
use onetap_line::Message;

use crate::plan::Scope;
use crate::replies;

/// How long LINE waits for an answer.
const LINE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limits within the two seconds that LINE waits. No variable sets them: only a caller that stands in for LINE, and
/// waits longer, sets other limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time limit for a whole delivery.
    pub delivery: Duration,
    /// Time limit for one forecast, so that the reply still fits into the delivery.
    pub forecast: Duration,
    /// Time limit for one reply, and the time that is kept for it at the end of a delivery.
    pub reply: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            delivery: Duration::from_millis(1800),
            forecast: Duration::from_secs(1),
            reply: Duration::from_millis(500),
        }
    }
}

/// The settings of a [`Webhook`](crate::Webhook).
#[derive(Clone, Debug)]
pub struct Config {
    /// The LINE channel.
    pub line: onetap_line::Config,
    /// The processing lock; `None` with `PROCESSING_LOCK_ENABLED=false`.
    pub lock: Option<Lock>,
    /// How long the ledger keeps what (`LAST_TRANSACTION_TTL`, `LEDGER_RETENTION_DAYS`).
    pub ledger: onetap_ledger::Config,
    /// Prefix and TTL of the markers of handled events.
    pub idem: idem::Config,
    /// Time limits of a delivery and its parts.
    pub times: Times,
}

/// The processing lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// `PROCESSING_LOCK_TIMEOUT_SECONDS`
    pub ttl: Duration,
    /// `PROCESSING_LOCK_SCOPE`
    pub scope: Scope,
    /// `PROCESSING_LOCK_MIN_HOLD_MS`: how long the lock is kept at least, counted from when it was taken (a cooldown).
    pub min_hold: Duration,
    /// `PROCESSING_LOCK_MESSAGE`: the reply to an event that finds the lock held.
    pub message: Message,
}

impl Config {
    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let ttl = variables.seconds("PROCESSING_LOCK_TIMEOUT_SECONDS", 5)?;
        let scope = match variables.optional("PROCESSING_LOCK_SCOPE")?.as_deref() {
            None | Some("selective") => Scope::Selective,
            Some("all") => Scope::All,
            Some(_) => return Err(ConfigError::new("PROCESSING_LOCK_SCOPE", "is not selective or all")),
        };
        let min_hold = variables.millis_or_zero("PROCESSING_LOCK_MIN_HOLD_MS", 0)?;
        let message = variables.optional("PROCESSING_LOCK_MESSAGE")?;
        let message = Message::whole_text(message.unwrap_or_else(|| replies::PROCESSING.to_owned()));
        let message = message.ok_or_else(|| {
            ConfigError::new("PROCESSING_LOCK_MESSAGE", "is longer than 5000 characters (UTF-16 units)")
        })?;
        let enabled = variables.parsed("PROCESSING_LOCK_ENABLED", "true or false", true)?;
        // The lease of a claim covers a delivery, and is otherwise no longer than the lock. A marker lives for the day in which
        // LINE may redeliver.
        let idem = idem::Config::from_variables(variables)?;
        let lease_ttl = idem.get_lease_ttl().min(ttl.max(LINE_TIMEOUT));
        let idem = idem.lease_ttl(lease_ttl).result_ttl(Duration::from_secs(86_400));
        Ok(Config {
            line: onetap_line::Config::from_variables(variables)?,
            lock: enabled.then_some(Lock { ttl, scope, min_hold, message }),
            ledger: onetap_ledger::Config::from_variables(variables)?,
            idem,
            times: Times::default(),
        })
    }
}
