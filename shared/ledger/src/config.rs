//! How long the ledger keeps what.

use std::time::Duration;

use onetap_config::{ConfigError, Variables};
use onetap_store::Ttl;

/// How long the ledger keeps what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long the last transaction can be edited after it was written (`LAST_TRANSACTION_TTL`).
    pub last_transaction: Duration,
    /// How long a month is kept after its last record (`LEDGER_RETENTION_DAYS`; 0 is for ever); if that is an edit, up to a
    /// hundredth less.
    pub retention: Ttl,
}

impl Config {
    /// Reads `LAST_TRANSACTION_TTL` and `LEDGER_RETENTION_DAYS`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let retention = match variables.days_or_zero("LEDGER_RETENTION_DAYS", 1095)? {
            Duration::ZERO => Ttl::Forever,
            retention => Ttl::Of(retention),
        };
        Ok(Config { last_transaction: variables.seconds("LAST_TRANSACTION_TTL", 3600)?, retention })
    }
}

/// An hour for the last transaction, three years for a month.
impl Default for Config {
    fn default() -> Config {
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        Config { last_transaction: Duration::from_secs(3600), retention: Ttl::Of(days(1095)) }
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
    fn an_hour_and_three_years_unless_told_otherwise() {
        assert_eq!(read(&[]).unwrap(), Config::default());
        let minute = read(&[("LAST_TRANSACTION_TTL", "60")]).unwrap().last_transaction;
        assert_eq!(minute, Duration::from_secs(60));
        let day = read(&[("LEDGER_RETENTION_DAYS", "1")]).unwrap().retention;
        assert_eq!(day, Ttl::Of(Duration::from_secs(86_400)));
        assert_eq!(read(&[("LEDGER_RETENTION_DAYS", "0")]).unwrap().retention, Ttl::Forever);
    }

    #[test]
    fn what_is_no_time_is_named() {
        for (name, wrong) in [
            ("LAST_TRANSACTION_TTL", "0"),
            ("LAST_TRANSACTION_TTL", "1h"),
            ("LAST_TRANSACTION_TTL", "999999999999"),
            ("LEDGER_RETENTION_DAYS", "-1"),
            ("LEDGER_RETENTION_DAYS", "1.5"),
            ("LEDGER_RETENTION_DAYS", "4000"),
            ("LEDGER_RETENTION_DAYS", "18446744073709551615"),
        ] {
            assert_eq!(read(&[(name, wrong)]).unwrap_err().variable(), name, "{wrong}");
        }
    }
}
