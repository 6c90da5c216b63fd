//! What a request for a month of the ledger asks for: which month, in which format, and whether it has changed.

use http::HeaderMap;
use http::header::{ACCEPT, IF_NONE_MATCH};
use onetap_ledger::Month;
use percent_encoding::percent_decode_str;

use crate::request::list;

/// A representation of a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Csv,
}

/// The query of a request for a month.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MonthQuery {
    pub(crate) month: Option<Month>,
    pub(crate) format: Option<Format>,
}

impl MonthQuery {
    /// Reads `month=2026-11&format=csv`, percent-encoded; `Err` says what is wrong with it.
    pub(crate) fn parse(query: &str) -> Result<MonthQuery, String> {
        let mut asked = MonthQuery::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            let is_repeated = match name.as_str() {
                "month" => {
                    let month = Month::parse(&value).ok_or("month 必須是存在的月份，格式 YYYY-MM")?;
                    asked.month.replace(month).is_some()
                }
                "format" => {
                    let format = match value.as_str() {
                        "json" => Format::Json,
                        "csv" => Format::Csv,
                        _ => return Err("format 必須是 json 或 csv".to_owned()),
                    };
                    asked.format.replace(format).is_some()
                }
                _ => return Err(format!("未知的參數「{name}」，只接受 month 與 format")),
            };
            // Two readers may see different values in such a query.
            if is_repeated {
                return Err(format!("參數 {name} 重複出現"));
            }
        }
        Ok(asked)
    }
}

/// Unlike `percent_decode_str`, refuses a `%` that two hexadecimal digits do not follow.
fn decode(text: &str) -> Result<String, String> {
    let is_escape = |after: &str| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let decoded = percent_decode_str(text).decode_utf8().ok();
    let decoded = decoded.filter(|_| text.split('%').skip(1).all(is_escape));
    decoded.map(Into::into).ok_or_else(|| "查詢字串的百分號編碼有誤".to_owned())
}

/// The format that `Accept` prefers: CSV if its quality value is higher than that of JSON.
pub(crate) fn preferred(headers: &HeaderMap) -> Format {
    let accept = list(headers, ACCEPT).to_ascii_lowercase();
    let [json, csv] = [("application", "json"), ("text", "csv")].map(|media| quality(&accept, media));
    if csv > json { Format::Csv } else { Format::Json }
}

/// The quality value, in thousandths, that an `Accept` header gives a media type. The most specific range decides.
fn quality(accept: &str, (kind, subtype): (&str, &str)) -> u16 {
    let ranges = accept.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let specificity = match parts.next()?.split_once('/')? {
            ("*", "*") => 0,
            (k, "*") if k == kind => 1,
            (k, s) if (k, s) == (kind, subtype) => 2,
            _ => return None,
        };
        let quality = match parts.find_map(|parameter| parameter.strip_prefix("q=")) {
            Some(quality) => thousandths(quality)?,
            None => 1000,
        };
        Some((specificity, quality))
    });
    ranges.max().map_or(0, |(_, quality)| quality)
}

/// Reads `0.8` as 800; `None` if it is not a quality value.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let value = format!("{whole}{fraction:0<3}").parse().ok()?;
    (is_digits && matches!(whole, "0" | "1") && value <= 1000).then_some(value)
}

/// Whether `If-None-Match` names this entity tag: then the caller has the representation already.
pub(crate) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let tags = list(headers, IF_NONE_MATCH);
    // The weak comparison. No tag of ours has a comma in it.
    let same = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag) == etag;
    tags.trim() == "*" || tags.split(',').any(|tag| same(tag.trim()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_query_names_a_month_and_a_format_at_most_once() {
        let month = Month::parse("2026-11");
        let parse = |query| MonthQuery::parse(query).unwrap();
        assert_eq!(parse(""), MonthQuery::default());
        assert_eq!(parse("month=2026-11"), MonthQuery { month, format: None });
        assert_eq!(parse("&format=csv&mont%68=2026%2D11&"), MonthQuery { month, format: Some(Format::Csv) });
        assert_eq!(parse("format=json").format, Some(Format::Json));
        let no_month = "month 必須是存在的月份，格式 YYYY-MM";
        let no_escape = "查詢字串的百分號編碼有誤";
        for (wrong, message) in [
            ("month", no_month),
            ("month=", no_month),
            ("month=2026-13", no_month),
            ("month=2026-1", no_month),
            ("month=2026-11-01", no_month),
            ("month=+2026-11", no_month),
            ("month=2026-11&month=2026-11", "參數 month 重複出現"),
            ("format=csv&format=json", "參數 format 重複出現"),
            ("format=CSV", "format 必須是 json 或 csv"),
            ("format", "format 必須是 json 或 csv"),
            ("year=2026", "未知的參數「year」，只接受 month 與 format"),
            ("Month=2026-11", "未知的參數「Month」，只接受 month 與 format"),
            ("=2026-11", "未知的參數「」，只接受 month 與 format"),
            ("%E6%9C%88=1", "未知的參數「月」，只接受 month 與 format"),
            ("month=2026%2", no_escape),
            ("month=2026%", no_escape),
            ("month=2026%zz11", no_escape),
            ("month=%+1", no_escape),
            ("month=%FF", no_escape),
            ("%FF=1", no_escape),
        ] {
            assert_eq!(MonthQuery::parse(wrong), Err(message.to_owned()), "{wrong}");
        }
    }

    #[test]
    fn csv_is_what_accept_prefers_to_json() {
        let preferred = |values: &[&str]| preferred(&headers(ACCEPT, values));
        for csv in [
            &["text/csv"][..],
            &["TEXT/CSV; charset=utf-8"],
            &["text/csv;header=present;q=0.1"],
            &["text/*"],
            &["text/csv, */*;q=0.8"],
            &["application/json;q=0.5, text/csv;q=0.501"],
            &["application/json;q=0.5", "text/csv"],
            &["application/json;q=0, */*"],
            &["application/*;q=0.2,*/*;q=0.3"],
        ] {
            assert_eq!(preferred(csv), Format::Csv, "{csv:?}");
        }
        for json in [
            &[][..],
            &[""],
            &["*/*"],
            &["application/json"],
            &["text/csv, application/json"],
            &["text/csv, */*"],
            &["text/csv;q=0.5, application/*;q=0.6"],
            &["text/csv;q=0, text/*"],
            &["text/csv;q=0"],
            &["text/csv;q=2"],
            &["text/csv;q=0.1234"],
            &["text/csv;q=+1"],
            &["image/png"],
            &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
            &["csv"],
        ] {
            assert_eq!(preferred(json), Format::Json, "{json:?}");
        }
    }

    #[test]
    fn if_none_match_is_a_list_of_tags_or_a_star() {
        let known = |values: &[&str]| is_known(&headers(IF_NONE_MATCH, values), "\"abc\"");
        for values in
            [&["\"abc\""][..], &["W/\"abc\""], &["\"x\", \"abc\""], &["\"x\"", "W/\"abc\""], &[" * "]]
        {
            assert!(known(values), "{values:?}");
        }
        for values in [&[][..], &[""], &["abc"], &["\"ab\""], &["w/\"abc\""], &["\"x\", *"], &["W/*"]] {
            assert!(!known(values), "{values:?}");
        }
    }
}
