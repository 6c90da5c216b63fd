//! A run as JSON, to be sent to another process.

use std::time::Duration;

use onetap_store::Key;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tokio::time::Instant;

use super::Policy;
use super::claim::{Claim, Run, now_ms};

/// What of a run is the same in every process. Times are milliseconds.
#[derive(Serialize, Deserialize)]
struct Saved {
    record: String,
    owner: String,
    #[serde(rename = "fp", skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    text: String,
    lease: u64,
    usual_lease: u64,
    result_ttl: u64,
    at_most_once: bool,
    max_record: usize,
    /// By the clock of the process that wrote it.
    until: u64,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The run's owner and key are in it: it is for processes that may act as the owner.
impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Claim {
            record,
            owner,
            fingerprint,
            text,
            lease,
            usual_lease,
            result_ttl,
            policy,
            max_record,
            ..
        } = &self.claim;
        let left = self.until.saturating_duration_since(Instant::now());
        let saved = Saved {
            record: record.as_str().to_owned(),
            owner: owner.clone(),
            fingerprint: fingerprint.clone(),
            text: text.clone(),
            lease: millis(*lease),
            usual_lease: millis(*usual_lease),
            result_ttl: millis(*result_ttl),
            at_most_once: *policy == Policy::AtMostOnce,
            max_record: *max_record,
            until: now_ms().saturating_add(millis(left)),
        };
        saved.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Run, D::Error> {
        let saved = Saved::deserialize(deserializer)?;
        let left = Duration::from_millis(saved.until.saturating_sub(now_ms()));
        let lease = Duration::from_millis(saved.lease);
        let claim = Claim {
            record: Key::new(saved.record).map_err(de::Error::custom)?,
            owner: saved.owner,
            fingerprint: saved.fingerprint,
            text: saved.text,
            lease,
            // The process that wrote it may have been stopped since.
            end: None,
            usual_lease: Duration::from_millis(saved.usual_lease),
            result_ttl: Duration::from_millis(saved.result_ttl),
            policy: if saved.at_most_once { Policy::AtMostOnce } else { Policy::AtLeastOnce },
            max_record: saved.max_record,
        };
        Ok(Run::new(claim, Instant::now() + left.min(lease)))
    }
}
