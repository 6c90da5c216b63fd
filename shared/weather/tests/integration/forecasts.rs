//! Where forecasts come from, and how often the providers are asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onetap_weather::ForecastOutcome::{Failed, Fallback, Fetched, Kept, Stale};
use onetap_weather::{
    Error, Forecast, ForecastAges, ForecastOutcome, Forecasts, LookedUp, Moment, Place, Provider, Sample,
    places,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

const NOON: i64 = 1_800_000_000;

/// The sample's weather at a time that the test sets, counted, held and failing as the test wants.
#[derive(Debug)]
struct Weather {
    name: &'static str,
    calls: AtomicUsize,
    behaviour: Mutex<Behaviour>,
    /// A call takes a permit.
    gate: Semaphore,
}

#[derive(Clone, Copy, Debug)]
enum Behaviour {
    Answers {
        unix: i64,
    },
    Fails(Error),
    /// With a 429 at the first call, and then otherwise.
    RateLimitsFirst,
    Hangs,
}

impl Weather {
    fn new(name: &'static str) -> Arc<Weather> {
        let (calls, gate) = (AtomicUsize::new(0), Semaphore::new(Semaphore::MAX_PERMITS));
        Arc::new(Weather { name, calls, behaviour: Mutex::new(Behaviour::Answers { unix: NOON }), gate })
    }

    fn set(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Provider for Weather {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn forecast(&self, place: &Place, deadline: Instant) -> Result<Forecast, Error> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        // Callers at once meet here, as they do at a provider on the network.
        tokio::task::yield_now().await;
        let behaviour = *self.behaviour.lock().unwrap();
        match behaviour {
            Behaviour::Answers { unix } => Ok(Sample::at(place, moment(unix))),
            Behaviour::Fails(error) => Err(error),
            Behaviour::RateLimitsFirst if call == 0 => Err(Error::RateLimited),
            Behaviour::RateLimitsFirst => Err(Error::Unavailable),
            Behaviour::Hangs => {
                sleep_until(deadline + Duration::from_secs(3600)).await;
                Err(Error::Late)
            }
        }
    }
}

/// Two providers, their forecasts in one process, and the store that instances share.
struct Stage {
    provider: Arc<Weather>,
    fallback: Arc<Weather>,
    forecasts: Forecasts,
    stored: Mutex<Vec<(String, String)>>,
    reads: AtomicUsize,
}

impl Stage {
    fn new() -> Stage {
        let (provider, fallback) = (Weather::new("first"), Weather::new("second"));
        let forecasts = Forecasts::new(provider.clone(), Some(fallback.clone()), ForecastAges::default());
        Stage { provider, fallback, forecasts, stored: Mutex::default(), reads: AtomicUsize::new(0) }
    }

    /// The same with an empty process.
    fn restarted(self) -> Stage {
        let forecasts =
            Forecasts::new(self.provider.clone(), Some(self.fallback.clone()), ForecastAges::default());
        Stage { forecasts, ..self }
    }

    async fn look_up(&self, place: &Place, unix: i64) -> LookedUp {
        let deadline = Instant::now() + Duration::from_secs(1);
        let read = async |keys: &[String]| {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let stored = self.stored.lock().unwrap();
            let value = |key| stored.iter().find(|(other, _)| other == key).map(|(_, value)| value.clone());
            Some(keys.iter().map(value).collect())
        };
        let found = self.forecasts.look_up(place, moment(unix), deadline, read).await;
        if let Some(write) = &found.to_store {
            let mut stored = self.stored.lock().unwrap();
            let there = stored.iter().find(|(key, _)| *key == write.key).map(|(_, value)| value.clone());
            assert_eq!(write.there, there, "what is written is compared with what was read");
            assert_eq!(write.ttl, ForecastAges::default().stale);
            stored.retain(|(key, _)| *key != write.key);
            stored.push((write.key.clone(), write.value.clone()));
        }
        found
    }

    async fn outcome(&self, unix: i64) -> ForecastOutcome {
        self.look_up(xinyi(), unix).await.outcome
    }

    fn calls(&self) -> (usize, usize) {
        (self.provider.calls(), self.fallback.calls())
    }
}

fn moment(unix: i64) -> Moment {
    Moment::from_unix(unix).unwrap()
}

fn xinyi() -> &'static Place {
    places::by_name("臺北市信義區").unwrap()
}

#[tokio::test]
async fn a_kept_forecast_is_used_while_it_is_fresh_and_then_fetched_again() {
    let stage = Stage::new();
    let first = stage.look_up(xinyi(), NOON).await;
    assert_eq!(first.outcome, Fetched);
    assert_eq!(stage.stored.lock().unwrap()[0].0, "weather:first:臺北市信義區");
    let kept = stage.look_up(xinyi(), NOON + 1799).await;
    assert_eq!((kept.outcome, &kept.forecast, kept.to_store), (Kept, &first.forecast, None));
    assert_eq!(stage.reads.load(Ordering::SeqCst), 1, "what is in the process is not read from the store");
    assert_eq!(stage.outcome(NOON + 1800).await, Fetched);
    assert_eq!(stage.calls(), (2, 0));
}

#[tokio::test]
async fn another_instance_finds_the_forecast_in_the_store() {
    let stage = Stage::new();
    let fetched = stage.look_up(xinyi(), NOON).await.forecast;
    let stage = stage.restarted();
    let kept = stage.look_up(xinyi(), NOON + 60).await;
    assert_eq!((kept.outcome, kept.forecast), (Kept, fetched));
    assert_eq!((stage.calls(), stage.reads.load(Ordering::SeqCst)), ((1, 0), 2));
    assert_eq!(stage.outcome(NOON + 61).await, Kept);
    assert_eq!(stage.reads.load(Ordering::SeqCst), 2, "then it is in the process");
}

#[tokio::test]
async fn the_fallback_is_asked_when_the_provider_fails_and_then_a_stale_one_is_used() {
    let stage = Stage::new();
    assert_eq!(stage.outcome(NOON).await, Fetched);
    for error in [Error::Unavailable, Error::BadAnswer, Error::KeyRefused, Error::Late, Error::RateLimited] {
        let stage = Stage::new();
        stage.provider.set(Behaviour::Fails(error));
        assert_eq!(stage.outcome(NOON).await, Fallback, "{error}");
        assert_eq!(stage.stored.lock().unwrap()[0].0, "weather:second:臺北市信義區");
        assert_eq!(stage.outcome(NOON + 1).await, Kept, "the fallback's is kept like the provider's");
        assert_eq!(stage.calls(), (1, 1));
    }
    stage.provider.set(Behaviour::Fails(Error::Unavailable));
    stage.fallback.set(Behaviour::Fails(Error::Unavailable));
    let stage = stage.restarted();
    let stale = stage.look_up(xinyi(), NOON + 21_599).await;
    assert_eq!(stale.outcome, Stale);
    assert_eq!(stale.forecast.unwrap().fetched, moment(NOON));
    let gone = stage.look_up(xinyi(), NOON + 21_600).await;
    assert_eq!((gone.outcome, gone.forecast, gone.to_store), (Failed, None, None));
}

#[tokio::test(start_paused = true)]
async fn a_slow_provider_is_given_up_in_time_for_the_fallback() {
    let stage = Stage::new();
    stage.provider.set(Behaviour::Hangs);
    let begun = Instant::now();
    assert_eq!(stage.outcome(NOON).await, Fallback);
    assert_eq!(begun.elapsed().as_millis(), 500);

    let stage = Stage::new();
    stage.provider.set(Behaviour::Hangs);
    stage.fallback.set(Behaviour::Hangs);
    let begun = Instant::now();
    assert_eq!(stage.outcome(NOON).await, Failed);
    assert_eq!(begun.elapsed().as_millis(), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_leaves_time_for_the_provider() {
    let stage = Stage::new();
    let deadline = Instant::now() + Duration::from_secs(1);
    let never = async |_: &[String]| std::future::pending().await;
    let found = stage.forecasts.look_up(xinyi(), moment(NOON), deadline, never).await;
    assert_eq!((found.outcome, found.to_store), (Fetched, None));
}

#[tokio::test]
async fn many_users_at_once_cause_one_outside_call() {
    let stage = Stage::new();
    let other = places::by_name("新北市永和區").unwrap();
    let all = async {
        let same = futures_util::future::join_all((0..100).map(|_| stage.look_up(xinyi(), NOON)));
        tokio::join!(same, stage.look_up(other, NOON))
    };
    let (same, elsewhere) = all.await;
    let fetched = same.iter().filter(|found| found.outcome == Fetched).count();
    let kept = same.iter().filter(|found| found.outcome == Kept).count();
    assert_eq!((fetched, kept, elsewhere.outcome), (1, 99, Fetched));
    assert_eq!((stage.calls(), stage.reads.load(Ordering::SeqCst)), ((2, 0), 2));

    // A failure is shared as well: those who waited for it do not ask once more each.
    let stage = Stage::new();
    stage.provider.set(Behaviour::Fails(Error::Unavailable));
    stage.fallback.set(Behaviour::Fails(Error::Unavailable));
    let found = futures_util::future::join_all((0..100).map(|_| stage.look_up(xinyi(), NOON))).await;
    assert!(found.iter().all(|found| found.outcome == Failed));
    assert_eq!(stage.calls(), (1, 1));
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_hold_up_the_others() {
    let stage = Arc::new(Stage::new());
    stage.provider.gate.forget_permits(Semaphore::MAX_PERMITS);
    let first = tokio::spawn({
        let stage = stage.clone();
        async move { stage.look_up(xinyi(), NOON).await }
    });
    while stage.provider.calls() == 0 {
        tokio::task::yield_now().await;
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    stage.provider.gate.add_permits(1);
    assert_eq!(stage.outcome(NOON).await, Fetched);
    assert_eq!(stage.calls(), (2, 0));
}

#[tokio::test]
async fn after_a_429_the_provider_is_not_asked_for_a_minute() {
    let stage = Stage::new();
    stage.provider.set(Behaviour::Fails(Error::RateLimited));
    let townships = places::all();
    assert_eq!(stage.look_up(&townships[0], NOON).await.outcome, Fallback);
    stage.provider.set(Behaviour::Answers { unix: NOON });
    for (n, place) in townships[1..61].iter().enumerate() {
        assert_eq!(stage.look_up(place, NOON + n as i64).await.outcome, Fallback);
    }
    assert_eq!(stage.calls(), (1, 61));
    assert_eq!(stage.look_up(&townships[61], NOON + 63).await.outcome, Fetched);
}

#[tokio::test(start_paused = true)]
async fn a_failure_beside_a_429_does_not_shorten_its_minute() {
    let stage = Stage::new();
    stage.provider.set(Behaviour::RateLimitsFirst);
    let townships = places::all();
    futures_util::future::join_all(townships[..6].iter().map(|place| stage.look_up(place, NOON))).await;
    let before = stage.provider.calls();
    for second in [29, 31, 59] {
        let _ = stage.look_up(&townships[10 + second as usize], NOON + second).await;
    }
    assert_eq!(stage.provider.calls(), before);
}

#[tokio::test]
async fn a_clock_that_was_ahead_neither_pauses_a_provider_nor_keeps_a_forecast_fresh_for_hours() {
    let hours = 6 * 3600;
    let stage = Stage::new();
    stage.provider.set(Behaviour::Fails(Error::RateLimited));
    assert_eq!(stage.outcome(NOON + hours).await, Fallback);
    stage.provider.set(Behaviour::Answers { unix: NOON });
    assert_eq!(stage.outcome(NOON).await, Fetched, "neither the pause nor the fallback's forecast counts");
    assert_eq!(stage.outcome(NOON + 1800).await, Fetched);
}

#[tokio::test]
async fn a_forecast_of_which_everything_is_over_is_shown_only_if_there_is_no_other() {
    let stage = Stage::new();
    stage.provider.set(Behaviour::Answers { unix: NOON - 3 * 86_400 });
    assert_eq!(stage.outcome(NOON).await, Fallback);
    stage.fallback.set(Behaviour::Fails(Error::Unavailable));
    assert_eq!(stage.outcome(NOON + 1800).await, Stale);
    let stage = Stage::new();
    stage.provider.set(Behaviour::Answers { unix: NOON - 3 * 86_400 });
    stage.fallback.set(Behaviour::Fails(Error::Unavailable));
    let found = stage.look_up(xinyi(), NOON).await;
    assert!(found.forecast.unwrap().text(moment(NOON)).contains("目前沒有預報資料"));
    assert_eq!(found.to_store, None, "it is not kept");
    assert_eq!(stage.outcome(NOON).await, Fetched);
    assert_eq!(stage.provider.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_not_blamed_for_time_that_it_did_not_get() {
    let stage = Stage::new();
    stage.provider.set(Behaviour::Hangs);
    stage.fallback.set(Behaviour::Hangs);
    let read = async |keys: &[String]| Some(vec![None; keys.len()]);
    for (milliseconds, calls) in [(0, (0, 0)), (200, (10, 0))] {
        for (n, place) in places::all()[..10].iter().enumerate() {
            let deadline = Instant::now() + Duration::from_millis(milliseconds);
            let found = stage.forecasts.look_up(place, moment(NOON + n as i64), deadline, read).await;
            assert_eq!(found.outcome, Failed);
        }
        assert_eq!(stage.calls(), calls, "{milliseconds} ms");
    }
    stage.provider.set(Behaviour::Answers { unix: NOON });
    assert_eq!(stage.outcome(NOON + 10).await, Fetched);
}

#[tokio::test]
async fn one_township_without_a_forecast_does_not_cost_the_others_theirs() {
    let stage = Stage::new();
    stage.provider.set(Behaviour::Fails(Error::BadAnswer));
    stage.fallback.set(Behaviour::Fails(Error::BadAnswer));
    for n in 0..10 {
        assert_eq!(stage.outcome(NOON + n).await, Failed);
    }
    stage.provider.set(Behaviour::Answers { unix: NOON });
    assert_eq!(stage.look_up(&places::all()[0], NOON + 10).await.outcome, Fetched);
}

#[tokio::test]
async fn a_provider_that_keeps_failing_is_asked_twice_a_minute() {
    let stage = Stage::new();
    stage.provider.set(Behaviour::Fails(Error::Unavailable));
    stage.fallback.set(Behaviour::Fails(Error::Unavailable));
    // An hour, a tap a second, each at another township than the one before.
    for (n, place) in places::all().iter().cycle().take(3600).enumerate() {
        assert_eq!(stage.look_up(place, NOON + n as i64).await.outcome, Failed);
    }
    assert_eq!(stage.calls(), (124, 124), "five, and then one in thirty seconds");
    stage.provider.set(Behaviour::Answers { unix: NOON + 3600 });
    assert_eq!(stage.outcome(NOON + 3630).await, Fetched);
    assert_eq!(stage.look_up(&places::all()[0], NOON + 3630).await.outcome, Fetched, "it works again");
}

#[tokio::test]
async fn what_is_forgotten_is_fetched_again_unless_the_store_has_it() {
    let stage = Stage::new();
    assert_eq!(stage.outcome(NOON).await, Fetched);
    let keys = stage.forecasts.keys(xinyi());
    assert_eq!(keys, ["weather:first:臺北市信義區", "weather:second:臺北市信義區"]);
    stage.forecasts.forget();
    assert_eq!(stage.outcome(NOON).await, Kept, "from the store");
    stage.forecasts.forget();
    stage.stored.lock().unwrap().retain(|(key, _)| !keys.contains(key));
    assert_eq!(stage.outcome(NOON).await, Fetched);
}

#[tokio::test]
async fn forgetting_ends_the_pauses_of_the_providers() {
    let stage = Stage::new();
    stage.provider.set(Behaviour::Fails(Error::RateLimited));
    assert_eq!(stage.outcome(NOON).await, Fallback);
    assert_eq!(stage.forecasts.paused_until(moment(NOON)), [Some(moment(NOON + 63)), None]);
    assert_eq!(stage.forecasts.paused_until(moment(NOON + 63)), [None, None]);
    stage.forecasts.forget();
    stage.stored.lock().unwrap().clear();
    assert_eq!(stage.forecasts.paused_until(moment(NOON)), [None, None]);
    stage.provider.set(Behaviour::Answers { unix: NOON + 1 });
    assert_eq!(stage.outcome(NOON + 1).await, Fetched);
}

#[tokio::test]
async fn what_is_made_older_is_out_of_date_and_shows_that_time() {
    let stage = Stage::new();
    assert_eq!(stage.outcome(NOON).await, Fetched);
    stage.forecasts.age_kept(ForecastAges::default().fresh);
    stage.stored.lock().unwrap().clear();
    stage.provider.set(Behaviour::Fails(Error::Unavailable));
    stage.fallback.set(Behaviour::Fails(Error::Unavailable));
    let stale = stage.look_up(xinyi(), NOON).await;
    assert_eq!((stale.outcome, stale.forecast.unwrap().fetched), (Stale, moment(NOON - 1800)));
    stage.provider.set(Behaviour::Answers { unix: NOON });
    assert_eq!((stage.outcome(NOON).await, stage.outcome(NOON).await), (Fetched, Kept));
}

#[tokio::test]
async fn what_another_program_left_in_the_store_is_not_believed() {
    let later = Sample::at(xinyi(), moment(NOON + 301)).to_json();
    for value in ["", "1", "null", "{}", "[]", r#"{"fetched":"noon","periods":[]}"#, later.as_str()] {
        let stage = Stage::new();
        stage.stored.lock().unwrap().push(("weather:first:臺北市信義區".to_owned(), value.to_owned()));
        assert_eq!(stage.outcome(NOON).await, Fetched, "{value}");
    }
    let stage = Stage::new();
    let ahead = Sample::at(xinyi(), moment(NOON + 299)).to_json();
    stage.stored.lock().unwrap().push(("weather:first:臺北市信義區".to_owned(), ahead));
    assert_eq!(stage.outcome(NOON).await, Kept, "clocks may differ a little");
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_not_written() {
    let stage = Stage::new();
    let deadline = Instant::now() + Duration::from_secs(1);
    let found = stage.forecasts.look_up(xinyi(), moment(NOON), deadline, async |_: &[String]| None).await;
    assert_eq!((found.outcome, found.to_store), (Fetched, None));
    assert_eq!(stage.outcome(NOON).await, Kept);
}

#[test]
fn a_forecast_reads_back_as_it_is_kept() {
    let forecast = Sample::at(xinyi(), moment(NOON));
    assert_eq!(Forecast::from_json(xinyi(), &forecast.to_json()), Some(forecast.clone()));
    let unknown = Forecast { sample: false, periods: Vec::new(), ..forecast };
    assert_eq!(Forecast::from_json(xinyi(), &unknown.to_json()), Some(unknown));
}

#[tokio::test]
async fn what_no_message_can_show_is_not_kept() {
    let long = |place: &Place| {
        let sample = Sample::at(place, moment(NOON));
        let period = |n: u32| {
            let start = moment(NOON).start_of_three_hours().plus_hours(3 * n);
            onetap_weather::Period { start, end: start.plus_hours(3), ..sample.periods[0] }
        };
        Forecast { periods: (0..24).map(period).collect(), ..sample.clone() }
    };
    #[derive(Debug)]
    struct Long(Forecast);
    #[async_trait]
    impl Provider for Long {
        fn name(&self) -> &'static str {
            "long"
        }
        async fn forecast(&self, _: &Place, _: Instant) -> Result<Forecast, Error> {
            Ok(self.0.clone())
        }
    }
    let forecasts = Forecasts::new(Arc::new(Long(long(xinyi()))), None, ForecastAges::default());
    let deadline = Instant::now() + Duration::from_secs(1);
    let read = async |keys: &[String]| Some(vec![None; keys.len()]);
    let found = forecasts.look_up(xinyi(), moment(NOON), deadline, read).await;
    // At its end, six hours later, it still has a day to show.
    let text = found.forecast.unwrap().text(moment(NOON + 21_599));
    assert_eq!(text.lines().count(), 10, "{text}");
    let value = found.to_store.unwrap().value;
    assert!(value.len() < 900, "{} bytes: {value}", value.len());
}

proptest::proptest! {
    #[test]
    fn no_text_and_no_number_in_the_store_panics(text: String, fetched: i64, start: i64, end: i64, max: i32, pop: u8) {
        let _ = Forecast::from_json(xinyi(), &text);
        let stored = format!(
            r#"{{"fetched":{fetched},"periods":[{{"start":{start},"end":{end},"sky":"rain","max":{max},"pop":{pop}}}]}}"#
        );
        if let Some(forecast) = Forecast::from_json(xinyi(), &stored) {
            let _ = forecast.text(moment(NOON));
        }
    }
}
