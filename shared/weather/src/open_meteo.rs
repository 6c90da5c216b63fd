//! Open-Meteo: hourly forecasts for any position, without a key. Its free service is for non-commercial use, and its data, under
//! CC BY 4.0, are shown with its name: <https://open-meteo.com/en/terms>.

use async_trait::async_trait;
use onetap_calendar::Moment;
use serde::Deserialize;
use tokio::time::Instant;

use crate::provider::{Error, Provider, connect, get};
use crate::{Forecast, Period, Place, Sky};

/// Open-Meteo.
#[derive(Debug)]
pub struct OpenMeteo {
    http: onetap_http::Client,
    base_url: String,
}

impl OpenMeteo {
    /// At `base_url`, without a slash at its end.
    pub fn new(http: onetap_http::Client, base_url: &str) -> OpenMeteo {
        OpenMeteo { http, base_url: base_url.to_owned() }
    }
}

#[async_trait]
impl Provider for OpenMeteo {
    fn name(&self) -> &'static str {
        "open-meteo"
    }

    // LINE makes a link of it.
    fn attribution(&self) -> Option<&'static str> {
        Some("Open-Meteo.com")
    }

    async fn forecast(&self, place: &Place, deadline: Instant) -> Result<Forecast, Error> {
        let (base, latitude, longitude) = (&self.base_url, place.latitude(), place.longitude());
        // Two days, because today's hours begin at midnight and a message shows the next twenty-four.
        let url = format!(
            "{base}/v1/forecast?latitude={latitude}&longitude={longitude}\
             &hourly=temperature_2m,precipitation_probability,weather_code\
             &timezone=Asia/Taipei&forecast_days=2"
        );
        let body = get(&self.http, &url, deadline).await?;
        let response: Response = serde_json::from_slice(&body).map_err(|_| Error::BadAnswer)?;
        let periods = response.hourly.periods().ok_or(Error::BadAnswer)?;
        Ok(Forecast { place: *place, periods, sample: false, fetched: Moment::now() })
    }

    async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        connect(&self.http, &self.base_url, deadline).await
    }
}

#[derive(Deserialize)]
struct Response {
    hourly: Hourly,
}

/// Parallel lists: the values at an index belong to the time at that index, and may be null.
#[derive(Deserialize)]
struct Hourly {
    time: Vec<String>,
    temperature_2m: Vec<Option<f64>>,
    precipitation_probability: Vec<Option<f64>>,
    weather_code: Vec<Option<f64>>,
}

impl Hourly {
    /// Periods of three hours. Temperature and sky are those at the hour, so that a value at the end of a period belongs to
    /// the next one; the probability is that of the hour *before* it, so that a value at the end belongs to the period.
    fn periods(&self) -> Option<Vec<Period>> {
        let lengths =
            [&self.temperature_2m, &self.precipitation_probability, &self.weather_code].map(Vec::len);
        let times: Vec<Moment> = self.time.iter().map(|time| Moment::parse(time)).collect::<Option<_>>()?;
        if times.is_empty() || lengths != [times.len(); 3] {
            return None;
        }
        let mut starts: Vec<Moment> = times.iter().map(|time| time.start_of_three_hours()).collect();
        starts.sort();
        starts.dedup();
        let period = |start: Moment| {
            let end = start.plus_hours(3);
            let at = |values: &[Option<f64>], within: &dyn Fn(Moment) -> bool| {
                let known = times.iter().zip(values).filter(|(time, _)| within(**time));
                known.filter_map(|(_, value)| value.map(|number| number.round() as i32)).collect::<Vec<_>>()
            };
            let on = |time: Moment| start <= time && time < end;
            let before = |time: Moment| start < time && time <= end;
            let sky = |code: i32| code.try_into().map_or(Sky::Unknown, Sky::from_wmo);
            let rain = at(&self.precipitation_probability, &before).into_iter().max();
            Period {
                start,
                end,
                sky: at(&self.weather_code, &on).into_iter().map(sky).max().unwrap_or(Sky::Unknown),
                max: at(&self.temperature_2m, &on).into_iter().max(),
                pop: rain.and_then(|percent| percent.try_into().ok()).filter(|percent| *percent <= 100),
            }
        };
        Some(starts.into_iter().map(period).collect())
    }
}
