//! A provider that is left alone for a while after it has failed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onetap_calendar::Moment;
use tokio::time::{Instant, timeout_at};

use crate::{Error, Forecast, Place, Provider};

/// How long a provider is not asked after a 429: a minute, and the time from the beginning of a delivery, by whose clock it is
/// counted, to the answer.
const RATE_LIMIT_PAUSE_SECONDS: i64 = 63;
/// After this many failures in a row the provider is not asked for [`FAILURE_PAUSE_SECONDS`], so that few users wait for a
/// provider that is down.
const FAILURES_BEFORE_PAUSE: u32 = 5;
const FAILURE_PAUSE_SECONDS: i64 = 30;
/// A provider that had less time than this is not blamed for being late.
pub(crate) const FAIR_TIME: Duration = Duration::from_millis(250);

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

    pub(crate) fn attribution(&self) -> Option<&'static str> {
        self.provider.attribution()
    }

    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        self.provider.connect(deadline).await
    }

    /// Whether it is not asked now.
    pub(crate) fn is_paused(&self, now: Moment) -> bool {
        self.paused_until(now).is_some()
    }

    /// Until when it is not asked.
    pub(crate) fn paused_until(&self, now: Moment) -> Option<Moment> {
        let until = self.health().paused_until;
        // A longer pause means that the clock was ahead.
        let left = until - now.unix();
        if (1..=RATE_LIMIT_PAUSE_SECONDS).contains(&left) { Moment::from_unix(until) } else { None }
    }

    /// Asks it again from now on.
    pub(crate) fn end_pause(&self) {
        *self.health() = Health::default();
    }

    /// Asks the provider, until `deadline`.
    pub(crate) async fn ask(&self, place: &Place, now: Moment, deadline: Instant) -> Result<Forecast, Error> {
        let time = deadline.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return Err(Error::Late);
        }
        let answer = timeout_at(deadline, self.provider.forecast(place, deadline)).await;
        let answer = answer.unwrap_or(Err(Error::Late));
        self.note(&answer, now, time);
        answer
    }

    /// Notes an answer, for which the provider had this time.
    fn note(&self, answer: &Result<Forecast, Error>, now: Moment, time: Duration) {
        let mut health = self.health();
        let is_rate_limited = match answer {
            Ok(_) => return health.failures_in_a_row = 0,
            // It may be this township alone.
            Err(Error::BadAnswer) => return,
            Err(Error::Late) if time < FAIR_TIME => return,
            Err(error) => *error == Error::RateLimited,
        };
        health.failures_in_a_row = health.failures_in_a_row.saturating_add(1);
        let seconds = match is_rate_limited {
            true => RATE_LIMIT_PAUSE_SECONDS,
            false if health.failures_in_a_row >= FAILURES_BEFORE_PAUSE => FAILURE_PAUSE_SECONDS,
            false => return,
        };
        // A clock that was ahead must not prolong it; another failure must not shorten it.
        let earlier =
            Some(health.paused_until).filter(|until| until - now.unix() <= RATE_LIMIT_PAUSE_SECONDS);
        health.paused_until = earlier.unwrap_or(0).max(now.unix() + seconds);
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
