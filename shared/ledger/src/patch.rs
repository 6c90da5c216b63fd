//! New values for some fields of an entry. Applying them twice is the same as applying them once.

use std::fmt;

use crate::currency::HOME;
use crate::entry::check_fields;
use crate::{Entry, Field, Invalid, Reason};

/// Why an edit of the currency is refused.
const NEEDS_RATE: Reason = "不可省略：原幣別改為 TWD 以外的幣別時，必須一併提供";

/// New values for some fields of an entry. `Debug` shows which fields, not what.
#[derive(Clone, PartialEq, Eq)]
pub struct Patch {
    fields: Vec<(Field, String)>,
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Patch").field(&self.fields().collect::<Vec<_>>()).finish()
    }
}

impl Patch {
    /// Reads the body of a request: at least one field, each known and valid. Every wrong field is reported.
    pub fn from_body(body: &[u8]) -> Result<Patch, Invalid> {
        let (good, mut wrong) = check_fields(body)?;
        let mut fields = Vec::new();
        for (name, json) in good {
            match Field::named(&name) {
                Some(field) => fields.push((field, json)),
                None => wrong.push((name, "是未知的欄位")),
            }
        }
        if fields.is_empty() || !wrong.is_empty() {
            return Err(Invalid::Fields(wrong));
        }
        Ok(Patch { fields })
    }

    /// One field, from the JSON of its new value.
    pub fn one(field: Field, json: &str) -> Result<Patch, Reason> {
        Ok(Patch { fields: vec![(field, field.check(json)?)] })
    }

    /// Fields with the JSON that [`Field::check`] has returned; `None` without a field.
    pub(crate) fn of(fields: Vec<(Field, String)>) -> Option<Patch> {
        (!fields.is_empty()).then_some(Patch { fields })
    }

    /// The same with one field more, from the JSON of its new value.
    pub fn and(mut self, field: Field, json: &str) -> Result<Patch, Reason> {
        self.fields.push((field, field.check(json)?));
        Ok(self)
    }

    /// The fields that it sets.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        self.fields.iter().map(|(field, _)| *field)
    }

    /// `base` with these fields. `交易ID` and `intent` may be named, but not changed.
    ///
    /// A rate belongs to its currency: changed to another than TWD, `原幣別` needs a `匯率` beside it; changed to TWD without one, the
    /// rate is 1. A rate that is named is taken as it is, as in a whole entry.
    pub fn apply(&self, base: &Entry) -> Result<Entry, Invalid> {
        let changes = |(field, json): &&(Field, String)| !same(base.json(*field), json);
        let mut wrong: Vec<_> = self
            .fields
            .iter()
            .filter(|(field, _)| field.is_fixed())
            .filter(changes)
            .map(|(field, _)| (field.name().to_owned(), "不可修改"))
            .collect();
        let currency = self.fields.iter().find(|(field, _)| *field == Field::Currency).filter(changes);
        let rate_is_named = self.fields().any(|field| field == Field::Rate);
        let to_home = currency.is_some_and(|(_, json)| *json == format!("\"{HOME}\""));
        if currency.is_some() && !to_home && !rate_is_named {
            wrong.push((Field::Rate.name().to_owned(), NEEDS_RATE));
        }
        if !wrong.is_empty() {
            return Err(Invalid::Fields(wrong));
        }
        let edited = self.fields.iter().fold(base.clone(), |entry, (field, json)| entry.with(*field, json));
        Ok(if to_home && !rate_is_named { edited.with(Field::Rate, "1") } else { edited })
    }

    /// The currency for which this patch needs a rate, if `invalid` says so.
    pub fn currency_without_rate(&self, invalid: &Invalid) -> Option<String> {
        let Invalid::Fields(wrong) = invalid else { return None };
        wrong.iter().find(|(_, reason)| *reason == NEEDS_RATE)?;
        let (_, json) = self.fields.iter().find(|(field, _)| *field == Field::Currency)?;
        serde_json::from_str(json).ok()
    }
}

/// Whether two JSON strings are the same text, however they are escaped.
fn same(there: Option<&str>, json: &str) -> bool {
    let text = |json: &str| serde_json::from_str::<String>(json).ok();
    there.is_some_and(|there| text(there) == text(json))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::LUNCH;

    fn lunch() -> Entry {
        Entry::read(LUNCH).unwrap()
    }

    fn patch(body: &str) -> Result<Patch, Invalid> {
        Patch::from_body(body.as_bytes())
    }

    fn wrong<T: fmt::Debug>(result: Result<T, Invalid>) -> Vec<(String, Reason)> {
        match result {
            Err(Invalid::Fields(wrong)) => wrong,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_edit_changes_what_it_names_and_nothing_else() {
        let patch = patch(r#"{"原幣金額":0.30000004,"分類":"教育"}"#).unwrap();
        let expected = LUNCH.replace("100.10", "0.30000004").replace("飲食", "教育");
        assert_eq!(patch.apply(&lunch()).unwrap().to_json(), expected);
    }

    #[test]
    fn an_edit_applied_twice_is_applied_once() {
        let patch = patch(r#"{"品項":"工作午餐","附註":"x"}"#).unwrap();
        let once = patch.apply(&lunch()).unwrap();
        assert_eq!(patch.apply(&once).unwrap(), once);
    }

    #[test]
    fn a_field_that_was_missing_is_added() {
        let bare = Entry::read(r#"{"交易ID":"20251129-140000","品項":"午餐"}"#).unwrap();
        let edited = patch(r#"{"分類":"飲食"}"#).unwrap().apply(&bare).unwrap();
        assert_eq!(edited.to_json(), r#"{"交易ID":"20251129-140000","品項":"午餐","分類":"飲食"}"#);
    }

    #[test]
    fn unknown_fields_wrong_values_and_nothing_at_all_are_refused() {
        let all = wrong(patch(r#"{"新欄位":1,"原幣金額":"多","品項":"好"}"#));
        assert_eq!(all, [("原幣金額".to_owned(), "必須是數字"), ("新欄位".to_owned(), "是未知的欄位")]);
        assert_eq!(wrong(patch("{}")), []);
    }

    #[test]
    fn what_says_which_entry_it_is_may_be_named_and_not_changed() {
        let same = patch(r#"{"交易ID":"20251129-143000","intent":"bookkeeping","品項":"晚餐"}"#).unwrap();
        assert_eq!(same.apply(&lunch()).unwrap().get(Field::Item).unwrap(), "晚餐");
        let other = patch(r#"{"交易ID":"20251129-143001","品項":"晚餐"}"#).unwrap();
        assert_eq!(wrong(other.apply(&lunch())), [("交易ID".to_owned(), "不可修改")]);
        let foreign = Entry::read(&LUNCH.replace("bookkeeping", "other")).unwrap();
        assert_eq!(wrong(same.apply(&foreign)), [("intent".to_owned(), "不可修改")]);
    }

    #[test]
    fn another_currency_needs_its_rate_and_twd_has_the_rate_1() {
        let edited = |base: &Entry, body: &str| patch(body).unwrap().apply(base);
        let needs = vec![("匯率".to_owned(), NEEDS_RATE)];
        assert_eq!(wrong(edited(&lunch(), r#"{"原幣別":"USD"}"#)), needs);
        let dollars = edited(&lunch(), r#"{"原幣別":"USD","匯率":31.5}"#).unwrap();
        assert_eq!(dollars.to_json(), LUNCH.replace(r#""TWD""#, r#""USD""#).replace("1.0,", "31.5,"));
        // The currency stays the same: no rate is needed.
        assert_eq!(edited(&dollars, r#"{"原幣別":"USD"}"#).unwrap(), dollars);
        assert_eq!(wrong(edited(&dollars, r#"{"原幣別":"JPY","品項":"拉麵"}"#)), needs);
        let back = edited(&dollars, r#"{"原幣別":"TWD"}"#).unwrap();
        assert_eq!(back.to_json(), LUNCH.replace("1.0,", "1,"));
        // A rate that is named is taken as it is.
        assert_eq!(edited(&lunch(), r#"{"匯率":31.5}"#).unwrap().get(Field::Rate).unwrap(), "31.5");
        let named = edited(&dollars, r#"{"原幣別":"TWD","匯率":1.00}"#).unwrap();
        assert_eq!(named.get(Field::Rate).unwrap(), "1.00");
        // Of an entry of another writer neither may be known.
        let bare = Entry::read(r#"{"交易ID":"x"}"#).unwrap();
        assert_eq!(wrong(edited(&bare, r#"{"原幣別":"USD"}"#)), needs);
        assert_eq!(edited(&bare, r#"{"原幣別":"TWD"}"#).unwrap().get(Field::Rate).unwrap(), "1");
    }

    #[test]
    fn an_edit_checks_the_fields_it_names_and_not_the_others() {
        let odd = Entry::read(r#"{"交易ID":"x","原幣金額":"很多","日期":7}"#).unwrap();
        let edited = patch(r#"{"品項":"午餐"}"#).unwrap().apply(&odd).unwrap();
        assert_eq!(edited.to_json(), r#"{"交易ID":"x","原幣金額":"很多","日期":7,"品項":"午餐"}"#);
    }

    #[test]
    fn debug_shows_fields_and_no_values() {
        assert_eq!(format!("{:?}", patch(r#"{"原幣金額":150}"#).unwrap()), "Patch([Amount])");
    }
}
