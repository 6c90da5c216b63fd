//! The weather's checks against stubs of the providers: each fault has its own finding, and no other.

use onetap_doctor::{Finding, Status, weather};
use onetap_servers::{Fault, HttpStub};

use crate::support::weather::open_meteo;
use crate::support::{calls, faults, once_asked, only_fault, reported};

const CWA: &str = include_str!("../../../shared/weather/tests/fixtures/cwa.json");
const OPEN_METEO: &str = include_str!("../../../shared/weather/tests/fixtures/open-meteo.json");

async fn examined(set: &[(&str, &str)]) -> Vec<Finding> {
    reported(set, async |variables, report| weather::examine(variables, report).await).await
}

/// What is found where the provider `name` is at `stub`.
async fn at(stub: &HttpStub, name: &str) -> Vec<Finding> {
    examined(&[
        ("WEATHER_PROVIDER", name),
        ("CWA_API_KEY", "planted-key"),
        ("CWA_API_BASE_URL", &stub.url()),
        ("OPEN_METEO_BASE_URL", &stub.url()),
    ])
    .await
}

/// The one fault of a provider that answers so.
async fn fault(name: &str, answer: Fault) -> (&'static str, Status, String, String) {
    let stub = HttpStub::always(answer);
    only_fault(&at(&stub, name).await)
}

#[tokio::test]
async fn a_provider_that_is_well_is_asked_once_and_shown_with_the_age_of_its_forecast() {
    let stub = HttpStub::always(Fault::ok(open_meteo(-5, 43)));
    let findings = at(&stub, "open-meteo").await;
    assert_eq!(faults(&findings), []);
    assert_eq!(findings[0].check, "provider");
    let (seen, reach) = findings[0].seen.split_once(" and ends in ").unwrap();
    let begins = seen.strip_prefix("open-meteo: a forecast that begins ").unwrap();
    // By three hours at a time.
    assert!(["5 h ago", "6 h ago", "7 h ago", "8 h ago"].contains(&begins), "{begins}");
    assert!(["42 h", "43 h", "44 h", "45 h", "46 h"].contains(&reach), "{reach}");
    assert_eq!(findings[1].status, Status::Skipped, "no fallback is no fault");
    assert!(findings[1].seen.starts_with("WEATHER_FALLBACK_PROVIDER is not set"), "{}", findings[1].seen);
    assert_eq!(calls(&stub), ["GET /v1/forecast"]);
}

#[tokio::test]
async fn both_providers_are_asked_and_the_fault_of_one_is_not_the_others() {
    let (well, refusing) = (
        HttpStub::always(Fault::ok(open_meteo(-5, 43))),
        HttpStub::always(Fault::Status(401, "planted".into())),
    );
    for (first, second, check) in [("cwa", "open-meteo", "provider"), ("open-meteo", "cwa", "fallback")] {
        let set = [
            ("WEATHER_PROVIDER", first),
            ("WEATHER_FALLBACK_PROVIDER", second),
            ("CWA_API_KEY", "planted-key"),
            ("CWA_API_BASE_URL", &refusing.url()),
            ("OPEN_METEO_BASE_URL", &well.url()),
        ];
        let (found, status, seen, remedy) = only_fault(&examined(&set).await);
        assert_eq!((found, status, seen.as_str()), (check, Status::Wrong, "cwa refuses the key"));
        assert!(remedy.contains("CWA_API_KEY"), "{remedy}");
    }
    assert_eq!((well.requests(), refusing.requests()), (2, 2));
}

#[tokio::test]
async fn what_a_provider_answers_instead_is_told_by_its_kind() {
    let planted = || "planted-body".to_owned();
    for (name, answer, status, seen, remedy) in [
        ("cwa", Fault::Status(403, planted()), Status::Wrong, "cwa refuses the key", "CWA_API_KEY"),
        (
            "open-meteo",
            Fault::Status(403, planted()),
            Status::Wrong,
            "open-meteo refuses to answer",
            "OPEN_METEO_BASE_URL",
        ),
        ("cwa", Fault::Status(429, planted()), Status::Warning, "cwa was asked too often (429)", "quota"),
        (
            "open-meteo",
            Fault::Status(503, planted()),
            Status::Wrong,
            "open-meteo fails",
            "OPEN_METEO_BASE_URL",
        ),
        (
            "cwa",
            Fault::ok(planted()),
            Status::Wrong,
            "cwa answers with something that is not a forecast",
            "CWA_API_BASE_URL",
        ),
        (
            "cwa",
            Fault::ok(CWA.replace("信義區", "大安區")),
            Status::Wrong,
            "cwa answers with something that is not a forecast",
            "CWA_API_BASE_URL",
        ),
    ] {
        let found = fault(name, answer).await;
        assert_eq!((found.0, found.1, found.2.as_str()), ("provider", status, seen));
        assert!(found.3.contains(remedy), "{}", found.3);
    }
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_the_only_fault() {
    let set = [("WEATHER_PROVIDER", "open-meteo"), ("OPEN_METEO_BASE_URL", "http://127.0.0.1:1")];
    let (check, status, seen, remedy) = only_fault(&examined(&set).await);
    assert_eq!((check, status, seen.as_str()), ("provider", Status::Wrong, "open-meteo cannot be reached"));
    assert!(remedy.contains("OPEN_METEO_BASE_URL"), "{remedy}");
}

#[tokio::test]
async fn a_provider_that_never_answers_is_given_up() {
    let stub = HttpStub::always(Fault::Hang);
    let findings = once_asked(&stub, at(&stub, "cwa")).await;
    let (check, status, seen, _) = only_fault(&findings);
    assert_eq!((check, status, seen.as_str()), ("provider", Status::Wrong, "cwa does not answer in time"));
}

#[tokio::test]
async fn a_forecast_that_is_over_is_wrong() {
    for (name, forecast) in [("cwa", CWA.to_owned()), ("open-meteo", OPEN_METEO.to_owned())] {
        let (check, status, seen, remedy) = fault(name, Fault::ok(forecast)).await;
        assert_eq!((check, status), ("provider", Status::Wrong));
        assert!(seen.ends_with(" h ago: it is out of date"), "{seen}");
        assert!(remedy.contains("clock"), "{remedy}");
    }
}

#[tokio::test]
async fn a_forecast_that_does_not_reach_a_day_ahead_is_a_warning() {
    let (check, status, seen, _) = fault("open-meteo", Fault::ok(open_meteo(-30, 6))).await;
    assert_eq!((check, status), ("provider", Status::Warning));
    assert!(seen.ends_with(": the bot shows a whole day"), "{seen}");
}

#[tokio::test]
async fn made_up_weather_is_a_warning() {
    let (check, status, seen, remedy) = only_fault(&examined(&[("WEATHER_PROVIDER", "sample")]).await);
    assert_eq!((check, status), ("provider", Status::Warning));
    assert!(seen.contains("made up") && remedy.contains("WEATHER_PROVIDER"), "{seen} {remedy}");
}

#[tokio::test]
async fn what_is_not_set_or_malformed_is_skipped() {
    for (set, why) in [
        (&[][..], "WEATHER_PROVIDER is not set"),
        (&[("WEATHER_PROVIDER", "cwa")], "needs webhook variables"),
        (&[("WEATHER_PROVIDER", "accu")], "needs webhook variables"),
    ] {
        let findings = examined(set).await;
        assert_eq!(findings, ["provider", "fallback"].map(|check| Finding::skipped("weather", check, why)));
    }
}
