//! The configuration, from the environment.

use std::time::Duration;

use onetap_config::{ConfigError, Variables};

use crate::Stages;

/// TTLs and sizes of the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Shard streams of a domain (`EVENT_SHARD_COUNT`). After a change, new events of a job may go to another stream;
    /// old events stay where they are.
    pub shard_count: u64,
    /// TTL of a job's latest state (`EVENT_STATE_TTL_SECONDS`).
    pub state_ttl: Duration,
    /// TTL of the markers that detect duplicates (`EVENT_PUBLISHED_TTL_SECONDS`): at least as long as the queue keeps a
    /// message. A message that is delivered later counts as new. A client that resumes learns from them that its job has
    /// ended, so that they should live as long as the log: two hours or more.
    pub published_ttl: Duration,
    /// Approximate number of events that a shard stream keeps (`EVENT_STREAM_MAXLEN`).
    pub stream_maxlen: usize,
    /// The stages of a job (`EVENT_STAGES`).
    pub stages: Stages,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            shard_count: 4,
            state_ttl: Duration::from_secs(3600),
            published_ttl: Duration::from_secs(7200),
            stream_maxlen: 10_000,
            stages: Stages::default(),
        }
    }
}

impl Config {
    /// Reads `EVENT_…`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let default = Config::default();
        let maxlen = variables.positive("EVENT_STREAM_MAXLEN", default.stream_maxlen as u64)?;
        Ok(Config {
            shard_count: variables.positive("EVENT_SHARD_COUNT", default.shard_count)?,
            state_ttl: variables.seconds("EVENT_STATE_TTL_SECONDS", default.state_ttl.as_secs())?,
            published_ttl: variables
                .seconds("EVENT_PUBLISHED_TTL_SECONDS", default.published_ttl.as_secs())?,
            stream_maxlen: usize::try_from(maxlen).unwrap_or(usize::MAX),
            stages: Stages::from_variables(variables)?,
        })
    }
}

impl Stages {
    /// Reads `EVENT_STAGES`, by [`Stages::from_json`].
    pub fn from_variables(variables: &Variables<'_>) -> Result<Stages, ConfigError> {
        const STAGES: &str = "EVENT_STAGES";
        match variables.optional(STAGES)? {
            Some(json) => {
                Stages::from_json(&json).map_err(|error| ConfigError::new(STAGES, error.to_string()))
            }
            None => Ok(Stages::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let lookup = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Config::from_variables(&Variables::from_lookup(lookup))
    }

    #[test]
    fn unset_variables_have_their_defaults() {
        assert_eq!(read(&[]), Ok(Config::default()));
    }

    #[test]
    fn a_wrong_variable_is_named() {
        for name in [
            "EVENT_SHARD_COUNT",
            "EVENT_STATE_TTL_SECONDS",
            "EVENT_PUBLISHED_TTL_SECONDS",
            "EVENT_STREAM_MAXLEN",
        ] {
            for wrong in ["0", "-1", "many"] {
                assert_eq!(read(&[(name, wrong)]).unwrap_err().variable(), name);
            }
        }
        let stages = read(&[("EVENT_STAGES", r#"[{"stage":"a","first":0,"last":9}]"#)]).unwrap_err();
        assert_eq!(stages.to_string(), "EVENT_STAGES: no stage has `ends`, so that no job would end");
        assert!(read(&[("EVENT_STATE_TTL_SECONDS", "1000000000")]).is_err(), "no store keeps it so long");
        let set = read(&[("EVENT_SHARD_COUNT", "7"), ("EVENT_STREAM_MAXLEN", "9")]).unwrap();
        assert_eq!((set.shard_count, set.stream_maxlen), (7, 9));
    }
}
