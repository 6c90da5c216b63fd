//! The present time, in the formats of the page and of events.

use std::time::{SystemTime, UNIX_EPOCH};

use onetap_weather::Taipei;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Now in ISO 8601, in Taipei.
pub(crate) fn timestamp() -> String {
    let ms = now_ms();
    let now = Taipei::from_unix(i64::try_from(ms / 1000).unwrap_or_default());
    let (year, month, day) = now.date();
    let (seconds, ms) = (ms / 1000 % 60, ms % 1000);
    let (hour, minute) = (now.hour(), now.minute());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{seconds:02}.{ms:03}+08:00")
}
