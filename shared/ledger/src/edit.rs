//! An edit: a set of fields, so that applying it twice is applying it once.

use std::fmt;

use crate::entry::checked;
use crate::{Entry, Field, Invalid, Reason};

/// New values for some fields of an entry. `Debug` shows which fields, not what.
#[derive(Clone, PartialEq, Eq)]
pub struct Edit {
    fields: Vec<(Field, String)>,
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Edit").field(&self.fields().collect::<Vec<_>>()).finish()
    }
}

impl Edit {
    /// The fields that somebody sends: at least one, each of them known and valid, and every wrong one reported.
    pub fn from_body(body: &[u8]) -> Result<Edit, Invalid> {
        let (good, mut wrong) = checked(body)?;
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
        Ok(Edit { fields })
    }

    /// One field, from the JSON of its new value.
    pub fn one(field: Field, json: &str) -> Result<Edit, Reason> {
        Ok(Edit { fields: vec![(field, field.check(json)?)] })
    }

    /// Which fields it sets.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        self.fields.iter().map(|(field, _)| *field)
    }

    /// `base` with these fields. What says which entry it is may be named, but not changed.
    pub fn apply(&self, base: &Entry) -> Result<Entry, Invalid> {
        let changes = |(field, json): &&(Field, String)| field.is_fixed() && !same(base.json(*field), json);
        let wrong: Vec<_> = self
            .fields
            .iter()
            .filter(changes)
            .map(|(field, _)| (field.name().to_owned(), "不可修改"))
            .collect();
        if !wrong.is_empty() {
            return Err(Invalid::Fields(wrong));
        }
        Ok(self.fields.iter().fold(base.clone(), |entry, (field, json)| entry.with(*field, json)))
    }
}

/// Whether two spellings of a string are one text.
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

    fn edit(body: &str) -> Result<Edit, Invalid> {
        Edit::from_body(body.as_bytes())
    }

    fn wrong<T: fmt::Debug>(result: Result<T, Invalid>) -> Vec<(String, Reason)> {
        match result {
            Err(Invalid::Fields(wrong)) => wrong,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_edit_changes_what_it_names_and_nothing_else() {
        let edit = edit(r#"{"原幣金額":0.30000004,"分類":"教育"}"#).unwrap();
        let expected = LUNCH.replace("100.10", "0.30000004").replace("飲食", "教育");
        assert_eq!(edit.apply(&lunch()).unwrap().to_json(), expected);
    }

    #[test]
    fn an_edit_applied_twice_is_applied_once() {
        let edit = edit(r#"{"品項":"工作午餐","附註":"x"}"#).unwrap();
        let once = edit.apply(&lunch()).unwrap();
        assert_eq!(edit.apply(&once).unwrap(), once);
    }

    #[test]
    fn a_field_that_was_missing_is_added() {
        let bare = Entry::read(r#"{"交易ID":"20251129-140000","品項":"午餐"}"#).unwrap();
        let edited = edit(r#"{"分類":"飲食"}"#).unwrap().apply(&bare).unwrap();
        assert_eq!(edited.to_json(), r#"{"交易ID":"20251129-140000","品項":"午餐","分類":"飲食"}"#);
    }

    #[test]
    fn unknown_fields_wrong_values_and_nothing_at_all_are_refused() {
        let all = wrong(edit(r#"{"新欄位":1,"原幣金額":"多","品項":"好"}"#));
        assert_eq!(all, [("原幣金額".to_owned(), "必須是數字"), ("新欄位".to_owned(), "是未知的欄位")]);
        assert_eq!(wrong(edit("{}")), []);
    }

    #[test]
    fn what_says_which_entry_it_is_may_be_named_and_not_changed() {
        let same = edit(r#"{"交易ID":"20251129-143000","intent":"bookkeeping","品項":"晚餐"}"#).unwrap();
        assert_eq!(same.apply(&lunch()).unwrap().get(Field::Item).unwrap(), "晚餐");
        let other = edit(r#"{"交易ID":"20251129-143001","品項":"晚餐"}"#).unwrap();
        assert_eq!(wrong(other.apply(&lunch())), [("交易ID".to_owned(), "不可修改")]);
        let foreign = Entry::read(&LUNCH.replace("bookkeeping", "other")).unwrap();
        assert_eq!(wrong(same.apply(&foreign)), [("intent".to_owned(), "不可修改")]);
    }

    #[test]
    fn an_edit_checks_the_fields_it_names_and_not_the_others() {
        let odd = Entry::read(r#"{"交易ID":"x","原幣金額":"很多","日期":7}"#).unwrap();
        let edited = edit(r#"{"品項":"午餐"}"#).unwrap().apply(&odd).unwrap();
        assert_eq!(edited.to_json(), r#"{"交易ID":"x","原幣金額":"很多","日期":7,"品項":"午餐"}"#);
    }

    #[test]
    fn debug_shows_fields_and_no_values() {
        assert_eq!(format!("{:?}", edit(r#"{"原幣金額":150}"#).unwrap()), "Edit([Amount])");
    }
}
