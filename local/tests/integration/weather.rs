//! The weather of the playground: its faults, where each forecast comes from, and who was asked.

use crate::support;

use http::Method;
use onetap_servers::{Fault, HttpStub};
use serde_json::{Value, json};
use support::*;

/// What the public weather service answers.
const WEATHER: &str = include_str!("../../../shared/weather/tests/fixtures/open-meteo.json");

/// Asks for the forecast of `place`: where it came from.
async fn ask(runner: &Runner, user: &str, place: &str) -> String {
    let body = json!({ "user": user, "events": [text(place)] });
    let answer = runner.control(Method::POST, "deliver", body).await;
    answer["deliveries"][0]["events"][0]["forecast"].as_str().unwrap().to_owned()
}

async fn set(runner: &Runner, weather: Value) -> Value {
    runner.control(Method::PUT, "weather", weather).await["weather"].take()
}

async fn forget(runner: &Runner) -> Value {
    runner.control(Method::POST, "weather/forget", json!({})).await["deleted"].take()
}

/// How often the provider and the fallback were asked.
async fn calls(runner: &Runner) -> (u64, u64) {
    let providers = runner.snapshot().await["weather"]["providers"].take();
    (providers[0]["calls"].as_u64().unwrap(), providers[1]["calls"].as_u64().unwrap())
}

#[tokio::test]
async fn a_forecast_that_is_kept_causes_no_call_whoever_asks() {
    let runner = Runner::start().await;
    assert_eq!(ask(&runner, ALICE, "永和區").await, "fetched");
    assert_eq!(ask(&runner, BOB, "永和區").await, "kept");
    assert_eq!(runner.deliver(BOB, tap(HOME), 1).await, ["handled"]);
    assert_eq!(calls(&runner).await, (1, 0));
    let replies = runner.snapshot().await["replies"].take();
    let sources: Vec<&Value> = replies.as_array().unwrap().iter().map(|reply| &reply["forecast"]).collect();
    assert_eq!(sources, ["fetched", "kept", "kept"], "the replies have it too");
}

#[tokio::test]
async fn with_the_provider_down_the_fallback_answers_and_with_both_down_the_forecast_out_of_date() {
    let runner = Runner::start().await;
    assert_eq!(ask(&runner, ALICE, "板橋區").await, "fetched");
    let down = set(&runner, json!({ "provider": "down" })).await;
    assert_eq!((&down["providers"][0]["behaviour"], &down["delay_ms"]), (&json!("down"), &json!(300)));
    assert_eq!(ask(&runner, ALICE, "永和區").await, "fallback");
    assert_eq!(ask(&runner, BOB, "永和區").await, "kept");
    assert_eq!(calls(&runner).await, (2, 1));

    set(&runner, json!({ "fallback": "down" })).await;
    assert_eq!(ask(&runner, BOB, "板橋區").await, "kept", "it is fresh");
    runner.control(Method::POST, "weather/outdate", json!({})).await;
    assert_eq!(ask(&runner, BOB, "板橋區").await, "stale");
    assert_eq!(ask(&runner, BOB, "淡水區").await, "failed");
    set(&runner, json!({ "provider": "works" })).await;
    assert_eq!(ask(&runner, BOB, "板橋區").await, "fetched");
}

#[tokio::test]
async fn after_a_429_the_provider_is_left_alone_until_that_is_forgotten() {
    let runner = Runner::start().await;
    set(&runner, json!({ "provider": "refuses" })).await;
    assert_eq!(ask(&runner, ALICE, "永和區").await, "fallback");
    let works = set(&runner, json!({ "provider": "works" })).await;
    let (until, now) =
        (works["providers"][0]["paused_until"].as_u64(), runner.snapshot().await["now"].as_u64());
    assert!(until.unwrap() - now.unwrap() <= 63_000, "{works}");
    assert_eq!(works["providers"][1]["paused_until"], Value::Null);
    assert_eq!(ask(&runner, ALICE, "板橋區").await, "fallback");
    assert_eq!(calls(&runner).await, (1, 2));

    assert_eq!(forget(&runner).await, 2);
    assert_eq!(runner.snapshot().await["weather"]["providers"][0]["paused_until"], Value::Null);
    assert_eq!(ask(&runner, ALICE, "板橋區").await, "fetched");
}

#[tokio::test]
async fn what_is_forgotten_is_gone_from_the_process_and_from_the_store() {
    let runner = Runner::start().await;
    let kept = async || {
        let keys = runner.snapshot().await["keys"].take();
        let names = keys.as_array().unwrap().iter().map(|key| key["key"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("weather:")).collect::<Vec<_>>()
    };
    assert_eq!(forget(&runner).await, 0);
    assert_eq!(ask(&runner, ALICE, "永和區").await, "fetched");
    assert_eq!(kept().await, ["weather:sample:新北市永和區"]);
    assert_eq!(forget(&runner).await, 1);
    assert!(kept().await.is_empty());
    assert_eq!(ask(&runner, ALICE, "永和區").await, "fetched");

    // A store that is down keeps what it has.
    runner.control(Method::PUT, "store", json!({ "down": true })).await;
    assert_eq!(forget(&runner).await, 0);
    runner.control(Method::PUT, "store", json!({ "down": false })).await;
    assert_eq!(ask(&runner, ALICE, "永和區").await, "kept");
    assert_eq!(calls(&runner).await, (2, 0));
    assert_eq!(forget(&runner).await, 1);
    assert_eq!(ask(&runner, ALICE, "永和區").await, "fetched");
}

#[tokio::test]
async fn the_faults_stand_before_a_real_provider_as_well() {
    let service = HttpStub::always(Fault::Status(200, WEATHER.to_owned()));
    let real = [("WEATHER_PROVIDER", "open-meteo"), ("OPEN_METEO_BASE_URL", &service.url())];
    let runner = Runner::with(&real).await;
    let providers = set(&runner, json!({ "provider": "down" })).await["providers"].take();
    assert_eq!((&providers[0]["name"], providers.as_array().unwrap().len()), (&json!("open-meteo"), 1));
    assert_eq!(ask(&runner, ALICE, "永和區").await, "failed");
    set(&runner, json!({ "provider": "works" })).await;
    assert_eq!(ask(&runner, ALICE, "永和區").await, "fetched");
    let none = runner.call(Method::PUT, "/playground/weather", r#"{"fallback":"down"}"#).await;
    assert_eq!(none.status, 409, "{}", none.text);

    let both = [real[0], real[1], ("WEATHER_FALLBACK_PROVIDER", "sample")];
    let runner = Runner::with(&both).await;
    let providers = set(&runner, json!({ "provider": "down" })).await["providers"].take();
    assert_eq!((&providers[0]["name"], &providers[1]["name"]), (&json!("open-meteo"), &json!("sample")));
    assert_eq!(ask(&runner, ALICE, "永和區").await, "fallback");
}
