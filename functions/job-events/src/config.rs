//! The configuration, from the environment.

use std::time::Duration;

use http::HeaderValue;
use onetap_bus::Stages;
use onetap_config::{ConfigError, Secret, Variables, is_http_url};

/// Access, and the limits of a stream.
#[derive(Clone, Debug)]
pub struct Config {
    /// The secrets that sign tokens (`JOB_EVENTS_SECRET`): one, or a comma-separated list while it is rotated. A token
    /// of any of them is valid.
    pub secrets: Vec<Secret>,
    /// The origin of the page that may read the answers, or `*` (`JOB_EVENTS_ALLOW_ORIGIN`).
    pub allow_origin: HeaderValue,
    /// Longest duration of a stream (`SSE_MAX_SECONDS`); on Lambda, below the function's own timeout.
    pub max: Duration,
    /// Longest silence of a stream before a keep-alive comment (`SSE_KEEPALIVE_SECONDS`).
    pub keepalive: Duration,
    /// How long a stream stays open after the job's last event, for events that it has overtaken (`SSE_GRACE_SECONDS`).
    pub grace: Duration,
    /// The stages of a job, which tell when it has ended (`EVENT_STAGES`): the table that its events are published with.
    pub stages: Stages,
}

/// Upper limit of every duration here.
const MAX_STREAM: Duration = Duration::from_secs(24 * 3600);

impl Config {
    /// Reads `JOB_EVENTS_…`, `SSE_…` and `EVENT_STAGES`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        const SECRET: &str = "JOB_EVENTS_SECRET";
        const ORIGIN: &str = "JOB_EVENTS_ALLOW_ORIGIN";
        const MAX: &str = "SSE_MAX_SECONDS";
        const KEEPALIVE: &str = "SSE_KEEPALIVE_SECONDS";
        const GRACE: &str = "SSE_GRACE_SECONDS";
        let origin = variables.required(ORIGIN)?;
        if !is_origin(&origin) {
            return Err(ConfigError::new(ORIGIN, "is neither `*` nor an origin like https://example.com"));
        }
        let up_to_a_day = |name: &str, time: Duration| {
            if time > MAX_STREAM { Err(ConfigError::new(name, "is over a day")) } else { Ok(time) }
        };
        Ok(Config {
            secrets: variables.secrets(SECRET)?,
            allow_origin: HeaderValue::try_from(origin)
                .map_err(|_| ConfigError::new(ORIGIN, "cannot stand in a header"))?,
            max: up_to_a_day(MAX, variables.seconds(MAX, 25)?)?,
            keepalive: up_to_a_day(KEEPALIVE, variables.seconds(KEEPALIVE, 15)?)?,
            // 0 ends a stream with the job's last event.
            grace: up_to_a_day(GRACE, variables.seconds_or_zero(GRACE, 3)?)?,
            stages: Stages::from_variables(variables)?,
        })
    }
}

/// How often a stream reads the log where the store has no pub/sub (`SSE_POLL_MS`): a setting of the store.
pub fn poll_interval(variables: &Variables<'_>) -> Result<Duration, ConfigError> {
    variables.millis("SSE_POLL_MS", 500)
}

/// `*` or `scheme://host[:port]`. With a path, even `/`, or with user information it would equal no browser's `Origin`.
fn is_origin(text: &str) -> bool {
    text == "*" || is_http_url(text) && text.matches('/').count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let good = [("JOB_EVENTS_SECRET", "s3cret"), ("JOB_EVENTS_ALLOW_ORIGIN", "https://example.com")];
        let lookup = |name: &str| {
            set.iter().chain(&good).find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        Config::from_variables(&Variables::from_lookup(lookup))
    }

    #[test]
    fn unset_variables_have_their_defaults_or_are_named() {
        let config = read(&[]).unwrap();
        assert_eq!([config.max, config.keepalive, config.grace], [25, 15, 3].map(Duration::from_secs));
        let poll = |text: &str| poll_interval(&Variables::from_lookup(|_| Some(text.to_owned())));
        assert_eq!([poll("").unwrap(), poll("900").unwrap()], [500, 900].map(Duration::from_millis));
        assert_eq!(poll("-5").unwrap_err().variable(), "SSE_POLL_MS");
        for name in ["JOB_EVENTS_SECRET", "JOB_EVENTS_ALLOW_ORIGIN"] {
            assert_eq!(read(&[(name, "")]).unwrap_err().variable(), name);
        }
        for name in ["SSE_MAX_SECONDS", "SSE_KEEPALIVE_SECONDS", "SSE_GRACE_SECONDS"] {
            for wrong in ["-1", "soon", "18446744073709551615"] {
                assert_eq!(read(&[(name, wrong)]).unwrap_err().variable(), name);
            }
            let nothing = read(&[(name, "0")]).map(|config| config.grace);
            assert_eq!(nothing.ok(), (name == "SSE_GRACE_SECONDS").then_some(Duration::ZERO), "{name}");
        }
    }

    #[test]
    fn the_secret_may_be_a_list_while_it_is_rotated() {
        let secrets = |text: &str| read(&[("JOB_EVENTS_SECRET", text)]).map(|config| config.secrets);
        assert_eq!(secrets("one, two ,").unwrap(), [Secret::new("one"), Secret::new("two")]);
        assert_eq!(secrets(" , ").unwrap_err().variable(), "JOB_EVENTS_SECRET");
    }

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_no_more() {
        for origin in ["*", "https://example.com", "http://localhost:3000", "https://a.b-c.example"] {
            assert!(read(&[("JOB_EVENTS_ALLOW_ORIGIN", origin)]).is_ok(), "{origin}");
        }
        for origin in [
            "example.com",
            "https://",
            "https://example.com/",
            "https://example.com/app",
            "https://name@example.com",
            "ftp://example.com",
            "a b",
            "https://a.example, https://b.example",
            "null",
            "https://example.com:99999",
            "https://example.com:port",
            "https://[::1",
        ] {
            assert!(read(&[("JOB_EVENTS_ALLOW_ORIGIN", origin)]).is_err(), "{origin}");
        }
    }

    #[test]
    fn debug_hides_the_secret() {
        assert!(!format!("{:?}", read(&[]).unwrap()).contains("s3cret"));
    }
}
