//! Which township a text, an address or a position means.

use std::collections::BTreeSet;

use onetap_weather::Place;
use onetap_weather::places::{all, by_address, by_name, is_place_text, nearest};
use proptest::prelude::*;

#[test]
fn there_are_22_counties_and_368_townships_under_their_formal_names() {
    assert_eq!(all().len(), 368);
    assert_eq!(all().iter().map(Place::county).collect::<BTreeSet<_>>().len(), 22);
    assert_eq!(all().iter().map(Place::name).collect::<BTreeSet<_>>().len(), 368);
    for place in all() {
        assert!(is_place_text(&place.name()) && !place.name().contains('台'), "{place:?}");
        assert!(place.township().ends_with(['鄉', '鎮', '市', '區']), "{place:?}");
    }
}

#[test]
fn every_place_is_found_by_its_name_its_address_and_its_position() {
    for place in all() {
        let name = place.name();
        assert_eq!(by_name(&name), Some(place), "{name}");
        assert_eq!(by_address(&format!("100{}中正路1號", name.replace('臺', "台"))), Some(place), "{name}");
        assert_eq!(
            nearest(place.latitude(), place.longitude()).map(Place::county),
            Some(place.county()),
            "{name}"
        );
    }
}

#[test]
fn known_places_are_where_they_are() {
    for (name, latitude, longitude) in [
        ("臺北市中正區", 25.03, 121.52),
        ("連江縣南竿鄉", 26.15, 119.94),
        ("金門縣金城鎮", 24.42, 118.32),
        ("屏東縣恆春鎮", 22.00, 120.75),
        ("臺東縣蘭嶼鄉", 22.05, 121.55),
        ("高雄市旗津區", 22.59, 120.28),
        ("宜蘭縣頭城鎮", 24.90, 121.83),
    ] {
        let place = by_name(name).unwrap();
        assert!((place.latitude() - latitude).abs() < 0.05, "{place:?}");
        assert!((place.longitude() - longitude).abs() < 0.05, "{place:?}");
    }
}

#[test]
fn a_place_name_is_two_to_seven_chinese_characters() {
    for text in ["永和", "高雄市那瑪夏區", " 台北 ", "\u{3000}信義\n", "㐀㐁"] {
        assert!(is_place_text(text), "{text}");
    }
    for text in
        ["", "永", "高雄市那瑪夏區區", "午餐 120", "永和!", "Taipei", "永 和", "永和１", "ㄩㄥˇ", "🌧️雨"]
    {
        assert!(!is_place_text(text), "{text}");
    }
}

#[test]
fn an_address_names_its_township() {
    for (address, expected) in [
        ("106臺北市大安區新生南路二段1號", Some("臺北市大安區")),
        ("台灣台北市大安區信義路三段", Some("臺北市大安區")),
        ("１０６４１台北市　大安區　和平東路", Some("臺北市大安區")),
        ("大安區, 臺北市, 台灣", Some("臺北市大安區")),
        ("407台灣台中市西屯區臺灣大道三段99號", Some("臺中市西屯區")),
        ("台南市安南區南區街1號", Some("臺南市安南區")),
        ("台中市南屯區臺北市街1號", Some("臺中市南屯區")),
        ("950台東縣台東市中山路276號", Some("臺東縣臺東市")),
        ("嘉義縣民雄鄉嘉義市路", Some("嘉義縣民雄鄉")),
        ("香港中西區", None),
        ("福建省福州市連江縣鳳城鎮", None),
        ("臺北市", None),
        ("大安區信義路", None),
        ("7 Xinyi Rd, Taipei", None),
        ("", None),
    ] {
        assert_eq!(by_address(address).map(Place::name).as_deref(), expected, "{address}");
    }
}

#[test]
fn a_position_has_a_township_only_inside_taiwan() {
    for (what, latitude, longitude, expected) in [
        ("Taipei 101", 25.0340, 121.5645, Some("臺北市信義區")),
        ("a harbour wall in 旗津", 22.6130, 120.2650, Some("高雄市旗津區")),
        ("天祥, far from the middle of its township", 24.1820, 121.4940, Some("花蓮縣秀林鄉")),
        ("金湖", 24.4420, 118.4140, Some("金門縣金湖鎮")),
        ("烈嶼", 24.4290, 118.2370, Some("金門縣烈嶼鄉")),
        ("馬公", 23.5655, 119.5650, Some("澎湖縣馬公市")),
        ("東引", 26.3660, 120.4900, Some("連江縣東引鄉")),
        ("Xiamen's east coast, ten kilometres from 烈嶼", 24.4680, 118.1900, None),
        ("Dadeng, north of 金門", 24.5600, 118.3300, None),
        ("Huangqi, opposite 北竿", 26.3300, 119.9000, None),
        ("Yonaguni", 24.4560, 122.9870, None),
        ("the strait", 24.4000, 119.9500, None),
        ("the sea east of 花蓮", 23.9000, 122.0000, None),
        ("Tokyo", 35.6800, 139.7600, None),
        ("Hong Kong", 22.2800, 114.1600, None),
        ("nowhere", f64::NAN, f64::INFINITY, None),
    ] {
        assert_eq!(nearest(latitude, longitude).map(Place::name).as_deref(), expected, "{what}");
    }
}

proptest! {
    #[test]
    fn no_text_and_no_position_panics(text: String, latitude: f64, longitude: f64) {
        let _ = is_place_text(&text);
        prop_assert!(by_address(&text).is_none_or(|place| text.replace('台', "臺").contains(place.county())));
        prop_assert!(nearest(latitude, longitude).is_none_or(|place| (place.latitude() - latitude).abs() < 1.0));
    }
}
