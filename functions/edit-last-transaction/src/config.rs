//! The environment's part in it.

use onetap_config::{ConfigError, Secret, Variables};
use onetap_idem as idem;

const TOKENS: &str = "EDIT_API_TOKEN";

/// Who may call, and how long things are kept.
#[derive(Clone, Debug)]
pub struct Config {
    /// Any of these bearer tokens opens the door (`EDIT_API_TOKEN`, a comma-separated list while it is rotated).
    pub tokens: Vec<Secret>,
    /// How long the ledger keeps what (`LAST_TRANSACTION_TTL`, `LEDGER_RETENTION_DAYS`).
    pub ledger: onetap_ledger::Config,
    /// For requests with an `Idempotency-Key` (`IDEM_…`).
    pub idem: idem::Config,
}

impl Config {
    /// Reads `EDIT_API_TOKEN`, the settings of the ledger and `IDEM_…`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let tokens = variables.secrets(TOKENS)?;
        // What a header cannot carry would lock everybody out, and only be noticed then.
        if !tokens.iter().all(|token| token.reveal().bytes().all(|b| b.is_ascii_graphic())) {
            return Err(ConfigError::new(TOKENS, "is not a token, or a list of them with commas between"));
        }
        let ledger = onetap_ledger::Config::from_variables(variables)?;
        Ok(Config { tokens, ledger, idem: idem::Config::from_variables(variables)? })
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
