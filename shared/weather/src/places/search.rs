//! What a text asks for: the words about the weather are set aside, and the rest is looked up as a place's name.

use super::{Place, names, words};

/// What a text asks for. `Debug` does not show the text.
#[derive(Clone, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct Search {
    /// Whether a weather word is around the name: 永和天氣, 明天會下雨嗎.
    pub asks_weather: bool,
    /// The text without such words, spaces, punctuation and emoji, with 臺 for 台. Empty if nothing is left:
    /// 明天會下雨嗎 names no place.
    pub name: String,
    /// Whether the whole text is the full name of what was found: 永和區, 新北永和區 and 新北市永和, neither 永和 nor
    /// 請問永和區.
    pub full_name: bool,
    /// The places that the name means.
    pub found: Found,
}

impl std::fmt::Debug for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Search { asks_weather, name, full_name, .. } = self;
        write!(f, "Search({} bytes, asks_weather: {asks_weather}, full_name: {full_name})", name.len())
    }
}

/// The places that a name means.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Found {
    /// The only one.
    One(&'static Place),
    /// Several: those of a county, or those that share a name.
    Many {
        /// The first of them, at most [`MAX_CHOICES`]: towns before villages, small ones before large ones.
        first: Vec<&'static Place>,
        /// How many there are in all.
        total: usize,
    },
    /// None.
    Nothing,
}

/// As many places are offered as LINE shows buttons.
pub const MAX_CHOICES: usize = 13;

/// A longer text is not looked up.
const MAX_CHARS: usize = 30;

/// What `text` asks for. The first of these rules that finds a place decides, and the less is stripped the better:
///
/// 1. a county in full: 臺北市, 北市, 馬祖;
/// 2. a township in full, as it is called today: 永和區, 信義區;
/// 3. another name of a township: 小琉球, 墾丁, or its old one: 永和市;
/// 4. a township without its suffix: 永和, 信義, 臺東;
/// 5. a county without its suffix: 臺北, 新竹;
/// 6. 2 to 4 behind a county with or without its suffix: 臺北信義;
/// 7. the beginning of a township's name, two characters or, behind a county, one: 阿里, 臺北信.
pub fn search(text: &str) -> Search {
    let text = words::normalised(text, MAX_CHARS + 1);
    if text.chars().count() > MAX_CHARS {
        return Search { asks_weather: false, name: text, full_name: false, found: Found::Nothing };
    }
    let ends = words::ends(&text);
    let with_end = |start| ends.iter().filter(move |&&end| start < end).map(move |&end| (start, end));
    let mut parts: Vec<(usize, usize)> = words::starts(&text).into_iter().flat_map(with_end).collect();
    parts.sort_by_key(|(start, end)| text.len() + start - end);

    let look_up = |by: fn(&str) -> Option<names::Match>| {
        parts.iter().find_map(|&(start, end)| Some((start, end, by(&text[start..end])?)))
    };
    let found = look_up(names::called).or_else(|| look_up(names::beginning_with));
    let (start, end, found) = found.unwrap_or_else(|| {
        let (start, end) = stripped(&text);
        (start, end, names::Match::default())
    });
    Search {
        asks_weather: words::ask_weather(&text[..start]) || words::ask_weather(&text[end..]),
        name: text[start..end].to_owned(),
        full_name: found.full && end - start == text.len(),
        found: Found::new(found.places),
    }
}

/// Where what is left of `text` starts and ends when every word is stripped.
fn stripped(text: &str) -> (usize, usize) {
    let start = words::starts(text).into_iter().max().unwrap_or_default();
    let end = words::ends(&text[start..]).into_iter().min().unwrap_or_default();
    (start, start + end)
}

impl Found {
    fn new(mut places: Vec<&'static Place>) -> Found {
        match places[..] {
            [] => Found::Nothing,
            [place] => Found::One(place),
            _ => {
                let total = places.len();
                places.sort_by_key(|place| place.rank());
                places.truncate(MAX_CHOICES);
                Found::Many { first: places, total }
            }
        }
    }
}
