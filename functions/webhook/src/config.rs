//! What the function is told by its environment.

use std::time::Duration;

use onetap_config::{ConfigError, Variables};
use onetap_store::idem;

use crate::plan::Scope;

/// LINE waits no longer for an answer.
const LONGEST_DELIVERY: Duration = Duration::from_secs(2);

/// What is spent of the two seconds that LINE waits. No variable sets it: more than the default is for whoever plays
/// LINE, and waits longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A delivery has so long in all.
    pub delivery: Duration,
    /// A forecast has so long of it.
    pub forecast: Duration,
    /// A reply has so long of it.
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
    /// How long the last transaction lives (`LAST_TRANSACTION_TTL`).
    pub last_transaction: Duration,
    /// Where the markers of handled events stand, and for how long.
    pub idem: idem::Config,
    /// What a delivery and its parts have of LINE's two seconds.
    pub times: Times,
}

/// The processing lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// `PROCESSING_LOCK_TIMEOUT_SECONDS`
    pub ttl: Duration,
    /// `PROCESSING_LOCK_SCOPE`
    pub scope: Scope,
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
        let enabled = variables.parsed("PROCESSING_LOCK_ENABLED", "true or false", true)?;
        // A claim outlives its owner no longer than the lock does, but surely a delivery; a marker lives for the day in
        // which LINE may redeliver.
        let idem = idem::Config::from_variables(variables)?;
        let lease_ttl = idem.lease_ttl.min(ttl.max(LONGEST_DELIVERY));
        let idem = idem::Config { lease_ttl, result_ttl: Duration::from_secs(86_400), ..idem };
        Ok(Config {
            line: onetap_line::Config::from_variables(variables)?,
            lock: enabled.then_some(Lock { ttl, scope }),
            last_transaction: variables.seconds("LAST_TRANSACTION_TTL", 3600)?,
            idem,
            times: Times::default(),
        })
    }
}
