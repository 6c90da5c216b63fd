//! The providers against a local server: what they ask, and what they make of every kind of answer.

use std::time::Duration;

use onetap_config::{Secret, Variables};
use onetap_servers::{Fault, HttpStub};
use onetap_weather::{
    Config, Error, Forecast, ForecastAges, Moment, Place, Provider, ProviderConfig, Sample, places,
};
use tokio::time::Instant;

/// More than any machine needs to connect and to send.
const HOUR: Duration = Duration::from_secs(3600);
const CWA: &str = include_str!("../fixtures/cwa.json");
const OPEN_METEO: &str = include_str!("../fixtures/open-meteo.json");
const KEY: &str = "CWA-PLANTED/KEY";

fn xinyi() -> &'static Place {
    places::by_name("臺北市信義區").unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn configs(url: &str) -> [ProviderConfig; 2] {
    [
        ProviderConfig::Cwa { key: Secret::new(KEY), base_url: url.to_owned() },
        ProviderConfig::OpenMeteo { base_url: url.to_owned() },
    ]
}

async fn ask(config: &ProviderConfig, place: &Place, deadline: Instant) -> Result<Forecast, Error> {
    config.open(&onetap_http::Client::new()).forecast(place, deadline).await
}

/// The message of a forecast that was fetched and is shown at this time.
fn at(forecast: Forecast, time: &str) -> String {
    let now = Moment::parse(time).unwrap();
    Forecast { fetched: now, ..forecast }.text(now)
}

/// The target of every request so far: path and query.
fn targets(server: &HttpStub) -> Vec<String> {
    server.received().iter().map(|request| request.uri().to_string()).collect()
}

/// Each provider's verdict on one answer.
async fn verdicts(says: Fault) -> [Result<Forecast, Error>; 2] {
    let server = HttpStub::always(says);
    let [cwa, open_meteo] = configs(&server.url());
    [ask(&cwa, xinyi(), soon()).await, ask(&open_meteo, xinyi(), soon()).await]
}

#[tokio::test]
async fn cwa_is_asked_for_one_township_and_three_elements_of_its_county() {
    let server = HttpStub::always(Fault::ok(CWA));
    let forecast = ask(&configs(&server.url())[0], xinyi(), soon()).await.unwrap();
    assert_eq!(
        targets(&server),
        ["/api/v1/rest/datastore/F-D0047-061?Authorization=CWA%2DPLANTED%2FKEY&format=JSON\
          &LocationName=%E4%BF%A1%E7%BE%A9%E5%8D%80\
          &ElementName=%E6%BA%AB%E5%BA%A6,3%E5%B0%8F%E6%99%82%E9%99%8D%E9%9B%A8%E6%A9%9F%E7%8E%87,\
          %E5%A4%A9%E6%B0%A3%E7%8F%BE%E8%B1%A1"]
    );
    assert_eq!(
        at(forecast, "2026-03-01T09:10"),
        "臺北市信義區\n\
         ⛅ 09-12 🌡️21°💧20%\n\
         🌦️ 12-15 🌡️22°💧60%\n\
         ⛈️ 15-18 🌡️22°💧80%\n\
         🌧️ 18-21 🌡️20°💧70%\n\
         ☁️ 21-00 🌡️17°💧30%\n\
         🌫️ 00-03 🌡️15°💧0%\n\
         ☀️ 03-06 🌡️15°💧10%\n\
         🌤️ 06-09 🌡️16°💧--%\n\
         03/01 09:10 更新"
    );
}

#[tokio::test]
async fn a_provider_connects_ahead_of_its_first_forecast_and_sends_nothing() {
    for n in 0..2 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/base", listener.local_addr().unwrap());
        let provider = configs(&url)[n].open(&onetap_http::Client::new());
        assert_eq!(provider.connect(soon()).await, Ok(()));
        let (mut stream, _) = listener.accept().unwrap();
        drop(provider);
        // On another thread: this one closes the connection.
        let read = move || std::io::Read::read(&mut stream, &mut [0]);
        let sent = tokio::task::spawn_blocking(read).await.unwrap().unwrap();
        assert_eq!(sent, 0, "closed without a byte");
        drop(listener);
        let provider = configs(&url)[n].open(&onetap_http::Client::new());
        assert_eq!(provider.connect(soon()).await, Err(Error::Unavailable));
    }
    assert_eq!(Sample::new().connect(soon()).await, Ok(()), "nothing to open");
}

#[tokio::test]
async fn every_county_has_a_dataset_of_its_own() {
    let server = HttpStub::always(Fault::ok(CWA));
    let mut counties = Vec::new();
    for place in places::all() {
        if !counties.contains(&place.county()) {
            counties.push(place.county());
            // The answer is 信義區's, so all the others are refused; the question is what counts.
            let _ = ask(&configs(&server.url())[0], place, soon()).await;
        }
    }
    let mut datasets: Vec<String> =
        targets(&server).iter().map(|target| target.split('?').next().unwrap().to_owned()).collect();
    datasets.sort();
    let expected: Vec<String> =
        (0..22).map(|n| format!("/api/v1/rest/datastore/F-D0047-{:03}", 4 * n + 1)).collect();
    assert_eq!(datasets, expected);
}

#[tokio::test]
async fn open_meteo_is_asked_for_two_days_of_hours_in_taipei() {
    let server = HttpStub::always(Fault::ok(OPEN_METEO));
    let forecast = ask(&configs(&server.url())[1], xinyi(), soon()).await.unwrap();
    let (latitude, longitude) = (xinyi().latitude(), xinyi().longitude());
    assert_eq!(
        targets(&server),
        [format!(
            "/v1/forecast?latitude={latitude}&longitude={longitude}\
             &hourly=temperature_2m,precipitation_probability,weather_code\
             &timezone=Asia/Taipei&forecast_days=2"
        )]
    );
    assert_eq!(
        at(forecast, "2026-03-01T09:10"),
        "臺北市信義區\n\
         ⛈️ 09-12 🌡️21°💧24%\n\
         🌫️ 12-15 🌡️22°💧45%\n\
         🌦️ 15-18 🌡️22°💧59%\n\
         🌧️ 18-21 🌡️20°💧27%\n\
         🌨️ 21-00 🌡️17°💧48%\n\
         🌦️ 00-03 🌡️15°💧55%\n\
         ⛈️ 03-06 🌡️16°💧23%\n\
         ☁️ 06-09 🌡️18°💧51%\n\
         03/01 09:10 更新"
    );
}

#[tokio::test]
async fn an_error_status_is_told_by_its_kind() {
    for (status, error) in [
        (401, Error::KeyRefused),
        (403, Error::KeyRefused),
        (404, Error::BadAnswer),
        (400, Error::BadAnswer),
        (302, Error::BadAnswer),
        (429, Error::RateLimited),
        (500, Error::Unavailable),
        (503, Error::Unavailable),
    ] {
        let says = Fault::Status(status, r#"{"message":"no"}"#.to_owned());
        assert_eq!(verdicts(says).await, [Err(error), Err(error)], "{status}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_forecast_is_a_bad_answer() {
    let hourly = |values: &str| {
        format!(
            r#"{{"hourly":{{"time":["2026-03-01T00:00"],"temperature_2m":{values},
               "precipitation_probability":[1],"weather_code":[1]}}}}"#
        )
    };
    for body in [
        String::new(),
        "<!doctype html><title>Sign in</title>".to_owned(),
        CWA[..2000].to_owned(),
        OPEN_METEO[..600].to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        r#"{"success":"false"}"#.to_owned(),
        r#"{"records":{"Locations":"none"},"hourly":[]}"#.to_owned(),
        r#"{"records":{"Locations":[]},"hourly":{}}"#.to_owned(),
        CWA.replace("信義區", "大安區"),
        CWA.replace("StartTime", "Begin"),
        CWA.replace("+08:00", " o'clock"),
        r#"{"error":true,"reason":"Value of type 'String' required"}"#.to_owned(),
        hourly("[1,2]"),
        hourly("[]"),
        hourly(r#"["warm"]"#),
        hourly("[1]").replace("2026-03-01T00:00", "midnight"),
        "x".repeat(3 << 20),
    ] {
        let start: String = body.chars().take(60).collect();
        let answers = verdicts(Fault::ok(body)).await;
        assert_eq!(answers, [Err(Error::BadAnswer), Err(Error::BadAnswer)], "{start}");
    }
}

#[tokio::test]
async fn a_broken_connection_is_unavailable_and_silence_is_late() {
    let half = verdicts(Fault::HalfBody).await;
    assert_eq!(half, [Err(Error::Unavailable), Err(Error::Unavailable)]);

    let nobody = configs("http://127.0.0.1:1");
    assert_eq!(ask(&nobody[0], xinyi(), soon()).await, Err(Error::Unavailable));

    let server = HttpStub::always(Fault::Hang);
    for (n, config) in configs(&server.url()).into_iter().enumerate() {
        let deadline = Instant::now() + HOUR;
        let asked = tokio::spawn(async move { ask(&config, xinyi(), deadline).await });
        server.until_received(n + 1).await;
        // The question has arrived, and nobody will answer it: the time passes at once.
        tokio::time::pause();
        assert_eq!(asked.await.unwrap(), Err(Error::Late));
        let late = deadline.elapsed();
        assert!(late < Duration::from_millis(10), "{late:?} after the deadline");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn values_that_are_unknown_or_odd_leave_a_gap_and_not_a_failure() {
    let odd = CWA
        .replace(r#""Temperature": "22""#, r#""Temperature": 22.4"#)
        .replace(r#""ProbabilityOfPrecipitation": "80""#, r#""ProbabilityOfPrecipitation": "-99""#)
        .replace(r#""WeatherCode": "11""#, r#""WeatherCode": "x""#)
        .replace(r#""ProbabilityOfPrecipitation": "70""#, r#""ProbabilityOfPrecipitation": null"#);
    let server = HttpStub::always(Fault::ok(odd));
    let forecast = ask(&configs(&server.url())[0], xinyi(), soon()).await.unwrap();
    let text = at(forecast, "2026-03-01T15:00");
    let lines: Vec<&str> = text.lines().take(3).collect();
    assert_eq!(lines, ["臺北市信義區", "⛈️ 15-18 🌡️22°💧--%", "❔ 18-21 🌡️20°💧--%"]);
}

#[tokio::test]
async fn no_error_and_no_debug_names_the_key_or_the_address() {
    let server = HttpStub::always(Fault::Status(401, String::new()));
    let config = &configs(&server.url())[0];
    let error = ask(config, xinyi(), soon()).await.unwrap_err();
    let provider = config.open(&onetap_http::Client::new());
    let said = format!("{error} {error:?} {config:?} {provider:?}");
    assert!(!said.contains("PLANTED"), "{said}");
    assert!(!format!("{error} {error:?} {provider:?}").contains("127.0.0.1"), "{said}");
}

fn read(pairs: &[(&str, &str)]) -> Result<Config, String> {
    let lookup =
        |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    Config::from_variables(&Variables::from_lookup(lookup)).map_err(|error| error.variable().to_owned())
}

#[test]
fn the_configuration_names_the_variable_that_is_wrong() {
    let provider = |pairs: &[(&str, &str)]| read(pairs).map(|config| config.provider);
    let cwa = |base_url: &str| ProviderConfig::Cwa { key: Secret::new("k"), base_url: base_url.to_owned() };
    assert_eq!(provider(&[("WEATHER_PROVIDER", "sample")]), Ok(ProviderConfig::Sample));
    assert_eq!(
        provider(&[("WEATHER_PROVIDER", "open-meteo")]),
        Ok(ProviderConfig::OpenMeteo { base_url: "https://api.open-meteo.com".to_owned() })
    );
    let key = ("CWA_API_KEY", "k");
    let is_cwa = ("WEATHER_PROVIDER", "cwa");
    assert_eq!(provider(&[is_cwa, key]), Ok(cwa("https://opendata.cwa.gov.tw")));
    assert_eq!(provider(&[is_cwa, key, ("CWA_API_BASE_URL", "http://l:1/")]), Ok(cwa("http://l:1")));
    assert_eq!(provider(&[is_cwa]), Err("CWA_API_KEY".to_owned()));
    assert_eq!(provider(&[("WEATHER_PROVIDER", "accu")]), Err("WEATHER_PROVIDER".to_owned()));
    assert_eq!(provider(&[]), Err("WEATHER_PROVIDER".to_owned()));
    let no_url = ["ftp://x", "nonsense", "https://", "http://x/?q", "http://name:password@x", "/path"];
    let no_address = ["http://x:99999", "http://x:port", "http://x:", "http://[::1"];
    for wrong in no_url.into_iter().chain(no_address) {
        assert_eq!(provider(&[is_cwa, key, ("CWA_API_BASE_URL", wrong)]), Err("CWA_API_BASE_URL".to_owned()));
    }
}

#[test]
fn the_configuration_has_a_fallback_and_how_long_forecasts_are_kept() {
    let open_meteo = ("WEATHER_PROVIDER", "open-meteo");
    let alone = read(&[open_meteo, ("WEATHER_FALLBACK_PROVIDER", "")]).unwrap();
    assert_eq!((alone.fallback, alone.keep), (None, ForecastAges::default()));
    let keep = [("WEATHER_FRESH_SECONDS", "0"), ("WEATHER_STALE_SECONDS", "7")];
    let config = read(&[open_meteo, ("WEATHER_FALLBACK_PROVIDER", "sample"), keep[0], keep[1]]).unwrap();
    assert_eq!(config.fallback, Some(ProviderConfig::Sample));
    assert_eq!(config.keep, ForecastAges { fresh: Duration::ZERO, stale: Duration::from_secs(7) });
    for (wrong, named) in [
        (("WEATHER_FALLBACK_PROVIDER", "open-meteo"), "WEATHER_FALLBACK_PROVIDER"),
        (("WEATHER_FALLBACK_PROVIDER", "accu"), "WEATHER_FALLBACK_PROVIDER"),
        (("WEATHER_FALLBACK_PROVIDER", "cwa"), "CWA_API_KEY"),
        (("WEATHER_FRESH_SECONDS", "soon"), "WEATHER_FRESH_SECONDS"),
        (("WEATHER_STALE_SECONDS", "0"), "WEATHER_STALE_SECONDS"),
        (("WEATHER_STALE_SECONDS", "60"), "WEATHER_STALE_SECONDS"),
    ] {
        assert_eq!(read(&[open_meteo, wrong]).map(|_| ()), Err(named.to_owned()), "{wrong:?}");
    }
}
