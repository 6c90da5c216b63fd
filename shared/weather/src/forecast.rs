//! A forecast, and its text message.

use std::fmt::Write;

use onetap_calendar::Moment;
use serde::{Deserialize, Serialize};

use crate::Place;

/// The periods that a message shows: a day.
pub(crate) const PERIODS_SHOWN: usize = 8;

/// The sky, ordered from the mildest to the most severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sky {
    /// A code that is not in the tables.
    Unknown,
    /// ☀️
    Clear,
    /// 🌤️
    Fair,
    /// ⛅
    PartlyCloudy,
    /// ☁️
    Cloudy,
    /// 🌫️
    Fog,
    /// 🌦️ now and then, or here and there
    Showers,
    /// 🌧️
    Rain,
    /// 🌨️
    Snow,
    /// ⛈️
    Thunder,
}

impl Sky {
    /// By the Central Weather Administration's codes: 1–42, with gaps.
    pub fn from_cwa(code: u8) -> Sky {
        match code {
            1 => Sky::Clear,
            2 => Sky::Fair,
            3 => Sky::PartlyCloudy,
            4..=7 => Sky::Cloudy,
            24..=28 => Sky::Fog,
            8..=10 | 19 | 20 | 29..=32 | 38 => Sky::Showers,
            11..=14 | 39 => Sky::Rain,
            23 | 37 | 42 => Sky::Snow,
            15..=18 | 21 | 22 | 33..=36 | 41 => Sky::Thunder,
            _ => Sky::Unknown,
        }
    }

    /// By the World Meteorological Organization's codes, as Open-Meteo uses them.
    pub fn from_wmo(code: u8) -> Sky {
        match code {
            0 => Sky::Clear,
            1 => Sky::Fair,
            2 => Sky::PartlyCloudy,
            3 => Sky::Cloudy,
            45 | 48 => Sky::Fog,
            51..=57 | 80..=82 => Sky::Showers,
            61..=67 => Sky::Rain,
            71..=77 | 85 | 86 => Sky::Snow,
            95..=99 => Sky::Thunder,
            _ => Sky::Unknown,
        }
    }

    /// As the message shows it.
    pub fn emoji(self) -> &'static str {
        match self {
            Sky::Unknown => "❔",
            Sky::Clear => "☀️",
            Sky::Fair => "🌤️",
            Sky::PartlyCloudy => "⛅",
            Sky::Cloudy => "☁️",
            Sky::Fog => "🌫️",
            Sky::Showers => "🌦️",
            Sky::Rain => "🌧️",
            Sky::Snow => "🌨️",
            Sky::Thunder => "⛈️",
        }
    }
}

/// The weather of three hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// When it begins.
    pub start: Moment,
    /// When it ends.
    pub end: Moment,
    /// The sky at its most severe.
    pub sky: Sky,
    /// The highest temperature, in degrees Celsius, if the provider has one.
    pub max: Option<i32>,
    /// The probability of rain, in percent, if the provider has one.
    pub pop: Option<u8>,
}

/// The weather of a place, as a provider reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Where.
    pub place: Place,
    /// Period by period, in order; some may be over already.
    pub periods: Vec<Period>,
    /// Whether it is made up.
    pub sample: bool,
    /// When the provider was asked.
    pub fetched: Moment,
}

impl Forecast {
    /// The message: the place, a line for each of the next eight periods, and when it was fetched.
    ///
    /// A value that the provider does not have is `--`. Periods that are over at `now` are left out; if none is left,
    /// the message says so.
    pub fn text(&self, now: Moment) -> String {
        let mut text = self.place.name();
        text.push_str(if self.sample { "（範例資料）\n" } else { "\n" });
        let mut ahead = self.periods.iter().filter(|period| period.end > now).peekable();
        if ahead.peek().is_none() {
            text.push_str("目前沒有預報資料\n");
        }
        for period in ahead.take(PERIODS_SHOWN) {
            let known = |number: Option<i32>| number.map_or_else(|| "--".to_owned(), |n| n.to_string());
            let (emoji, max, pop) = (period.sky.emoji(), known(period.max), known(period.pop.map(i32::from)));
            let (from, to) = (period.start.hour(), period.end.hour());
            // Writing to a String does not fail.
            let _ = writeln!(text, "{emoji} {from:02}-{to:02} 🌡️{max}°💧{pop}%");
        }
        let (date, time) = (self.fetched.date(), self.fetched.time());
        let _ = write!(text, "{:02}/{:02} {time} 更新", date.month(), date.day());
        text
    }
}
