//! A provider's answer.

use onetap_weather::Moment;
use serde_json::{Value, json};

/// Open-Meteo's forecast from this many hours from now to that many.
pub(crate) fn open_meteo(from: i64, to: i64) -> Value {
    let now = Moment::now().unix();
    let hours: Vec<Moment> = (from..to).map(|hour| Moment::from_unix(now + 3600 * hour).unwrap()).collect();
    let time: Vec<String> =
        hours.iter().map(|hour| format!("{}T{:02}:00", hour.date(), hour.hour())).collect();
    let known = |value: i32| vec![value; hours.len()];
    json!({ "hourly": {
        "time": time, "temperature_2m": known(23), "precipitation_probability": known(10), "weather_code": known(2)
    } })
}
