//! Made-up weather, without a network, for the local runner, the tests and the benchmark.

use std::f64::consts::PI;

use async_trait::async_trait;
use onetap_calendar::Moment;
use tokio::time::Instant;

use crate::provider::{Error, Provider};
use crate::{Forecast, Period, Place, Sky};

/// Made-up weather: always the same for the same place and hour, and marked as a sample in the message.
#[derive(Debug)]
pub struct Sample {
    name: &'static str,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample::named("sample")
    }
}

impl Sample {
    /// Answers at once.
    pub fn new() -> Sample {
        Sample::default()
    }

    /// The same under another name, for a second provider beside the first.
    pub fn named(name: &'static str) -> Sample {
        Sample { name }
    }

    /// The weather of `place` as if asked at `now`.
    pub fn at(place: &Place, now: Moment) -> Forecast {
        let first = now.start_of_three_hours();
        let periods = (0..8).map(|n| period(place, first.plus_hours(3 * n))).collect();
        Forecast { place: *place, periods, sample: true, fetched: now }
    }
}

#[async_trait]
impl Provider for Sample {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn forecast(&self, place: &Place, _: Instant) -> Result<Forecast, Error> {
        Ok(Sample::at(place, Moment::now()))
    }
}

/// Plausible weather: warm in July and in the afternoon, warmer in the south, with pseudo-random rain.
fn period(place: &Place, start: Moment) -> Period {
    let random = hash(place, start);
    let season = -6.0 * ((f64::from(start.date().month()) - 1.0) * PI / 6.0).cos();
    let daytime = -3.0 * ((f64::from(start.hour()) - 1.0) * PI / 12.0).cos();
    let south = 1.2 * (25.0 - place.latitude());
    let pop = (random % 11 * 10) as u8;
    let sky = match pop {
        0..=20 => [Sky::Clear, Sky::Fair, Sky::PartlyCloudy][(random / 16 % 3) as usize],
        30..=50 => Sky::Cloudy,
        60..=70 => Sky::Showers,
        80..=90 => Sky::Rain,
        _ => Sky::Thunder,
    };
    let max = (22.0 + season + daytime + south + (random / 64 % 3) as f64).round() as i32;
    Period { start, end: start.plus_hours(3), sky, max: Some(max), pop: Some(pop) }
}

/// FNV-1a over the place and the hour: the standard library's hash may differ from one release to the next.
fn hash(place: &Place, start: Moment) -> u64 {
    let bytes = place.name().into_bytes().into_iter().chain(start.unix().to_be_bytes());
    let fnv = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    fnv >> 20
}
