//! The present time, in the formats of the page and of events.

use std::time::{SystemTime, UNIX_EPOCH};

use onetap_weather::Moment;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Now in ISO 8601, in Taipei.
pub(crate) fn timestamp() -> String {
    let ms = now_ms();
    let now = i64::try_from(ms / 1000).ok().and_then(Moment::from_unix).unwrap_or_else(Moment::now);
    let (date, time, seconds, ms) = (now.date(), now.time(), ms / 1000 % 60, ms % 1000);
    format!("{date}T{time}:{seconds:02}.{ms:03}+08:00")
}
