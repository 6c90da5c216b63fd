//! The Central Weather Administration's township forecasts: F-D0047, the next three days, one dataset for each county.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use onetap_calendar::Moment;
use onetap_config::Secret;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::provider::{Error, Provider, connect, get};
use crate::{Forecast, Period, Place, Sky};

const TEMPERATURE: &str = "溫度";
const RAIN: &str = "3小時降雨機率";
const WEATHER: &str = "天氣現象";

/// `F-D0047-0NN` by county. The numbers between them are the weekly forecasts of the same counties.
const DATASETS: [(&str, &str); 22] = [
    ("宜蘭縣", "001"),
    ("桃園市", "005"),
    ("新竹縣", "009"),
    ("苗栗縣", "013"),
    ("彰化縣", "017"),
    ("南投縣", "021"),
    ("雲林縣", "025"),
    ("嘉義縣", "029"),
    ("屏東縣", "033"),
    ("臺東縣", "037"),
    ("花蓮縣", "041"),
    ("澎湖縣", "045"),
    ("基隆市", "049"),
    ("新竹市", "053"),
    ("嘉義市", "057"),
    ("臺北市", "061"),
    ("高雄市", "065"),
    ("新北市", "069"),
    ("臺中市", "073"),
    ("臺南市", "077"),
    ("連江縣", "081"),
    ("金門縣", "085"),
];

/// The Central Weather Administration.
pub struct Cwa {
    http: onetap_http::Client,
    base_url: String,
    key: Secret,
}

impl Cwa {
    /// At `base_url`, without a slash at its end.
    pub fn new(http: onetap_http::Client, base_url: &str, key: Secret) -> Cwa {
        Cwa { http, base_url: base_url.to_owned(), key }
    }

    /// Contains the key: only for the request itself, never for a log or an error.
    fn url(&self, place: &Place) -> Option<String> {
        let (_, dataset) = DATASETS.iter().find(|(county, _)| *county == place.county())?;
        let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let (base, key, township) = (&self.base_url, encode(self.key.reveal()), encode(place.township()));
        let elements = [TEMPERATURE, RAIN, WEATHER].map(|name| encode(name).to_string()).join(",");
        Some(format!(
            "{base}/api/v1/rest/datastore/F-D0047-{dataset}\
             ?Authorization={key}&format=JSON&LocationName={township}&ElementName={elements}"
        ))
    }
}

impl fmt::Debug for Cwa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cwa")
    }
}

#[async_trait]
impl Provider for Cwa {
    fn name(&self) -> &'static str {
        "cwa"
    }

    async fn forecast(&self, place: &Place, deadline: Instant) -> Result<Forecast, Error> {
        let url = self.url(place).ok_or(Error::BadAnswer)?;
        let body = get(&self.http, &url, deadline).await?;
        let response: Response = serde_json::from_slice(&body).map_err(|_| Error::BadAnswer)?;
        let periods = response.periods(place);
        if periods.is_empty() {
            return Err(Error::BadAnswer);
        }
        Ok(Forecast { place: *place, periods, sample: false, fetched: Moment::now() })
    }

    async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        connect(&self.http, &self.base_url, deadline).await
    }
}

#[derive(Deserialize)]
struct Response {
    records: Records,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Records {
    locations: Vec<Locations>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Locations {
    location: Vec<Location>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Location {
    location_name: String,
    weather_element: Vec<Element>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Element {
    element_name: String,
    time: Vec<Time>,
}

/// Either a moment (`DataTime`) or a span, with its values.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Time {
    data_time: Option<String>,
    start_time: Option<String>,
    end_time: Option<String>,
    #[serde(default)]
    element_value: Vec<BTreeMap<String, Value>>,
}

impl Time {
    fn moment(&self) -> Option<Moment> {
        Moment::parse(self.data_time.as_ref().or(self.start_time.as_ref())?)
    }

    /// A whole number, written as a string; `-` and `-99` stand for one that is not known.
    fn number(&self, name: &str) -> Option<i32> {
        let number = match self.element_value.iter().find_map(|values| values.get(name))? {
            Value::String(text) => text.trim().parse::<f64>().ok()?,
            other => other.as_f64()?,
        };
        (-90.0..=100.0).contains(&number).then_some(number.round() as i32)
    }
}

impl Response {
    /// The spans of 天氣現象, each with the rain probability of the same span and its highest temperature. Temperatures are
    /// hourly at first and three-hourly later; one at the end of a span belongs to the next span.
    fn periods(&self, place: &Place) -> Vec<Period> {
        let locations = self.records.locations.iter().flat_map(|county| &county.location);
        let Some(location) = locations.into_iter().find(|l| l.location_name == place.township()) else {
            return Vec::new();
        };
        let times = |name: &str| {
            let element = location.weather_element.iter().find(|element| element.element_name == name);
            element.map_or(&[][..], |element| &element.time)
        };
        let period = |time: &Time| {
            let (start, end) = (time.moment()?, Moment::parse(time.end_time.as_ref()?)?);
            let within = |moment: Moment| start <= moment && moment < end;
            let temperatures = times(TEMPERATURE).iter().filter(|t| t.moment().is_some_and(within));
            let rain = times(RAIN).iter().find(|t| t.moment() == Some(start));
            Some(Period {
                start,
                end,
                sky: time
                    .number("WeatherCode")
                    .and_then(|n| n.try_into().ok())
                    .map_or(Sky::Unknown, Sky::from_cwa),
                max: temperatures.filter_map(|t| t.number("Temperature")).max(),
                pop: rain.and_then(|t| t.number("ProbabilityOfPrecipitation")?.try_into().ok()),
            })
        };
        let mut periods: Vec<Period> = times(WEATHER).iter().filter_map(period).collect();
        periods.sort_by_key(|period| period.start);
        periods
    }
}
