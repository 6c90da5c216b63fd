//! A forecast as it is kept in a store: JSON under `weather:{provider}:{township}`.

use std::time::Duration;

use onetap_calendar::Moment;
use serde::{Deserialize, Serialize};

use crate::forecast::PERIODS_SHOWN;
use crate::{Forecast, Period, Place, Sky};

const PERIOD_SECONDS: u64 = 3 * 3600;

/// The stored form of a forecast. All times are in seconds since 1970.
#[derive(Serialize, Deserialize)]
struct Stored {
    fetched: i64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sample: bool,
    periods: Vec<StoredPeriod>,
}

#[derive(Serialize, Deserialize)]
struct StoredPeriod {
    start: i64,
    end: i64,
    sky: Sky,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pop: Option<u8>,
}

impl Forecast {
    /// Drops the periods that no message can show while the forecast is kept, for `kept`.
    pub(crate) fn trim(&mut self, kept: Duration) {
        let later = usize::try_from(kept.as_secs().div_ceil(PERIOD_SECONDS)).unwrap_or(usize::MAX);
        let fetched = self.fetched;
        self.periods.retain(|period| period.end > fetched);
        self.periods.truncate(later.saturating_add(PERIODS_SHOWN));
    }

    /// Whether it has a period that is not over.
    pub(crate) fn has_more(&self, now: Moment) -> bool {
        self.periods.iter().any(|period| period.end > now)
    }

    /// As it is kept.
    pub fn to_json(&self) -> String {
        let period = |period: &Period| StoredPeriod {
            start: period.start.unix(),
            end: period.end.unix(),
            sky: period.sky,
            max: period.max,
            pop: period.pop,
        };
        let periods = self.periods.iter().map(period).collect();
        let stored = Stored { fetched: self.fetched.unix(), sample: self.sample, periods };
        // Numbers and names always serialize.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// The forecast for `place` that is kept as `text`; `None` if it is not one.
    pub fn from_json(place: &Place, text: &str) -> Option<Forecast> {
        let stored: Stored = serde_json::from_str(text).ok()?;
        let period = |period: &StoredPeriod| {
            Some(Period {
                start: Moment::from_unix(period.start)?,
                end: Moment::from_unix(period.end)?,
                sky: period.sky,
                max: period.max,
                pop: period.pop,
            })
        };
        let periods = stored.periods.iter().map(period).collect::<Option<_>>()?;
        let fetched = Moment::from_unix(stored.fetched)?;
        Some(Forecast { place: *place, periods, sample: stored.sample, fetched })
    }
}
