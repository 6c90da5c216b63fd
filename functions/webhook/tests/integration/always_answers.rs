//! What is slow or down, what the user sees then, what LINE is answered, and who is called how often: the table in
//! `docs/guarantees.md`, a test a row.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use onetap_config::{Secret, Variables};
use onetap_line::testing::MessagingApi;
use onetap_servers::{Fault, HttpStub, Proxy};
use onetap_store::Store;
use onetap_store::testing::{Fault as StoreFault, TestStore};
use onetap_weather::Moment;
use serde_json::Value;
use webhook::{Config, Times, Webhook};

use crate::support::{BUSY, HOME, SECRET, TOKEN, deliver, memory, redelivered, tap, text, user};

const CWA: &str = include_str!("../../../../shared/weather/tests/fixtures/cwa.json");
const OPEN_METEO: &str = include_str!("../../../../shared/weather/tests/fixtures/open-meteo.json");

/// How the forecasts of the provider and of its fallback begin, at nine.
const PROVIDERS: &str = "臺北市信義區\n⛅ 09-12 🌡️21°💧20%\n";
const FALLBACKS: &str = "臺北市信義區\n⛈️ 09-12 🌡️21°💧24%\n";

/// More than a machine needs for what answers, and what a test waits for what does not: twice, where two are silent.
const TIMES: Times = Times {
    delivery: Duration::from_secs(60),
    forecast: Duration::from_secs(4),
    reply: Duration::from_secs(20),
};

thread_local! {
    /// The clock of the test on this thread: ten past nine on the day of the fixtures, until the test lets time pass.
    static CLOCK: Cell<i64> = const { Cell::new(1_772_327_400) };
}

fn clock() -> Moment {
    Moment::from_unix(CLOCK.get()).unwrap()
}

fn pass(seconds: i64) {
    CLOCK.set(CLOCK.get() + seconds);
}

/// A bot between its provider (CWA), its fallback (Open-Meteo), LINE and a store.
struct Stage {
    provider: Proxy,
    fallback: Proxy,
    line: MessagingApi,
    store: Arc<TestStore>,
    webhook: Webhook,
    _services: [HttpStub; 2],
}

impl Stage {
    async fn new() -> Stage {
        Stage::on(TestStore::counting(memory()), &[]).await
    }

    /// On this store, with these variables in place of others; an empty one is as good as none.
    async fn on(store: Arc<TestStore>, variables: &[(&str, &str)]) -> Stage {
        let services = [
            HttpStub::always(Fault::Status(200, CWA.to_owned())),
            HttpStub::always(Fault::Status(200, OPEN_METEO.to_owned())),
        ];
        let provider = Proxy::start(&services[0].url()).await;
        let fallback = Proxy::start(&services[1].url()).await;
        let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
        let urls = [line.url(), provider.url(), fallback.url()];
        let mut all = HashMap::from([
            ("LINE_CHANNEL_SECRET", SECRET),
            ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN),
            ("LINE_API_BASE_URL", urls[0].as_str()),
            ("PROCESSING_LOCK_TIMEOUT_SECONDS", "60"),
            ("WEATHER_PROVIDER", "cwa"),
            ("CWA_API_KEY", "key"),
            ("CWA_API_BASE_URL", &urls[1]),
            ("WEATHER_FALLBACK_PROVIDER", "open-meteo"),
            ("OPEN_METEO_BASE_URL", &urls[2]),
        ]);
        all.extend(variables.iter().copied());
        let webhook = build(&all, store.clone(), TIMES);
        Stage { provider, fallback, line, store, webhook, _services: services }
    }

    /// Delivers `event`: the status, the text that the user sees if there is one, and how often the provider, the fallback
    /// and LINE were called for it.
    async fn deliver(&self, event: &Value) -> (u16, Option<String>, [usize; 3]) {
        let calls = || [self.provider.requests(), self.fallback.requests(), self.line.requests()];
        let before = calls();
        let status = deliver(&self.webhook, std::slice::from_ref(event)).await;
        let shown = self.line.take_replies().first().map(|reply| reply.text().to_owned());
        let after = calls();
        (status, shown, [0, 1, 2].map(|n| after[n] - before[n]))
    }

    /// Asks for the forecast of 信義區, which must be shown as `beginning`, after these calls.
    async fn shows(&self, beginning: &str, calls: [usize; 3]) -> String {
        let (status, shown, called) = self.deliver(&text(&user(), "臺北市信義區")).await;
        let shown = shown.unwrap_or_default();
        assert!(shown.starts_with(beginning), "{shown}");
        assert_eq!((status, called), (200, calls), "calls of the provider, the fallback and LINE: {shown}");
        shown
    }
}

fn build(variables: &HashMap<&str, &str>, store: Arc<dyn Store>, times: Times) -> Webhook {
    let variables = Variables::from_lookup(|name| variables.get(name).map(|value| (*value).to_owned()));
    let http = onetap_http::Client::new();
    let weather = onetap_weather::Config::from_variables(&variables).unwrap().open(&http);
    let config = Config::from_variables(&variables).unwrap().with_times(times);
    webhook::on(store, Arc::new(weather), &http, config).unwrap().with_clock(|| clock().unix() * 1000)
}

fn status(status: u16) -> Fault {
    Fault::Status(status, r#"{"message":"no"}"#.to_owned())
}

// ---- the provider ----

#[tokio::test]
async fn while_everything_works_a_forecast_is_fetched_once_in_half_an_hour() {
    let stage = Stage::new().await;
    let shown = stage.shows(PROVIDERS, [1, 0, 1]).await;
    assert!(shown.ends_with("\n03/01 09:10 更新"), "{shown}");
    pass(1799);
    let kept = stage.shows(PROVIDERS, [0, 0, 1]).await;
    assert!(kept.ends_with("\n03/01 09:10 更新"), "{kept}");
    pass(1);
    let renewed = stage.shows("臺北市信義區", [1, 0, 1]).await;
    assert!(renewed.ends_with("\n03/01 09:40 更新"), "{renewed}");
}

#[tokio::test]
async fn a_slow_provider_is_given_up_and_the_fallback_answers() {
    let stage = Stage::new().await;
    stage.provider.inject(Some(Fault::Hang));
    stage.shows(FALLBACKS, [1, 1, 1]).await;
    stage.shows(FALLBACKS, [0, 0, 1]).await;
}

#[tokio::test]
async fn a_provider_that_is_down_is_replaced_by_the_fallback() {
    for fault in [status(500), status(503), Fault::Close, Fault::HalfBody, Fault::Html, Fault::Empty] {
        let stage = Stage::new().await;
        stage.provider.inject(Some(fault));
        stage.shows(FALLBACKS, [1, 1, 1]).await;
        stage.shows(FALLBACKS, [0, 0, 1]).await;
    }
    let unreachable = [("CWA_API_BASE_URL", "http://127.0.0.1:1")];
    Stage::on(TestStore::counting(memory()), &unreachable).await.shows(FALLBACKS, [0, 1, 1]).await;
}

#[tokio::test]
async fn a_provider_that_answers_429_is_left_alone_for_a_minute() {
    let stage = Stage::new().await;
    stage.provider.inject(Some(status(429)));
    stage.shows(FALLBACKS, [1, 1, 1]).await;
    stage.provider.inject(None);
    let elsewhere = async || stage.deliver(&text(&user(), "新北市永和區")).await;
    pass(59);
    let (answered, shown, calls) = elsewhere().await;
    assert_eq!((answered, calls), (200, [0, 1, 1]), "{shown:?}");
    // The fallback's forecast is kept as well, and when it is no longer fresh the provider is asked again.
    pass(1800);
    stage.shows("臺北市信義區\n⛅", [1, 0, 1]).await;
}

#[tokio::test]
async fn a_provider_that_refuses_the_key_is_replaced_by_the_fallback() {
    for refusal in [401, 403] {
        let stage = Stage::new().await;
        stage.provider.inject(Some(status(refusal)));
        stage.shows(FALLBACKS, [1, 1, 1]).await;
    }
}

#[tokio::test]
async fn a_forecast_of_open_meteo_names_it_whether_fetched_kept_or_stale_and_one_of_cwa_does_not() {
    let stage = Stage::new().await;
    stage.provider.inject(Some(status(500)));
    let fetched = stage.shows(FALLBACKS, [1, 1, 1]).await;
    let kept = stage.shows(FALLBACKS, [0, 0, 1]).await;
    stage.fallback.inject(Some(status(500)));
    pass(1800);
    let stale = stage.shows(FALLBACKS, [1, 1, 1]).await;
    for shown in [fetched, kept, stale] {
        assert!(shown.ends_with("\n03/01 09:10 更新 · Open-Meteo.com"), "{shown}");
    }
    stage.provider.inject(None);
    let renewed = stage.shows(PROVIDERS, [1, 0, 1]).await;
    assert!(renewed.ends_with(" 更新"), "{renewed}");
}

// ---- the fallback too ----

#[tokio::test]
async fn where_provider_and_fallback_fail_the_kept_forecast_is_shown_with_its_time() {
    for fault in [Fault::Hang, status(500), status(429), status(401)] {
        let stage = Stage::new().await;
        stage.shows(PROVIDERS, [1, 0, 1]).await;
        stage.provider.inject(Some(fault.clone()));
        stage.fallback.inject(Some(fault));
        pass(1800);
        let stale = stage.shows("臺北市信義區\n⛅", [1, 1, 1]).await;
        assert!(stale.ends_with("\n03/01 09:10 更新"), "{stale}");
        CLOCK.set(CLOCK.get() - 1800);
    }
}

#[tokio::test]
async fn where_nothing_is_kept_either_the_user_is_asked_to_try_again() {
    for fault in [Fault::Hang, status(500), status(429), status(401)] {
        let stage = Stage::new().await;
        stage.provider.inject(Some(fault.clone()));
        stage.fallback.inject(Some(fault));
        stage.shows(BUSY, [1, 1, 1]).await;
    }
    let alone = Stage::on(TestStore::counting(memory()), &[("WEATHER_FALLBACK_PROVIDER", "")]).await;
    alone.provider.inject(Some(status(500)));
    alone.shows(BUSY, [1, 0, 1]).await;
}

#[tokio::test]
async fn a_forecast_older_than_six_hours_is_not_shown() {
    let stage = Stage::new().await;
    stage.shows(PROVIDERS, [1, 0, 1]).await;
    stage.provider.inject(Some(status(500)));
    stage.fallback.inject(Some(status(500)));
    pass(21_599);
    stage.shows("臺北市信義區", [1, 1, 1]).await;
    pass(1);
    stage.shows(BUSY, [1, 1, 1]).await;
}

// ---- LINE ----

#[tokio::test]
async fn a_reply_for_which_line_cannot_be_reached_is_sent_by_the_redelivery() {
    let unreachable = [("LINE_API_BASE_URL", "http://127.0.0.1:1")];
    let stage = Stage::on(TestStore::counting(memory()), &unreachable).await;
    let event = text(&user(), "臺北市信義區");
    let (status, shown, calls) = stage.deliver(&event).await;
    assert_eq!((status, shown, calls), (500, None, [1, 0, 0]));
    // LINE is back, for another instance.
    let reachable = Stage::on(stage.store.clone(), &[]).await;
    let (status, shown, calls) = reachable.deliver(&redelivered(&event)).await;
    assert_eq!((status, calls), (200, [0, 0, 1]), "the kept answer, or a forecast from the store");
    assert!(shown.unwrap().starts_with(PROVIDERS));
}

// ---- the store ----

#[tokio::test]
async fn without_the_store_a_place_has_its_forecast_and_a_saved_place_an_apology() {
    let stage = Stage::on(TestStore::faulty(memory(), |_| StoreFault::NotSent), &[]).await;
    stage.shows(PROVIDERS, [1, 0, 1]).await;
    assert_eq!(stage.store.calls(), 1, "after one failure the store is left alone");
    // What is kept in the process needs no store.
    stage.shows(PROVIDERS, [0, 0, 1]).await;
    let (status, shown, calls) = stage.deliver(&tap(&user(), HOME)).await;
    assert_eq!((status, shown.as_deref(), calls), (200, Some(BUSY), [0, 0, 1]));
}

#[tokio::test]
async fn without_the_store_and_the_provider_the_fallback_answers() {
    let stage = Stage::on(TestStore::faulty(memory(), |_| StoreFault::NotSent), &[]).await;
    stage.provider.inject(Some(status(500)));
    stage.shows(FALLBACKS, [1, 1, 1]).await;
}

#[tokio::test]
async fn a_store_that_fails_at_the_kept_forecast_does_not_cost_the_answer() {
    // The second call is the read of the kept forecast, and the last one would keep the new one.
    for failing in [2, 3, 4] {
        let fails = move |call| if call == failing { StoreFault::NotSent } else { StoreFault::Pass };
        let stage = Stage::on(TestStore::faulty(memory(), fails), &[]).await;
        stage.shows(PROVIDERS, [1, 0, 1]).await;
    }
}

// ---- what LINE may do to a reply ----

mod replies;

// ---- for hours ----

mod outage;
