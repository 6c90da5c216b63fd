//! The connections that are opened while the function starts.

use crate::support;

use std::path::Path;
use std::time::Duration;

use onetap_config::{Secret, Variables};
use onetap_line::testing::MessagingApi;
use onetap_servers::{Broken, Fault, HttpStub, RuntimeApi, TcpProxy};
use onetap_store::WARM_UP_TIMEOUT;
use support::*;
use tokio::time::Instant;
use webhook::Webhook;

/// What the public service answers.
const WEATHER: &str = include_str!("../../../../shared/weather/tests/fixtures/open-meteo.json");

fn variables(store: &[(&'static str, String)], line: String, weather: String) -> Vec<(&'static str, String)> {
    let own = [
        ("LINE_CHANNEL_SECRET", SECRET.to_owned()),
        ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN.to_owned()),
        ("LINE_API_BASE_URL", line),
        ("WEATHER_PROVIDER", "open-meteo".to_owned()),
        ("OPEN_METEO_BASE_URL", weather),
    ];
    store.iter().cloned().chain(own).collect()
}

fn webhook(variables: &[(&'static str, String)]) -> Webhook {
    let lookup =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    webhook::from_variables(&Variables::from_lookup(lookup)).unwrap()
}

/// A database at Upstash.
fn upstash(url: String) -> [(&'static str, String); 3] {
    [
        ("STORE", "upstash".to_owned()),
        ("UPSTASH_REDIS_REST_URL", url),
        ("UPSTASH_REDIS_REST_TOKEN", "t".to_owned()),
    ]
}

/// A proxy in front of the server at `url`, and its own URL.
async fn counted(url: &str) -> (TcpProxy, String) {
    let proxy = TcpProxy::start(url.trim_start_matches("http://")).await;
    let url = format!("http://127.0.0.1:{}", proxy.port());
    (proxy, url)
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_first_tap_after_a_warm_up_opens_no_connection() {
    let environment = Environment::start(Backend::Upstash).await;
    let gateway = environment.gateway().unwrap().url();
    let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let weather = HttpStub::always(Fault::Status(200, WEATHER.to_owned()));
    let (to_store, store_url) = counted(&gateway).await;
    let (to_line, line_url) = counted(&line.url()).await;
    let (to_weather, weather_url) = counted(&weather.url()).await;
    let environment = environment.with("UPSTASH_REDIS_REST_URL", store_url);
    let connections = || [&to_store, &to_line, &to_weather].map(TcpProxy::connections);

    let webhook = webhook(&variables(environment.variables(), line_url, weather_url));
    assert_eq!(connections(), [0, 0, 0]);
    webhook.warm_up().await;
    tokio::join!(to_store.accepted(1), to_line.accepted(1), to_weather.accepted(1));
    assert_eq!(connections(), [1, 1, 1]);
    let requests = [environment.gateway().unwrap().requests(), line.requests(), weather.requests()];
    assert_eq!(requests, [0, 0, 0], "nothing is sent");

    assert_eq!(deliver(&webhook, &[text(&user(), "臺北市信義區")]).await, 200);
    assert!(line.take_replies()[0].text().contains("信義區"));
    assert_eq!((weather.requests(), connections()), (1, [1, 1, 1]));
    // Once more is no harm.
    webhook.warm_up().await;
    assert_eq!(connections(), [1, 1, 1]);
}

#[tokio::test]
async fn a_warm_up_waits_its_limit_for_services_that_do_not_answer_and_never_fails() {
    let (full, mute) = (Broken::never_accepts().await, Broken::accepts_and_never_answers().await);
    let no_tls = HttpStub::always(Fault::Empty);
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let https = |url: String| url.replace("http:", "https:");
    let services = [full.url(), https(mute.url()), https(no_tls.url()), format!("http://{refused}")];
    tokio::time::pause();
    for store in &services {
        let environment = upstash(store.clone());
        for other in &services {
            let webhook = webhook(&variables(&environment, other.clone(), other.clone()));
            let start = Instant::now();
            webhook.warm_up().await;
            // The clock moves only when there is nothing left to do. Timers are rounded up.
            assert!(start.elapsed() <= WARM_UP_TIMEOUT + Duration::from_millis(2), "{:?}", start.elapsed());
        }
    }
}

#[tokio::test]
async fn the_program_connects_to_all_services_before_its_first_event() {
    let [store, line, weather] =
        [HttpStub::always(Fault::Empty), HttpStub::always(Fault::Empty), HttpStub::always(Fault::Empty)];
    let api = RuntimeApi::start();
    let variables = variables(&upstash(store.url()), line.url(), weather.url());
    let _program = api.run(Path::new(env!("CARGO_BIN_EXE_webhook")), variables);
    api.polled(1).await;
    for server in [store, line, weather] {
        server.accepted(1).await;
        assert_eq!((server.connections(), server.requests()), (1, 0), "nothing is sent");
    }
}

#[tokio::test]
async fn the_program_starts_although_no_service_answers() {
    let (mute, api) = (Broken::accepts_and_never_answers().await, RuntimeApi::start());
    let url = mute.url().replace("http:", "https:");
    let variables = variables(&upstash(url.clone()), url.clone(), url);
    let _program = api.run(Path::new(env!("CARGO_BIN_EXE_webhook")), variables);
    api.polled(1).await;
}
