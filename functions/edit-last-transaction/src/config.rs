//! The environment's part in it.

use std::time::Duration;

use onetap_config::{ConfigError, Secret, Variables};
use onetap_store::idem;

const TOKENS: &str = "EDIT_API_TOKEN";
const LIFE: &str = "LAST_TRANSACTION_TTL";

/// Who may call, and how long things are kept.
#[derive(Clone, Debug)]
pub struct Config {
    /// Any of these bearer tokens opens the door (`EDIT_API_TOKEN`, a comma-separated list while it is rotated).
    pub tokens: Vec<Secret>,
    /// How long a transaction lives after it was written (`LAST_TRANSACTION_TTL`).
    pub life: Duration,
    /// For requests with an `Idempotency-Key` (`IDEM_…`).
    pub idem: idem::Config,
}

impl Config {
    /// Reads `EDIT_API_TOKEN`, `LAST_TRANSACTION_TTL` and `IDEM_…`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let tokens = variables.secrets(TOKENS)?;
        // What a header cannot carry would lock everybody out, and only be noticed then.
        if !tokens.iter().all(|token| token.reveal().bytes().all(|b| b.is_ascii_graphic())) {
            return Err(ConfigError::new(TOKENS, "is not a token, or a list of them with commas between"));
        }
        let life = variables.seconds(LIFE, 3600)?;
        Ok(Config { tokens, life, idem: idem::Config::from_variables(variables)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let good = [(TOKENS, "s3cret")];
        let lookup = |name: &str| {
            set.iter().chain(&good).find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        Config::from_variables(&Variables::from_lookup(lookup))
    }

    #[test]
    fn a_transaction_lives_for_an_hour_unless_told_otherwise() {
        assert_eq!(read(&[]).unwrap().life, Duration::from_secs(3600));
        assert_eq!(read(&[(LIFE, "60")]).unwrap().life, Duration::from_secs(60));
        for life in ["0", "-1", "1h", "999999999999"] {
            assert_eq!(read(&[(LIFE, life)]).unwrap_err().variable(), LIFE, "{life}");
        }
    }

    #[test]
    fn tokens_are_a_list_of_at_least_one() {
        assert_eq!(read(&[(TOKENS, "old, new,")]).unwrap().tokens, [Secret::new("old"), Secret::new("new")]);
        for tokens in ["", ",", " , ", "two words", "密碼"] {
            assert_eq!(read(&[(TOKENS, tokens)]).unwrap_err().variable(), TOKENS, "{tokens}");
        }
    }

    #[test]
    fn debug_hides_the_tokens() {
        assert!(!format!("{:?}", read(&[]).unwrap()).contains("s3cret"));
    }
}
