//! Forecasts from the first of these that has one: this process, the store, the provider, the fallback provider, and at
//! last what is kept although it is out of date.
//!
//! ```text
//! fetched ├──── fresh ────┤                      used as it is, nobody is asked
//!         ├──────────────── stale ────────────┤  used if no provider has one
//! ```
//!
//! The store is the caller's: it reads the keys that it is given, and writes the forecast that was fetched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onetap_calendar::Moment;
use tokio::time::{Instant, timeout_at};

use crate::upstream::{FAIR_TIME, Upstream};
use crate::{Error, Forecast, ForecastAges, Place, Provider};

/// How far the clock that a kept forecast was fetched by may be ahead. One from later than that is not believed.
const MAX_AHEAD_SECONDS: i64 = 5 * 60;

/// How the look-up of a forecast ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForecastOutcome {
    /// It was kept, and is fresh.
    Kept,
    /// The provider had it.
    Fetched,
    /// The fallback provider had it.
    Fallback,
    /// No provider had one; this one was kept.
    Stale,
    /// There is none.
    Failed,
}

impl ForecastOutcome {
    /// All of them.
    pub const ALL: [ForecastOutcome; 5] = [
        ForecastOutcome::Kept,
        ForecastOutcome::Fetched,
        ForecastOutcome::Fallback,
        ForecastOutcome::Stale,
        ForecastOutcome::Failed,
    ];

    /// Its name for logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            ForecastOutcome::Kept => "kept",
            ForecastOutcome::Fetched => "fetched",
            ForecastOutcome::Fallback => "fallback",
            ForecastOutcome::Stale => "stale",
            ForecastOutcome::Failed => "failed",
        }
    }
}

/// What [`Forecasts::look_up`] found.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct LookedUp {
    /// The forecast, unless the outcome is [`Failed`](ForecastOutcome::Failed).
    pub forecast: Option<Forecast>,
    /// How the look-up ended.
    pub outcome: ForecastOutcome,
    /// The name that the forecast's provider must be shown with, if it asks for one.
    pub attribution: Option<&'static str>,
    /// The forecast that was fetched, to be written to the store, if the store could be read.
    pub to_store: Option<ToStore>,
}

impl LookedUp {
    /// The message: [`Forecast::text`], and behind its foot the name that the provider asks for.
    pub fn text(&self, now: Moment) -> Option<String> {
        let mut text = self.forecast.as_ref()?.text(now);
        if let Some(name) = self.attribution {
            text.push_str(" · ");
            text.push_str(name);
        }
        Some(text)
    }
}

/// A forecast to be written to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToStore {
    /// Its key.
    pub key: String,
    /// What was read there.
    pub there: Option<String>,
    /// The forecast.
    pub value: String,
    /// How long it is kept.
    pub ttl: Duration,
}

/// The forecasts of a provider and its fallback, kept in this process.
#[derive(Debug)]
pub struct Forecasts {
    /// In the order in which they are asked.
    upstreams: Vec<Upstream>,
    keep: ForecastAges,
    /// At most one entry a township.
    townships: Mutex<HashMap<String, Arc<Township>>>,
}

/// The forecasts of one township.
#[derive(Debug)]
struct Township {
    place: Place,
    /// Held by the caller that asks the store and the providers. The others wait for it, so that many users at once cause one
    /// outside call.
    turn: tokio::sync::Mutex<()>,
    kept: Mutex<InProcess>,
}

#[derive(Debug)]
struct InProcess {
    /// By upstream.
    forecasts: Vec<Option<Forecast>>,
    /// How often the providers were asked: a caller that waited sees whether somebody asked meanwhile.
    rounds: u64,
}

impl InProcess {
    /// The forecasts that are kept, each with its upstream's number.
    fn by_upstream(&self) -> impl Iterator<Item = (usize, &Forecast)> {
        self.forecasts.iter().enumerate().filter_map(|(n, forecast)| Some((n, forecast.as_ref()?)))
    }
}

impl Forecasts {
    /// The forecasts of `provider`, and of `fallback` where that fails or is late.
    pub fn new(
        provider: Arc<dyn Provider>,
        fallback: Option<Arc<dyn Provider>>,
        keep: ForecastAges,
    ) -> Forecasts {
        let upstreams = [provider].into_iter().chain(fallback).map(Upstream::new).collect();
        Forecasts { upstreams, keep, townships: Mutex::default() }
    }

    /// Forgets what is kept in this process, and asks every provider again. What the store has under [`keys`](Forecasts::keys)
    /// is the caller's to delete.
    pub fn forget(&self) {
        self.upstreams.iter().for_each(Upstream::end_pause);
        self.townships().clear();
    }

    /// Makes what is kept in this process older, for those who try out what happens then and do not want to wait.
    pub fn age_kept(&self, by: Duration) {
        let seconds = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        for township in self.townships().values() {
            for forecast in township.kept().forecasts.iter_mut().flatten() {
                let older = forecast.fetched.unix().saturating_sub(seconds);
                forecast.fetched = Moment::from_unix(older).unwrap_or(forecast.fetched);
            }
        }
    }

    /// Until when each provider is not asked: the provider, then the fallback.
    pub fn paused_until(&self, now: Moment) -> Vec<Option<Moment>> {
        self.upstreams.iter().map(|upstream| upstream.paused_until(now)).collect()
    }

    /// Opens a connection to the provider for the first forecast. The fallback is seldom asked, and is left alone.
    pub async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        match self.upstreams.first() {
            Some(provider) => provider.connect(deadline).await,
            None => Ok(()),
        }
    }

    /// The forecast for `place`, before `deadline`. `read` reads keys of the store, all in one call; `None` if it cannot.
    pub async fn look_up(
        &self,
        place: &Place,
        now: Moment,
        deadline: Instant,
        read: impl AsyncFnOnce(&[String]) -> Option<Vec<Option<String>>>,
    ) -> LookedUp {
        let township = self.township(place);
        let rounds = township.kept().rounds;
        if let Some(fresh) = self.fresh(&township, now) {
            return fresh;
        }
        let Ok(_turn) = timeout_at(deadline, township.turn.lock()).await else {
            return self.stale(&township, now);
        };
        if let Some(fresh) = self.fresh(&township, now) {
            return fresh;
        }
        // Somebody asked for the same township while this call waited: it takes the same answer.
        if township.kept().rounds != rounds {
            // With 0 seconds of freshness too, what was fetched just now is shared.
            let fetched_now =
                |(_, it): &(usize, Forecast)| age(it, now).is_some_and(|age| age <= self.keep.fresh);
            return match self.youngest(&township, now).filter(fetched_now) {
                Some((n, forecast)) => self.found(n, forecast, ForecastOutcome::Kept),
                None => self.stale(&township, now),
            };
        }
        let looked_up = self.read_and_ask(&township, now, deadline, read).await;
        township.kept().rounds += 1;
        looked_up
    }

    async fn read_and_ask(
        &self,
        township: &Township,
        now: Moment,
        deadline: Instant,
        read: impl AsyncFnOnce(&[String]) -> Option<Vec<Option<String>>>,
    ) -> LookedUp {
        let place = &township.place;
        let keys = self.keys(place);
        // A store that is slow leaves half of the time to the providers.
        let stored = timeout_at(halfway_to(deadline), read(&keys)).await.ok().flatten();
        for (n, text) in stored.iter().flatten().enumerate() {
            let forecast = text.as_deref().and_then(|text| Forecast::from_json(place, text));
            if let Some(forecast) = forecast.filter(|forecast| age(forecast, now).is_some()) {
                township.keep(n, forecast);
            }
        }
        if let Some(fresh) = self.fresh(township, now) {
            return fresh;
        }
        // An answer of which everything is over.
        let mut empty = None;
        for (n, upstream) in self.upstreams.iter().enumerate() {
            if upstream.is_paused(now) {
                continue;
            }
            // The next provider needs its time too, if there is enough for both.
            let is_last = self.upstreams.iter().skip(n + 1).all(|next| next.is_paused(now));
            let is_short = deadline.saturating_duration_since(Instant::now()) < 2 * FAIR_TIME;
            let limit = if is_last || is_short { deadline } else { halfway_to(deadline) };
            match upstream.ask(place, now, limit).await {
                Ok(mut forecast) => {
                    // By the clock that its age is judged by.
                    forecast.fetched = now;
                    forecast.trim(self.keep.stale);
                    let outcome = if n == 0 { ForecastOutcome::Fetched } else { ForecastOutcome::Fallback };
                    if forecast.periods.is_empty() {
                        tracing::warn!(provider = upstream.name(), "a forecast of which everything is over");
                        empty.get_or_insert(self.found(n, forecast, outcome));
                        continue;
                    }
                    township.keep(n, forecast.clone());
                    let there = stored.and_then(|values| values.into_iter().nth(n));
                    let to_store = there.map(|there| ToStore {
                        key: keys[n].clone(),
                        there,
                        value: forecast.to_json(),
                        ttl: self.keep.stale,
                    });
                    return LookedUp { to_store, ..self.found(n, forecast, outcome) };
                }
                Err(error) => tracing::warn!(provider = upstream.name(), %error, "no forecast"),
            }
        }
        let stale = self.stale(township, now);
        if stale.forecast.is_none() { empty.unwrap_or(stale) } else { stale }
    }

    /// A forecast of the upstream `n`.
    fn found(&self, n: usize, forecast: Forecast, outcome: ForecastOutcome) -> LookedUp {
        let attribution = self.upstreams.get(n).and_then(Upstream::attribution);
        LookedUp { forecast: Some(forecast), outcome, attribution, to_store: None }
    }

    /// A kept forecast that is fresh, of the provider before one of the fallback.
    fn fresh(&self, township: &Township, now: Moment) -> Option<LookedUp> {
        let kept = township.kept();
        let is_fresh = |forecast: &Forecast| {
            age(forecast, now).is_some_and(|age| age < self.keep.fresh) && forecast.has_more(now)
        };
        let (n, fresh) = kept.by_upstream().find(|(_, forecast)| is_fresh(forecast))?;
        Some(self.found(n, fresh.clone(), ForecastOutcome::Kept))
    }

    /// What is kept although it is out of date.
    fn stale(&self, township: &Township, now: Moment) -> LookedUp {
        match self.youngest(township, now) {
            Some((n, forecast)) => self.found(n, forecast, ForecastOutcome::Stale),
            None => {
                let outcome = ForecastOutcome::Failed;
                LookedUp { forecast: None, outcome, attribution: None, to_store: None }
            }
        }
    }

    /// The youngest kept forecast, if it may still be used, and whose it is.
    fn youngest(&self, township: &Township, now: Moment) -> Option<(usize, Forecast)> {
        let kept = township.kept();
        let usable = kept.by_upstream().filter(|(_, forecast)| forecast.has_more(now));
        let aged = usable.filter_map(|(n, forecast)| Some((age(forecast, now)?, n, forecast)));
        let (age, n, youngest) = aged.min_by_key(|(age, ..)| *age)?;
        (age < self.keep.stale).then(|| (n, youngest.clone()))
    }

    /// Where the store keeps the forecasts of `place`: the provider's, then the fallback's.
    pub fn keys(&self, place: &Place) -> Vec<String> {
        let key = |upstream: &Upstream| format!("weather:{}:{}", upstream.name(), place.name());
        self.upstreams.iter().map(key).collect()
    }

    fn townships(&self) -> MutexGuard<'_, HashMap<String, Arc<Township>>> {
        self.townships.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn township(&self, place: &Place) -> Arc<Township> {
        let new = || {
            let kept = InProcess { forecasts: vec![None; self.upstreams.len()], rounds: 0 };
            Arc::new(Township { place: *place, turn: tokio::sync::Mutex::default(), kept: Mutex::new(kept) })
        };
        Arc::clone(self.townships().entry(place.name()).or_insert_with(new))
    }
}

impl Township {
    fn kept(&self) -> MutexGuard<'_, InProcess> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the forecast of the upstream `n`, unless a younger one is kept.
    fn keep(&self, n: usize, forecast: Forecast) {
        if let Some(kept) = self.kept().forecasts.get_mut(n)
            && kept.as_ref().is_none_or(|kept| kept.fetched <= forecast.fetched)
        {
            *kept = Some(forecast);
        }
    }
}

/// How long ago it was fetched; zero for one from a clock that is a little ahead, `None` from one that is far ahead.
fn age(forecast: &Forecast, now: Moment) -> Option<Duration> {
    let seconds = now.unix() - forecast.fetched.unix();
    (seconds >= -MAX_AHEAD_SECONDS).then(|| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn halfway_to(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
}
