//! The environment's part in it.

use std::time::Duration;

use http::HeaderValue;
use onetap_store::config::{ConfigError, Secret, Variables, is_http_url};

/// Who may look, from where, and for how long at a time.
#[derive(Clone, Debug)]
pub struct Config {
    /// What tokens are made with (`JOB_EVENTS_SECRET`).
    pub secret: Secret,
    /// The origin of the page that may read the answers, or `*` (`JOB_EVENTS_ALLOW_ORIGIN`).
    pub allow_origin: HeaderValue,
    /// A stream ends after so long (`SSE_MAX_SECONDS`); on Lambda, below the function's own timeout.
    pub max: Duration,
    /// After so long a silence, a comment says that it is still there (`SSE_KEEPALIVE_SECONDS`).
    pub keepalive: Duration,
}

impl Config {
    /// Reads `JOB_EVENTS_…` and `SSE_…`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        const ORIGIN: &str = "JOB_EVENTS_ALLOW_ORIGIN";
        let origin = variables.required(ORIGIN)?;
        if !is_origin(&origin) {
            return Err(ConfigError::new(ORIGIN, "is neither `*` nor an origin like https://example.com"));
        }
        let seconds = |name: &str, default: u64| Ok(Duration::from_secs(variables.positive(name, default)?));
        Ok(Config {
            secret: Secret::new(variables.required("JOB_EVENTS_SECRET")?),
            allow_origin: HeaderValue::try_from(origin)
                .map_err(|_| ConfigError::new(ORIGIN, "cannot stand in a header"))?,
            max: seconds("SSE_MAX_SECONDS", 25)?,
            keepalive: seconds("SSE_KEEPALIVE_SECONDS", 15)?,
        })
    }
}

/// `*` or `scheme://host[:port]`: with a path, even `/`, or a name before the host, no browser would find it equal to
/// its own.
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
        assert_eq!((config.max, config.keepalive), (Duration::from_secs(25), Duration::from_secs(15)));
        for name in ["JOB_EVENTS_SECRET", "JOB_EVENTS_ALLOW_ORIGIN"] {
            assert_eq!(read(&[(name, "")]).unwrap_err().variable(), name);
        }
        for name in ["SSE_MAX_SECONDS", "SSE_KEEPALIVE_SECONDS"] {
            assert_eq!(read(&[(name, "0")]).unwrap_err().variable(), name);
        }
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
