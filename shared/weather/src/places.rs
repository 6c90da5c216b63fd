//! Taiwan's 368 townships: by name, by address, by position.
//!
//! The data is `data/places.csv`, made by `data/make-places`: formal names (臺, not 台), a point inside each, and how
//! many kilometres from that point the township reaches.

use std::sync::LazyLock;

/// A township: 鄉, 鎮, 市 or 區.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    county: &'static str,
    township: &'static str,
    latitude: f64,
    longitude: f64,
    reach: f64,
}

static PLACES: LazyLock<Vec<Place>> =
    LazyLock::new(|| include_str!("../data/places.csv").lines().skip(1).filter_map(Place::row).collect());

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Found {
    /// The only place it can mean.
    One(&'static Place),
    /// Two or three to choose from.
    Few(Vec<&'static Place>),
    /// More than a choice can offer: ask for a narrower name.
    Many,
    /// No place.
    Nothing,
}

impl Place {
    fn row(line: &'static str) -> Option<Place> {
        let mut fields = line.split(',');
        let (county, township) = (fields.next()?, fields.next()?);
        let mut number = || fields.next()?.parse().ok();
        Some(Place { county, township, latitude: number()?, longitude: number()?, reach: number()? })
    }

    /// The county or city: 臺北市.
    pub fn county(&self) -> &'static str {
        self.county
    }

    /// The township itself: 信義區.
    pub fn township(&self) -> &'static str {
        self.township
    }

    /// Both: 臺北市信義區. No two places share it, and [`by_name`] finds it again.
    pub fn name(&self) -> String {
        [self.county, self.township].concat()
    }

    /// Degrees north of a point inside the township.
    pub fn latitude(&self) -> f64 {
        self.latitude
    }

    /// Degrees east of a point inside the township.
    pub fn longitude(&self) -> f64 {
        self.longitude
    }

    /// 臺北信義區: as people say it who leave out 市 or 縣.
    fn short_name(&self) -> String {
        let mut county = self.county.chars();
        county.next_back();
        [county.as_str(), self.township].concat()
    }

    /// Kilometres to the township, taken as a disc of half its reach: from 天祥 the point of 秀林鄉 is far, but
    /// 秀林鄉 is not. Below nothing where the disc covers the position.
    fn distance(&self, latitude: f64, longitude: f64) -> f64 {
        let (here, there) = (latitude.to_radians(), self.latitude.to_radians());
        let across = (self.longitude - longitude).to_radians();
        let chord =
            ((there - here) / 2.0).sin().powi(2) + here.cos() * there.cos() * (across / 2.0).sin().powi(2);
        2.0 * 6371.0 * chord.clamp(0.0, 1.0).sqrt().asin() - self.reach / 2.0
    }
}

/// All of them, in the order of their official codes.
pub fn all() -> &'static [Place] {
    &PLACES
}

/// Whether `text` has the shape of a place name: 2–7 Chinese characters and nothing else. The longest names
/// (高雄市那瑪夏區) have seven.
pub fn is_place_text(text: &str) -> bool {
    let text = text.trim();
    let chinese = |c| matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}');
    (2..=7).contains(&text.chars().count()) && text.chars().all(chinese)
}

/// The places that `text` may mean; 台 is 臺. The narrowest reading that finds any wins:
///
/// 1. a name in full: 南區 is 臺中市南區 and 臺南市南區, not 安南區; 新北永和區 is 新北市永和區;
/// 2. a part of a township's name: 永和 is 永和區, 臺東 is 臺東市 rather than its whole county;
/// 3. a part of a whole name, with or without the county's 市 or 縣: 新北永和; 台北, which is too many.
pub fn search(text: &str) -> Found {
    if !is_place_text(text) {
        return Found::Nothing;
    }
    let wanted = formal(text.trim());
    let readings: [&dyn Fn(&Place) -> bool; 3] = [
        &|place| wanted == place.township || wanted == place.name() || wanted == place.short_name(),
        &|place| place.township.contains(&wanted),
        &|place| place.name().contains(&wanted) || place.short_name().contains(&wanted),
    ];
    for reading in readings {
        let found: Vec<&Place> = all().iter().filter(|place| reading(place)).collect();
        match found[..] {
            [] => {}
            [place] => return Found::One(place),
            [_, _] | [_, _, _] => return Found::Few(found),
            _ => return Found::Many,
        }
    }
    Found::Nothing
}

/// The place of exactly this [name](Place::name), as profiles keep it.
pub fn by_name(name: &str) -> Option<&'static Place> {
    let name = formal(name);
    all().iter().find(|place| name.strip_prefix(place.county) == Some(place.township))
}

/// The township that an address names: `106台北市大安區…`, `台灣臺北市 大安區…`, `大安區, 臺北市`.
///
/// Without its county a township's name says nothing: Hong Kong has a 中西區 too.
pub fn by_address(address: &str) -> Option<&'static Place> {
    let address: String = formal(address).chars().filter(|c| !c.is_whitespace()).collect();
    // The county as it is written first: a road may be named after another one. What follows it comes first, then
    // what stands before it; at one spot the longer name.
    let (at, county) = all().iter().filter_map(|p| Some((address.find(p.county)?, p.county))).min()?;
    let (before, after) = (&address[..at], &address[at + county.len()..]);
    [after, before].into_iter().find_map(|part| {
        let named = |place: &'static Place| Some((part.find(place.township)?, place));
        all()
            .iter()
            .filter(|place| place.county == county)
            .filter_map(named)
            .min_by_key(|(at, place)| (*at, std::cmp::Reverse(place.township.len())))
            .map(|(_, place)| place)
    })
}

/// The township nearest to a position inside Taiwan, if one is within 15 km.
pub fn nearest(latitude: f64, longitude: f64) -> Option<&'static Place> {
    let inside = |[south, west, north, east]: &[f64; 4]| {
        (*south..=*north).contains(&latitude) && (*west..=*east).contains(&longitude)
    };
    if !TAIWAN.iter().any(inside) {
        return None;
    }
    let near = all().iter().map(|place| (place.distance(latitude, longitude), place));
    near.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(distance, _)| *distance <= 15.0).map(|(_, place)| place)
}

/// South, west, north, east of Taiwan's islands. Distance alone would not do: from Xiamen it is ten kilometres to
/// 烈嶼鄉, and from Huangqi little more to 北竿鄉. Their coasts lie outside these.
const TAIWAN: [[f64; 4]; 6] = [
    [21.80, 119.90, 25.40, 122.10],  // the main island, 綠島, 蘭嶼, 琉球, 龜山島
    [23.10, 119.25, 23.85, 119.75],  // 澎湖
    [24.37, 118.205, 24.54, 118.50], // 金門
    [24.95, 119.42, 25.02, 119.50],  // 烏坵
    [25.92, 119.90, 26.30, 120.10],  // 南竿, 北竿, 莒光
    [26.30, 120.20, 26.42, 120.55],  // 亮島, 東引
];

/// The form that the data is in.
fn formal(name: &str) -> String {
    name.replace('台', "臺")
}
