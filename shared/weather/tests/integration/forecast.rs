//! The message a forecast makes.

use onetap_weather::{Forecast, Moment, Period, Sample, Sky, places};

fn period(start: &str, sky: Sky, max: Option<i32>, pop: Option<u8>) -> Period {
    let start = Moment::parse(start).unwrap();
    Period { start, end: start.plus_hours(3), sky, max, pop }
}

fn forecast(fetched: &str, periods: Vec<Period>) -> Forecast {
    let fetched = Moment::parse(fetched).unwrap();
    Forecast { place: *places::by_name("臺北市信義區").unwrap(), periods, sample: false, fetched }
}

#[test]
fn a_message_has_the_place_a_line_a_period_and_the_hour_of_its_making() {
    let periods = vec![
        period("2026-03-01T21:00", Sky::Rain, Some(17), Some(80)),
        period("2026-03-02T00:00", Sky::Unknown, None, None),
        period("2026-03-02T03:00", Sky::Snow, Some(-2), Some(0)),
    ];
    let text = forecast("2026-03-01T22:05", periods).text(Moment::parse("2026-03-01T22:31").unwrap());
    assert_eq!(
        text,
        "臺北市信義區\n\
         🌧️ 21-00 🌡️17°💧80%\n\
         ❔ 00-03 🌡️--°💧--%\n\
         🌨️ 03-06 🌡️-2°💧0%\n\
         03/01 22:05 更新"
    );
}

#[test]
fn what_is_over_is_left_out_and_eight_periods_are_shown() {
    let first = Moment::parse("2026-03-01T00:00").unwrap();
    let start = |n: u32| first.plus_hours(3 * n);
    let periods = (0..16)
        .map(|n| Period {
            start: start(n),
            end: start(n + 1),
            sky: Sky::Clear,
            max: Some(n as i32),
            pop: None,
        })
        .collect();
    let text = forecast("2026-03-01T00:00", periods).text(Moment::parse("2026-03-01T06:00").unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10);
    assert_eq!((lines[1], lines[8]), ("☀️ 06-09 🌡️2°💧--%", "☀️ 03-06 🌡️9°💧--%"));
}

#[test]
fn a_forecast_that_is_all_over_says_that_there_is_none() {
    let old = forecast("2026-03-01T00:00", vec![period("2026-03-01T00:00", Sky::Clear, Some(20), Some(0))]);
    let text = old.text(Moment::parse("2026-03-01T03:00").unwrap());
    assert_eq!(text, "臺北市信義區\n目前沒有預報資料\n03/01 00:00 更新");
}

#[test]
fn every_code_of_both_tables_has_an_emoji_of_its_own_kind() {
    let cwa = [
        (1, "☀️"),
        (2, "🌤️"),
        (3, "⛅"),
        (4, "☁️"),
        (7, "☁️"),
        (8, "🌦️"),
        (12, "🌧️"),
        (15, "⛈️"),
        (22, "⛈️"),
    ];
    for (code, emoji) in cwa.into_iter().chain([(23, "🌨️"), (26, "🌫️"), (29, "🌦️"), (41, "⛈️"), (42, "🌨️")])
    {
        assert_eq!(Sky::from_cwa(code).emoji(), emoji, "CWA {code}");
    }
    let wmo = [(0, "☀️"), (1, "🌤️"), (2, "⛅"), (3, "☁️"), (48, "🌫️"), (55, "🌦️"), (65, "🌧️"), (75, "🌨️")];
    for (code, emoji) in wmo.into_iter().chain([(81, "🌦️"), (86, "🌨️"), (95, "⛈️"), (99, "⛈️")])
    {
        assert_eq!(Sky::from_wmo(code).emoji(), emoji, "WMO {code}");
    }
    let known = |table: fn(u8) -> Sky| (0..=255).filter(move |code| table(*code) != Sky::Unknown);
    assert!(known(Sky::from_cwa).eq((1..=39).chain(41..=42)));
    assert_eq!(known(Sky::from_wmo).count(), 37);
}

#[test]
fn the_made_up_weather_is_marked_plausible_and_the_same_for_the_same_hour() {
    for place in places::all() {
        for hour in [0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000] {
            let now = Moment::from_unix(1_767_225_600).unwrap().plus_hours(hour);
            let forecast = Sample::at(place, now);
            let text = forecast.text(now);
            assert!(text.starts_with(&format!("{}（範例資料）\n", place.name())), "{text}");
            assert_eq!(text.lines().count(), 10, "{text}");
            assert_eq!(forecast, Sample::at(place, now));
            for period in forecast.periods {
                assert!((5..=40).contains(&period.max.unwrap()) && period.pop.unwrap() <= 100, "{period:?}");
            }
        }
    }
}

#[test]
fn the_made_up_weather_of_an_hour_does_not_depend_on_when_it_was_asked_for() {
    let place = places::by_name("高雄市左營區").unwrap();
    let noon = Moment::parse("2026-07-01T12:00").unwrap();
    let (early, late) = (Sample::at(place, noon), Sample::at(place, noon.plus_hours(3)));
    assert_eq!(early.periods[1..], late.periods[..7]);
    assert_ne!(early.periods[0].max, early.periods[4].max);
}
