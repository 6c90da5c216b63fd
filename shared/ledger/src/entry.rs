//! An entry: a JSON object with a `交易ID`, kept as it was written.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::{Field, Reason};

/// The most levels of nested JSON: other programs that read the entry may parse it by recursion.
const MAX_JSON_DEPTH: usize = 64;

/// A body that is not what it should be. `Debug` shows no name and no value.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// Not JSON, not an object, or nested too deep.
    Malformed,
    /// An object with wrong fields: each of them, with its reason. Empty if the object has no field.
    Fields(Vec<(String, Reason)>),
}

impl fmt::Debug for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Malformed => f.write_str("Malformed"),
            Invalid::Fields(wrong) => write!(f, "Fields({})", wrong.len()),
        }
    }
}

/// A transaction as the store holds it.
///
/// Its fields stand in the order in which they were written, each as the JSON that was written: numbers keep their
/// digits, and what this version does not know is kept. `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    id: String,
    fields: Vec<(String, String)>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({} fields)", self.fields.len())
    }
}

impl Entry {
    /// Reads the body of a request: a whole entry. Every field is checked, and every wrong one is reported.
    pub fn from_body(body: &[u8]) -> Result<Entry, Invalid> {
        let (fields, mut wrong) = check_fields(body)?;
        let missing = |field: &Field| {
            let name = field.name();
            let named = fields.iter().map(|(n, _)| n).chain(wrong.iter().map(|(n, _)| n)).any(|n| n == name);
            !field.is_optional() && !named
        };
        let missing: Vec<_> =
            Field::ALL.into_iter().filter(missing).map(|f| (f.name().to_owned(), "缺少")).collect();
        wrong.extend(missing);
        match id_of(&fields) {
            Some(id) if wrong.is_empty() => Ok(Entry { id, fields }),
            _ => Err(Invalid::Fields(wrong)),
        }
    }

    /// Reads a stored value: any object with a `交易ID`, whoever wrote it. `None` means that the value is broken.
    ///
    /// If a name occurs twice, its last value counts, as it does for nearly every other reader.
    pub fn read(text: &str) -> Option<Entry> {
        let Object(mut fields) = serde_json::from_str(text).ok()?;
        if has_duplicate_names(&fields) {
            fields = last_of_each(fields);
        }
        Some(Entry { id: id_of(&fields)?, fields })
    }

    /// An entry of known fields, which were checked before.
    pub(crate) fn from_fields(id: String, fields: impl IntoIterator<Item = (Field, String)>) -> Entry {
        let fields = fields.into_iter().map(|(field, json)| (field.name().to_owned(), json)).collect();
        Entry { id, fields }
    }

    /// Its `交易ID`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A field for people to read: the text of a string, the digits of a number.
    pub fn get(&self, field: Field) -> Option<String> {
        let json = self.json(field)?;
        Some(serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned()))
    }

    /// The JSON of a field, as it was written.
    pub(crate) fn json(&self, field: Field) -> Option<&str> {
        self.fields.iter().find(|(name, _)| name == field.name()).map(|(_, json)| json.as_str())
    }

    /// The entry with this field set, in its old position or at the end.
    pub(crate) fn with(mut self, field: Field, json: &str) -> Entry {
        match self.fields.iter_mut().find(|(name, _)| name == field.name()) {
            Some((_, old)) => *old = json.to_owned(),
            None => self.fields.push((field.name().to_owned(), json.to_owned())),
        }
        self
    }

    /// The JSON that is stored.
    pub fn to_json(&self) -> String {
        let size: usize = self.fields.iter().map(|(name, json)| name.len() + json.len() + 4).sum();
        let mut text = String::with_capacity(size + 2);
        text.push('{');
        for (n, (name, json)) in self.fields.iter().enumerate() {
            text.push_str(if n == 0 { "" } else { "," });
            match name.bytes().any(|b| b < b' ' || b == b'"' || b == b'\\') {
                true => text.push_str(&Value::from(name.as_str()).to_string()),
                false => text.extend(["\"", name, "\""]),
            }
            text.extend([":", json]);
        }
        text.push('}');
        text
    }
}

/// The most fields that are compared with each other one by one; with more, hashing costs less.
const MAX_FIELDS_COMPARED: usize = 32;

fn has_duplicate_names(fields: &[(String, String)]) -> bool {
    if fields.len() > MAX_FIELDS_COMPARED {
        let mut seen = HashSet::new();
        return fields.iter().any(|(name, _)| !seen.insert(name));
    }
    fields.iter().enumerate().any(|(n, (name, _))| fields[..n].iter().any(|(other, _)| other == name))
}

/// Each name once, in its first position, with its last value.
fn last_of_each(all: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::with_capacity(all.len());
    let mut positions = HashMap::new();
    for (name, json) in all {
        match positions.get(&name) {
            Some(position) => fields[*position] = (name, json),
            None => {
                positions.insert(name.clone(), fields.len());
                fields.push((name, json));
            }
        }
    }
    fields
}

fn id_of(fields: &[(String, String)]) -> Option<String> {
    let (_, json) = fields.iter().find(|(name, _)| name == Field::Id.name())?;
    serde_json::from_str(json).ok()
}

type Checked = (Vec<(String, String)>, Vec<(String, Reason)>);

/// The fields of a body: those that are right, unknown ones included, and those that are wrong.
pub(crate) fn check_fields(body: &[u8]) -> Result<Checked, Invalid> {
    let text = std::str::from_utf8(body).map_err(|_| Invalid::Malformed)?;
    let Object(all) = serde_json::from_str(text).map_err(|_| Invalid::Malformed)?;
    // `RawValue` was read without recursion; what comes after this check may recurse.
    if depth(text) > MAX_JSON_DEPTH {
        return Err(Invalid::Malformed);
    }
    let mut counts = HashMap::new();
    for (name, _) in &all {
        *counts.entry(name.clone()).or_insert(0) += 1;
    }
    let (mut good, mut wrong) = (Vec::new(), Vec::new());
    for (name, json) in all {
        let checked = match counts.remove(&name) {
            Some(1) => Field::named(&name).map_or(Ok(json.clone()), |field| field.check(&json)),
            // Two readers may see different values in such an object.
            Some(_) => Err("重複出現"),
            None => continue,
        };
        match checked {
            Ok(json) => good.push((name, json)),
            Err(reason) => wrong.push((name, reason)),
        }
    }
    Ok((good, wrong))
}

/// How many levels deep valid JSON is nested.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Any JSON object: its names in their order, duplicates included, each with its JSON.
struct Object(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Object, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, json)) = map.next_entry::<String, &RawValue>()? {
                    fields.push((name, json.get().to_owned()));
                }
                Ok(Object(fields))
            }
        }
        json.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::LUNCH;

    fn wrong(body: &str) -> Vec<(String, Reason)> {
        match Entry::from_body(body.as_bytes()) {
            Err(Invalid::Fields(wrong)) => wrong,
            other => panic!("{body} gave {other:?}"),
        }
    }

    #[test]
    fn an_entry_comes_back_as_it_was_written() {
        let entry = Entry::from_body(LUNCH.as_bytes()).unwrap();
        assert_eq!(entry.to_json(), LUNCH);
        assert_eq!(entry.id(), "20251129-143000");
        assert_eq!(entry.get(Field::Amount).unwrap(), "100.10");
        assert_eq!(entry.get(Field::Item).unwrap(), "午餐");
        assert_eq!(Entry::read(LUNCH), Some(entry));
    }

    #[test]
    fn a_name_that_needs_escapes_is_kept_with_them() {
        let body = LUNCH.replace('}', r#","a\"b\\c\nd":1}"#);
        assert_eq!(Entry::from_body(body.as_bytes()).unwrap().to_json(), body);
    }

    #[test]
    fn of_a_name_that_is_stored_twice_the_last_counts() {
        for others in [0, 100] {
            let others: String = (0..others).map(|n| format!(r#","f{n}":{n}"#)).collect();
            let text = format!(r#"{{"交易ID":"x","品項":"早"{others},"品項":"晚"}}"#);
            let entry = Entry::read(&text).unwrap();
            assert_eq!(entry.get(Field::Item).unwrap(), "晚");
            assert_eq!(entry.to_json(), format!(r#"{{"交易ID":"x","品項":"晚"{others}}}"#));
        }
    }

    #[test]
    fn a_newer_writers_fields_are_kept_digit_for_digit() {
        let body = LUNCH.replace('}', r#","手續費":0.30000000000000004,"標籤":["a",{"b":1e999}],"":null}"#);
        assert_eq!(Entry::from_body(body.as_bytes()).unwrap().to_json(), body);
    }

    #[test]
    fn every_wrong_field_is_reported_and_not_the_first_only() {
        let wrong =
            wrong(r#"{"日期":"2025-02-30","原幣金額":-1,"匯率":0,"品項":"","時間":"25:00","多的":1}"#);
        let names: Vec<&str> = wrong.iter().map(|(name, _)| name.as_str()).collect();
        let missing = ["intent", "原幣別", "付款方式", "交易ID", "分類", "專案", "必要性", "代墊狀態"];
        assert_eq!(names, [&["日期", "原幣金額", "匯率", "品項", "時間"], &missing[..]].concat());
        assert!(wrong.contains(&("分類".to_owned(), "缺少")));
    }

    #[test]
    fn what_may_be_missing_is_not_missed() {
        let body = LUNCH.replace(r#","明細說明":"""#, "").replace(r#","收款支付對象":"","附註":"""#, "");
        assert!(!body.contains("附註") && Entry::from_body(body.as_bytes()).is_ok());
    }

    #[test]
    fn a_name_that_is_there_twice_is_wrong_once() {
        let twice = LUNCH.replace('}', r#","品項":"晚餐","品項":"宵夜","新":1,"新":2}"#);
        assert_eq!(wrong(&twice), [("品項".to_owned(), "重複出現"), ("新".to_owned(), "重複出現")]);
        let escaped = LUNCH.replace('}', r#","\u54c1\u9805":"晚餐"}"#);
        assert_eq!(wrong(&escaped), [("品項".to_owned(), "重複出現")]);
    }

    #[test]
    fn what_is_no_object_is_malformed() {
        let deep = format!(r#"{{"x":{}1{}}}"#, "[".repeat(30_000), "]".repeat(30_000));
        let open = "[".repeat(60_000);
        let objects = r#"{"a":"#.repeat(10_000);
        for body in [
            "",
            "null",
            "[]",
            "7",
            "\"x\"",
            "{",
            "{}x",
            "{,}",
            "{\"a\":NaN}",
            "\u{feff}{}",
            &deep,
            &open,
            &objects,
        ] {
            assert_eq!(Entry::from_body(body.as_bytes()), Err(Invalid::Malformed), "{:.20}", body);
        }
        assert_eq!(Entry::from_body(b"{\"\xff\":1}"), Err(Invalid::Malformed));
    }

    #[test]
    fn brackets_in_a_text_are_not_deep() {
        let text =
            LUNCH.replace(r#""附註":"""#, &format!(r#""附註":"{}\"{}""#, "[".repeat(99), "{".repeat(99)));
        assert!(Entry::from_body(text.as_bytes()).is_ok());
    }

    #[test]
    fn whatever_has_an_id_can_be_read_and_nothing_else() {
        assert_eq!(Entry::read(r#" {"交易ID":"x","a": 1} "#).unwrap().to_json(), r#"{"交易ID":"x","a":1}"#);
        assert_eq!(Entry::read(r#"{"交易ID":"x","交易ID":"y"}"#).unwrap().id(), "y");
        for broken in ["", "{", "null", "[]", "{}", r#"{"交易ID":7}"#, r#"{"交易ID":null}"#, "oops"] {
            assert_eq!(Entry::read(broken), None, "{broken}");
        }
    }

    #[test]
    fn debug_shows_nothing_of_it() {
        let entry = Entry::from_body(LUNCH.as_bytes()).unwrap();
        assert_eq!(format!("{entry:?} {:?}", Invalid::Fields(wrong("{}"))), "Entry(16 fields) Fields(13)");
    }
}
