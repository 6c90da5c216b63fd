//! The weather: one forecast from each provider that is configured.

use std::time::Duration;

use onetap_config::Variables;
use onetap_weather::{Config, Error, Forecast, Moment, ProviderConfig, places};
use tokio::time::Instant;

use crate::{Finding, Report};

const OF: &str = "weather";
/// Time limit for one forecast. The bot waits less; its `weather_total` tells how often that is not enough.
const FORECAST_TIMEOUT: Duration = Duration::from_secs(5);
/// The place that is asked for: every provider has it.
const PLACE: &str = "臺北市信義區";
/// A message shows the weather of this time.
const SHOWN: Duration = Duration::from_secs(24 * 3600);

/// Checks `WEATHER_PROVIDER` and `WEATHER_FALLBACK_PROVIDER`.
pub async fn examine(variables: &Variables<'_>, report: &mut Report) {
    let config = match Config::from_variables(variables) {
        Ok(config) => config,
        Err(_) => {
            let why = match variables.optional("WEATHER_PROVIDER") {
                Ok(None) => "WEATHER_PROVIDER is not set",
                _ => "needs webhook variables",
            };
            report.add(Finding::skipped(OF, "provider", why));
            return report.add(Finding::skipped(OF, "fallback", why));
        }
    };
    report.add(provider("provider", &config.provider).await);
    report.add(match &config.fallback {
        Some(fallback) => provider("fallback", fallback).await,
        None => {
            let why = "WEATHER_FALLBACK_PROVIDER is not set: with one, the bot answers also when the first provider fails";
            Finding::skipped(OF, "fallback", why)
        }
    });
}

/// Asks one provider.
async fn provider(check: &'static str, config: &ProviderConfig) -> Finding {
    if *config == ProviderConfig::Sample {
        let variable = if check == "fallback" { "WEATHER_FALLBACK_PROVIDER" } else { "WEATHER_PROVIDER" };
        let remedy = format!("Set {variable} to open-meteo or cwa for real forecasts.");
        return Finding::warning(OF, check, "sample: the weather is made up, and marked so", remedy);
    }
    let provider = config.open(&onetap_http::Client::new());
    let (name, deadline) = (provider.name(), Instant::now() + FORECAST_TIMEOUT);
    let mut is_connected = false;
    let forecast = async {
        provider.connect(deadline).await?;
        is_connected = true;
        provider.forecast(places::by_name(PLACE).ok_or(Error::BadAnswer)?, deadline).await
    };
    match forecast.await {
        Ok(forecast) => judge(check, name, &forecast, Moment::now()),
        // To a provider, a connection that takes too long is one that cannot be opened.
        Err(_) if Instant::now() >= deadline => failure(check, config, name, is_connected, Error::Late),
        Err(error) => failure(check, config, name, is_connected, error),
    }
}

/// Judges a forecast by the time that it covers.
fn judge(check: &'static str, name: &str, forecast: &Forecast, now: Moment) -> Finding {
    let [begins, ends] = [forecast.periods.first().map(|p| p.start), forecast.periods.last().map(|p| p.end)]
        .map(|time| time.map_or(0, |time| time.unix() - now.unix()));
    let seen = format!("{name}: a forecast that begins {} and ends {}", relative(begins), relative(ends));
    let status = "Look at the provider's status page, and compare this machine's clock.";
    if ends <= 0 {
        Finding::wrong(OF, check, format!("{seen}: it is out of date"), status)
    } else if ends < SHOWN.as_secs() as i64 {
        Finding::warning(OF, check, format!("{seen}: the bot shows a whole day"), status)
    } else {
        Finding::ok(OF, check, seen)
    }
}

/// `3 h ago`, `in 45 h`.
fn relative(seconds: i64) -> String {
    let hours = seconds.unsigned_abs() / 3600;
    let hours = if hours < 1 { "less than an hour".to_owned() } else { format!("{hours} h") };
    if seconds < 0 { format!("{hours} ago") } else { format!("in {hours}") }
}

fn failure(
    check: &'static str,
    config: &ProviderConfig,
    name: &str,
    is_connected: bool,
    error: Error,
) -> Finding {
    let (base_url, status) = match config {
        ProviderConfig::Cwa { .. } => ("CWA_API_BASE_URL", "https://opendata.cwa.gov.tw"),
        _ => ("OPEN_METEO_BASE_URL", "https://open-meteo.com"),
    };
    let wrong = |seen: &str, remedy: String| Finding::wrong(OF, check, format!("{name} {seen}"), remedy);
    let network = || format!("Check this machine's network, {base_url} if it is set, and {status}.");
    match (error, config) {
        (Error::KeyRefused, ProviderConfig::Cwa { .. }) => wrong(
            "refuses the key",
            format!("Set CWA_API_KEY to the authorization code of your account at {status}."),
        ),
        (Error::KeyRefused, _) => {
            wrong("refuses to answer", format!("Check {base_url}, and the terms at {status}."))
        }
        (Error::RateLimited, _) => Finding::warning(
            OF,
            check,
            format!("{name} was asked too often (429)"),
            "Run the doctor again in a few minutes; if it stays, ask the provider for a larger quota.",
        ),
        (Error::Late, _) => wrong("does not answer in time", network()),
        (Error::BadAnswer, _) => wrong(
            "answers with something that is not a forecast",
            format!("Check {base_url}, and whether a proxy answers in its place."),
        ),
        (_, _) if is_connected => wrong("fails", network()),
        (_, _) => wrong("cannot be reached", network()),
    }
}
