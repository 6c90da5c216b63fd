//! What each place is called: officially, in short, by people, and before it became a 區. A name matches as a whole or
//! from its beginning, never from its middle: 北市 is not 竹北市.

use std::sync::LazyLock;

use super::words::spelling;
use super::{Place, all};

/// The places that a name means.
#[derive(Default)]
pub(super) struct Match {
    pub(super) places: Vec<&'static Place>,
    /// Whether it is their full name.
    pub(super) full: bool,
}

impl Match {
    fn new(places: Vec<&'static Place>, full: bool) -> Option<Match> {
        (!places.is_empty()).then_some(Match { places, full })
    }
}

/// A name of a county.
struct County {
    name: String,
    county: &'static str,
    form: Form,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// 臺北市, and what stands for it: 北市.
    Full,
    /// 臺北.
    Short,
    /// Means the county only in front of a township.
    InFront,
}

/// A township's names.
struct Township {
    place: &'static Place,
    name: String,
    /// The name without 鄉, 鎮, 市 or 區.
    stem: String,
    aliases: Vec<String>,
}

static COUNTIES: LazyLock<Vec<County>> = LazyLock::new(|| {
    let mut counties: Vec<&str> = all().iter().map(Place::county).collect();
    counties.dedup();
    let full = counties.iter().map(|county| (*county, *county, Form::Full));
    let short = counties.iter().map(|county| (without_suffix(county), *county, Form::Short));
    let aliases = aliases().filter(|(.., township)| township.is_empty());
    let aliases = aliases.map(|(alias, county, _)| (alias, county, Form::Full));
    // People say 臺北板橋.
    let in_front = [("臺北", "新北市", Form::InFront)];
    let names = full.chain(short).chain(aliases).chain(in_front);
    names.map(|(name, county, form)| County { name: spelling(name), county, form }).collect()
});

static TOWNSHIPS: LazyLock<Vec<Township>> = LazyLock::new(|| {
    let township = |place: &'static Place| {
        let mine = (place.county(), place.township());
        let aliases = aliases().filter(|&(_, county, township)| (county, township) == mine);
        Township {
            place,
            name: spelling(place.township()),
            stem: spelling(without_suffix(place.township())),
            aliases: aliases.map(|(alias, ..)| spelling(alias)).collect(),
        }
    };
    all().iter().map(township).collect()
});

/// The rows of `data/aliases.csv`: a name, its county, and its township or nothing.
fn aliases() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let rows = include_str!("../../data/aliases.csv").lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.filter_map(|row| {
        let mut fields = row.split(',');
        Some((fields.next()?, fields.next()?, fields.next()?))
    })
}

fn without_suffix(name: &str) -> &str {
    name.strip_suffix(['縣', '市', '鄉', '鎮', '區']).unwrap_or(name)
}

impl Township {
    /// Whether this was its name while its county was no special municipality: 永和市, 淡水鎮.
    fn was_called(&self, name: &str) -> bool {
        let suffix = name.strip_prefix(&self.stem);
        let has_changed = ["新北市", "桃園市", "臺中市", "臺南市", "高雄市"].contains(&self.place.county());
        has_changed && self.has_stem() && matches!(suffix, Some("鄉" | "鎮" | "市"))
    }

    /// Whether people leave its suffix out. 東區 is never 東.
    fn has_stem(&self) -> bool {
        self.stem.chars().nth(1).is_some()
    }
}

/// The places that are called `text`: all rules of [`search`](super::search()) but the last one.
pub(super) fn called(text: &str) -> Option<Match> {
    let text = &without_country(text);
    county(text, Form::Full)
        .or_else(|| township(text, None))
        .or_else(|| county(text, Form::Short))
        .or_else(|| behind_county(text, |rest, county| township(rest, Some(county))))
}

/// The places whose name begins with `text`: the last rule.
pub(super) fn beginning_with(text: &str) -> Option<Match> {
    let text = &without_country(text);
    let beginning = |text: &str, county: Option<&County>| {
        Match::new(townships(county, |township| township.stem.starts_with(text)), false)
    };
    let long_enough = text.chars().nth(1).is_some();
    long_enough
        .then(|| beginning(text, None))
        .flatten()
        .or_else(|| behind_county(text, |rest, county| beginning(rest, Some(county))))
}

fn without_country(text: &str) -> String {
    spelling(text.strip_prefix("臺灣").unwrap_or(text))
}

/// The townships of the county that is called `text`.
fn county(text: &str, form: Form) -> Option<Match> {
    let named = |county: &&County| county.form == form && county.name == text;
    let counties = COUNTIES.iter().filter(named);
    Match::new(counties.flat_map(|county| townships(Some(county), |_| true)).collect(), false)
}

/// The townships that are called `text`, in `county` or anywhere.
fn township(text: &str, county: Option<&County>) -> Option<Match> {
    let full_county = county.is_some_and(|county| county.form == Form::Full);
    let alias = |township: &Township| township.aliases.iter().any(|alias| alias == text);
    let stem = |township: &Township| township.has_stem() && township.stem == text;
    Match::new(townships(county, |township| township.name == text), true)
        .or_else(|| Match::new(townships(county, alias), false))
        .or_else(|| Match::new(townships(county, |township| township.was_called(text)), true))
        .or_else(|| Match::new(townships(county, stem), full_county))
}

fn townships(county: Option<&County>, rule: impl Fn(&Township) -> bool) -> Vec<&'static Place> {
    let inside = |place: &Place| county.is_none_or(|county| county.county == place.county());
    let found = TOWNSHIPS.iter().filter(|township| inside(township.place) && rule(township));
    found.map(|township| township.place).collect()
}

/// What `find` finds in the rest of `text` behind each county with which it begins: 新竹 is a county and a city.
fn behind_county(text: &str, find: impl Fn(&str, &County) -> Option<Match>) -> Option<Match> {
    let rest = |county: &County| {
        let rest = text.strip_prefix(&county.name)?;
        let rest = rest.strip_prefix('的').unwrap_or(rest);
        find((!rest.is_empty()).then_some(rest)?, county)
    };
    COUNTIES.iter().filter_map(rest).reduce(|mut all, found| {
        all.places.extend(found.places);
        Match { full: all.full || found.full, ..all }
    })
}
