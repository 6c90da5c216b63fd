//! The places that the forecasts are for: finds one of Taiwan's 368 townships by name, by address or by position.
//!
//! The data is `data/places.csv`, made by `data/make-places`: the formal name (臺, not 台) of each township, a reference
//! point inside it, and the distance in kilometres from that point to the farthest part of the township. What people
//! call them besides is in `data/aliases.csv`.

mod names;
mod search;
mod words;

use std::sync::LazyLock;

pub use search::{Found, MAX_CHOICES, Search, search};

/// A township: 鄉, 鎮, 市 or 區.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    county: &'static str,
    township: &'static str,
    latitude: f64,
    longitude: f64,
    /// From the reference point to the farthest part of the township.
    reach_km: f64,
}

static PLACES: LazyLock<Vec<Place>> =
    LazyLock::new(|| include_str!("../data/places.csv").lines().skip(1).filter_map(Place::row).collect());

impl Place {
    fn row(line: &'static str) -> Option<Place> {
        let mut fields = line.split(',');
        let (county, township) = (fields.next()?, fields.next()?);
        let mut number = || fields.next()?.parse().ok();
        Some(Place { county, township, latitude: number()?, longitude: number()?, reach_km: number()? })
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

    /// Latitude of the reference point, in degrees north.
    pub fn latitude(&self) -> f64 {
        self.latitude
    }

    /// Longitude of the reference point, in degrees east.
    pub fn longitude(&self) -> f64 {
        self.longitude
    }

    /// Its rank among places to choose from: first the one that is called like its county, then 市 and 區, then 鎮, then
    /// 鄉, and of each the small ones first, because towns are small.
    fn rank(&self) -> (bool, usize, i64) {
        let named_alike = self.county.chars().take(2).eq(self.township.chars().take(2));
        let kind = ["鎮", "鄉"].iter().position(|kind| self.township.ends_with(kind)).map_or(0, |at| at + 1);
        (!named_alike, kind, self.reach_km as i64)
    }

    /// The distance in kilometres to the edge of a circle around the reference point; negative inside the circle. Its
    /// radius is half of `reach_km`, as an estimate of the township's size. Without the circle, large townships would
    /// be missed: 天祥 is in 秀林鄉, but far from its reference point.
    fn distance(&self, latitude: f64, longitude: f64) -> f64 {
        let (here, there) = (latitude.to_radians(), self.latitude.to_radians());
        let across = (self.longitude - longitude).to_radians();
        // The haversine formula.
        let haversine =
            ((there - here) / 2.0).sin().powi(2) + here.cos() * there.cos() * (across / 2.0).sin().powi(2);
        2.0 * EARTH_RADIUS_KM * haversine.clamp(0.0, 1.0).sqrt().asin() - self.reach_km / 2.0
    }
}

/// All townships, in the order of their official codes.
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

/// The township with exactly this [name](Place::name). User profiles store this name.
pub fn by_name(name: &str) -> Option<&'static Place> {
    let name = formal(name);
    all().iter().find(|place| name.strip_prefix(place.county) == Some(place.township))
}

/// The township that an address names: `106台北市大安區…`, `台灣臺北市 大安區…`, `大安區, 臺北市`.
///
/// The address must name the county too: Hong Kong also has a 中西區.
pub fn by_address(address: &str) -> Option<&'static Place> {
    let address: String = formal(address).chars().filter(|c| !c.is_whitespace()).collect();
    // The county that occurs first: a road may be named after another county. The township is searched after the
    // county, then before it; of two names at one position the longer one counts.
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

/// The township nearest to a position inside Taiwan, if its circle (see [`Place`]'s `distance`) is at most 15 km away.
pub fn nearest(latitude: f64, longitude: f64) -> Option<&'static Place> {
    let inside = |[south, west, north, east]: &[f64; 4]| {
        (*south..=*north).contains(&latitude) && (*west..=*east).contains(&longitude)
    };
    if !TAIWAN_BOXES.iter().any(inside) {
        return None;
    }
    let near = all().iter().map(|place| (place.distance(latitude, longitude), place));
    near.min_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(distance, _)| *distance <= MAX_DISTANCE_KM)
        .map(|(_, place)| place)
}

const EARTH_RADIUS_KM: f64 = 6371.0;

/// Maximum distance of a position from the circle of its township.
const MAX_DISTANCE_KM: f64 = 15.0;

/// Bounding boxes of Taiwan's islands: south, west, north, east. Distance alone is not enough: from Xiamen it is ten
/// kilometres to 烈嶼鄉, and from Huangqi little more to 北竿鄉. Both coasts are outside these boxes.
const TAIWAN_BOXES: [[f64; 4]; 6] = [
    [21.80, 119.90, 25.40, 122.10],  // the main island, 綠島, 蘭嶼, 琉球, 龜山島
    [23.10, 119.25, 23.85, 119.75],  // 澎湖
    [24.37, 118.205, 24.54, 118.50], // 金門
    [24.95, 119.42, 25.02, 119.50],  // 烏坵
    [25.92, 119.90, 26.30, 120.10],  // 南竿, 北竿, 莒光
    [26.30, 120.20, 26.42, 120.55],  // 亮島, 東引
];

/// The spelling that the data uses.
fn formal(name: &str) -> String {
    name.replace('台', "臺")
}
