//! A provider that is left alone for a while after it has failed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onetap_calendar::Moment;
use tokio::time::{Instant, timeout_at};

use crate::{Error, Forecast, Place, Provider};

/// How long a provider is not asked after a 429: a minute, and the second that two clocks in whole seconds may lack.
const RATE_LIMIT_PAUSE_SECONDS: i64 = 61;
/// After this many failures in a row the provider is not asked for [`FAILURE_PAUSE_SECONDS`], so that few users wait for a
/// provider that is down.
const FAILURES_BEFORE_PAUSE: u32 = 5;
const FAILURE_PAUSE_SECONDS: i64 = 30;

/// A provider with what is known of its health.
#[derive(Debug)]
pub(crate) struct Upstream {
    provider: Arc<dyn Provider>,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    failures_in_a_row: u32,
    /// In seconds since 1970, by the wall clock: a monotonic clock may stand still while Lambda freezes the process.
    paused_until: i64,
}

impl Upstream {
    pub(crate) fn new(provider: Arc<dyn Provider>) -> Upstream {
        Upstream { provider, health: Mutex::default() }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.provider.name()
    }

    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        self.provider.connect(deadline).await
    }

    /// Whether it is not asked now.
    pub(crate) fn is_paused(&self, now: Moment) -> bool {
        now.unix() < self.health().paused_until
    }

    /// Until when it is not asked.
    pub(crate) fn paused_until(&self, now: Moment) -> Option<Moment> {
        let until = self.health().paused_until;
        Moment::from_unix(until).filter(|_| now.unix() < until)
    }

    /// Forgets that it has failed.
    pub(crate) fn end_pause(&self) {
        *self.health() = Health::default();
    }

    /// Asks the provider, until `deadline`.
    pub(crate) async fn ask(&self, place: &Place, now: Moment, deadline: Instant) -> Result<Forecast, Error> {
        let answer = timeout_at(deadline, self.provider.forecast(place, deadline)).await;
        let answer = answer.unwrap_or(Err(Error::Late));
        let mut health = self.health();
        health.failures_in_a_row = match &answer {
            Ok(_) => 0,
            Err(_) => health.failures_in_a_row.saturating_add(1),
        };
        match &answer {
            Err(Error::RateLimited) => health.paused_until = now.unix() + RATE_LIMIT_PAUSE_SECONDS,
            Err(_) if health.failures_in_a_row >= FAILURES_BEFORE_PAUSE => {
                health.paused_until = now.unix() + FAILURE_PAUSE_SECONDS;
            }
            _ => {}
        }
        answer
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
