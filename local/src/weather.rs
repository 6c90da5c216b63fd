//! The weather: the provider and its fallback, which can be slowed down, taken down or made to refuse, and whose calls
//! are counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onetap_store::{Batch, Commit, Key, MAX_WRITES, Store};
use onetap_weather::{
    Config, Error, Forecast, Forecasts, Moment, Place, Provider, ProviderConfig, Sample, places,
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};

/// Delay of the sample provider. A second tap can arrive before the first is answered, and it is below the half second
/// after which the fallback is asked.
const SAMPLE_DELAY: Duration = Duration::from_millis(300);

/// What a provider does when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all(serialize = "lowercase"), try_from = "String")]
pub(crate) enum Behaviour {
    /// It answers, after its delay.
    #[default]
    Works,
    /// It fails at once, as a server that cannot be reached does.
    Down,
    /// It answers 429.
    Refuses,
}

/// A derived one would not say what is wrong with a value that is no text.
impl TryFrom<String> for Behaviour {
    type Error = String;

    fn try_from(name: String) -> Result<Behaviour, String> {
        match name.as_str() {
            "works" => Ok(Behaviour::Works),
            "down" => Ok(Behaviour::Down),
            "refuses" => Ok(Behaviour::Refuses),
            _ => Err(format!("`{name}` is not works, down or refuses")),
        }
    }
}

/// Another provider, with faults on demand: they are simulated before it is called.
#[derive(Debug)]
pub(crate) struct FaultyProvider {
    provider: Arc<dyn Provider>,
    calls: AtomicU64,
    faults: Mutex<Faults>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    behaviour: Behaviour,
    delay: Duration,
}

impl FaultyProvider {
    fn new(provider: Arc<dyn Provider>, delay: Duration) -> Arc<FaultyProvider> {
        let faults = Mutex::new(Faults { delay, ..Faults::default() });
        Arc::new(FaultyProvider { provider, calls: AtomicU64::new(0), faults })
    }

    fn faults(&self) -> Faults {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[async_trait]
impl Provider for FaultyProvider {
    fn name(&self) -> &'static str {
        self.provider.name()
    }

    async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        self.provider.connect(deadline).await
    }

    async fn forecast(&self, place: &Place, deadline: Instant) -> Result<Forecast, Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let Faults { behaviour, delay } = self.faults();
        match behaviour {
            Behaviour::Down => Err(Error::Unavailable),
            Behaviour::Refuses => Err(Error::RateLimited),
            Behaviour::Works => {
                timeout_at(deadline, sleep(delay)).await.map_err(|_| Error::Late)?;
                self.provider.forecast(place, deadline).await
            }
        }
    }
}

/// The weather's state, as the page shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct WeatherSetting {
    /// The provider's delay.
    pub(crate) delay_ms: u64,
    /// The provider, and the fallback if there is one.
    pub(crate) providers: Vec<ProviderSetting>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProviderSetting {
    name: &'static str,
    behaviour: Behaviour,
    /// How often it was asked since the start.
    calls: u64,
    /// Until when it is not asked, in milliseconds since 1970.
    paused_until: Option<u64>,
}

/// The forecasts, and the providers behind them.
pub(crate) struct Weather {
    pub(crate) forecasts: Arc<Forecasts>,
    provider: Arc<FaultyProvider>,
    fallback: Option<Arc<FaultyProvider>>,
    fresh: Duration,
}

impl Weather {
    /// The providers that `config` names. The sample has a second one as its fallback, unless another is set.
    pub(crate) fn open(config: &Config, http: &onetap_http::Client) -> Weather {
        let is_sample = config.provider == ProviderConfig::Sample;
        let fallback = match &config.fallback {
            None if is_sample => Some(Arc::new(Sample::named("sample-fallback")) as Arc<dyn Provider>),
            fallback => fallback.as_ref().map(|fallback| fallback.open(http)),
        };
        let delay = if is_sample { SAMPLE_DELAY } else { Duration::ZERO };
        let provider = FaultyProvider::new(config.provider.open(http), delay);
        let fallback = fallback.map(|fallback| FaultyProvider::new(fallback, Duration::ZERO));
        let second = fallback.clone().map(|fallback| fallback as Arc<dyn Provider>);
        let forecasts = Arc::new(Forecasts::new(provider.clone(), second, config.keep));
        Weather { forecasts, provider, fallback, fresh: config.keep.fresh }
    }

    pub(crate) fn has_fallback(&self) -> bool {
        self.fallback.is_some()
    }

    pub(crate) fn set_delay(&self, delay: Duration) {
        self.provider.change(|faults| faults.delay = delay);
    }

    pub(crate) fn set_provider(&self, behaviour: Behaviour) {
        self.provider.change(|faults| faults.behaviour = behaviour);
    }

    pub(crate) fn set_fallback(&self, behaviour: Behaviour) {
        self.fallback.iter().for_each(|fallback| fallback.change(|faults| faults.behaviour = behaviour));
    }

    /// Its state now.
    pub(crate) fn setting(&self) -> WeatherSetting {
        let pauses = self.forecasts.paused_until(Moment::now());
        let milliseconds = |until: Moment| u64::try_from(until.unix()).unwrap_or_default() * 1000;
        let setting = |(provider, paused_until): (&Arc<FaultyProvider>, Option<Moment>)| ProviderSetting {
            name: provider.name(),
            behaviour: provider.faults().behaviour,
            calls: provider.calls.load(Ordering::Relaxed),
            paused_until: paused_until.map(milliseconds),
        };
        let delay_ms = u64::try_from(self.provider.faults().delay.as_millis()).unwrap_or(u64::MAX);
        let providers = [&self.provider].into_iter().chain(&self.fallback).zip(pauses).map(setting).collect();
        WeatherSetting { delay_ms, providers }
    }

    /// Forgets the kept forecasts and the pauses, in this process and in `store`. Returns how many the store had.
    pub(crate) async fn forget(&self, store: &dyn Store) -> usize {
        self.forecasts.forget();
        self.delete_stored(store).await
    }

    /// Makes the kept forecasts out of date: those in this process older, and those in `store`, which are younger, go.
    pub(crate) async fn outdate(&self, store: &dyn Store) {
        self.forecasts.age_kept(self.fresh);
        self.delete_stored(store).await;
    }

    async fn delete_stored(&self, store: &dyn Store) -> usize {
        let names = places::all().iter().flat_map(|place| self.forecasts.keys(place));
        let keys: Vec<Key> = names.flat_map(Key::new).collect();
        let mut deleted = 0;
        for keys in keys.chunks(MAX_WRITES) {
            // During an outage the store keeps them.
            let Ok(there) = store.get_all(keys).await else { break };
            let found = keys.iter().zip(there).filter_map(|(key, value)| Some((key, value?)));
            let deletions: Vec<Batch> = found.map(|(key, value)| Batch::new().delete(key, value)).collect();
            if !deletions.is_empty() {
                let commits = store.commit_each(&deletions).await;
                // What is refused was written meanwhile: a newer forecast, which stays.
                deleted += commits.iter().filter(|commit| matches!(commit, Ok(Commit::Applied(_)))).count();
            }
        }
        deleted
    }
}
