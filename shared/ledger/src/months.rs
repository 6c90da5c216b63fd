//! The months that have a log.

use std::collections::BTreeSet;

use std::time::Duration;

use onetap_store::Ttl;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::given_ids::GivenIds;
use crate::{Moment, Month};

/// The value of `user:{user_id}:ledger`: which months have a log, and which `交易ID`s were given.
///
/// Every change of the ledger writes it in its own commit, or changes a last transaction in a month that is in it. So an
/// erasure, which removes the logs that it names and the last transaction, and a change that comes at the same time are never
/// both unaware of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Months {
    /// Months with a log.
    pub(crate) with_log: BTreeSet<Month>,
    /// Months whose log was cleared by an erasure. The store may still have records of it, which no reader sees.
    pub(crate) hidden: BTreeSet<Month>,
    /// The ids of all entries, also of those that were deleted or have expired: the chat never gives one of them again. `None`
    /// if version 0.2 wrote the list, which has only the latest ids.
    given_ids: Option<GivenIds>,
    /// The latest `交易ID` that the chat gave, and the latest that a `PUT` brought. They are written for version 0.2 only.
    last_id: Option<Moment>,
    last_put_id: Option<Moment>,
    /// The last transaction, if it was entered in a group or room, and which: it is never shown or changed in another.
    made_in: Option<MadeIn>,
    /// The longest retention with which any of the logs was written. The list lives for as long as that: otherwise the logs of
    /// a longer retention could outlive it, and no erasure would find them.
    pub(crate) retention: Option<Ttl>,
}

/// The `交易ID` of an entry, and a hash of the group or room in which it was entered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct MadeIn {
    #[serde(rename = "交易ID")]
    id: String,
    chat: String,
}

impl Months {
    /// Reads the stored value. What cannot be read counts as absent.
    pub fn read(stored: Option<&str>) -> Months {
        let object: Map<String, Value> =
            stored.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let months = |name: &str| {
            let texts = object.get(name).and_then(Value::as_array).into_iter().flatten();
            texts.filter_map(|month| Month::parse(month.as_str()?)).collect()
        };
        let id = |name: &str| object.get(name).and_then(Value::as_str).and_then(Moment::parse_id);
        let retention = object.get("retention_seconds").and_then(Value::as_u64);
        Months {
            with_log: months("months"),
            hidden: months("hidden"),
            given_ids: object.get("ids").and_then(GivenIds::read),
            last_id: id("last_id"),
            last_put_id: id("last_put_id"),
            made_in: object.get("made_in").and_then(|made_in| MadeIn::deserialize(made_in).ok()),
            retention: retention.map(|seconds| match seconds {
                0 => Ttl::Forever,
                seconds => Ttl::Of(Duration::from_secs(seconds).min(onetap_store::MAX_TTL)),
            }),
        }
    }

    /// The months that have a log, the latest first.
    pub fn latest_first(&self) -> impl Iterator<Item = Month> {
        self.with_log.iter().rev().copied()
    }

    /// Adds a month that has a log.
    pub(crate) fn add(&mut self, month: Month) {
        self.with_log.insert(month);
    }

    /// The ids that were given, as far as they are known at `now`.
    pub(crate) fn given_ids(&self, now: Moment) -> GivenIds {
        let latest = || GivenIds::up_to(self.last_id.into_iter().chain(self.last_put_id), now);
        self.given_ids.clone().unwrap_or_else(latest)
    }

    /// Keeps what is known at `now` of the ids that version 0.2 gave.
    pub(crate) fn keep_ids(&mut self, now: Moment) {
        self.given_ids = Some(self.given_ids(now));
    }

    /// Adds the id of an entry that another program wrote, known at `now`.
    pub(crate) fn add_foreign_id(&mut self, id: Moment, now: Moment) {
        self.given_ids.get_or_insert_default().add(id, now);
    }

    /// Adds the id of an entry of the chat, made at `now`.
    pub(crate) fn add_id(&mut self, id: Moment, now: Moment) {
        self.given_ids.get_or_insert_default().add(id, now);
        self.last_id = self.last_id.max(Some(id));
    }

    /// Adds the id of an entry that a `PUT` brought at `now`.
    pub(crate) fn add_put_id(&mut self, id: Moment, now: Moment) {
        self.given_ids.get_or_insert_default().add(id, now);
        self.last_put_id = self.last_put_id.max(Some(id));
    }

    /// Sets the chat in which the last transaction was entered; `None` for a chat with the bot alone, and for a `PUT`.
    pub(crate) fn set_chat(&mut self, id: &str, chat: Option<&str>) {
        self.made_in = chat.map(|chat| MadeIn { id: id.to_owned(), chat: chat.to_owned() });
    }

    /// Whether the last transaction has this id and was entered in this group or room.
    pub(crate) fn is_made_in(&self, id: &str, chat: &str) -> bool {
        self.made_in.as_ref().is_some_and(|made_in| made_in.id == id && made_in.chat == chat)
    }

    /// The months alone, for a ledger that is erased.
    pub(crate) fn without_entries(self) -> Months {
        Months { given_ids: None, last_id: None, last_put_id: None, made_in: None, ..self }
    }

    /// The TTL of the list, after a log was written with this retention.
    pub(crate) fn extend(&mut self, retention: Ttl) -> Ttl {
        let longest = match (self.retention, retention) {
            (Some(Ttl::Of(before)), Ttl::Of(now)) => Ttl::Of(before.max(now)),
            (Some(Ttl::Forever), _) | (_, Ttl::Forever) => Ttl::Forever,
            (None, now) => now,
        };
        *self.retention.insert(longest)
    }

    /// The JSON that is stored.
    pub fn to_json(&self) -> String {
        let texts = |months: &BTreeSet<Month>| months.iter().map(Month::to_string).collect::<Vec<_>>();
        let mut object = json!({"months": texts(&self.with_log)});
        if !self.hidden.is_empty() {
            object["hidden"] = texts(&self.hidden).into();
        }
        for (name, id) in [("last_id", self.last_id), ("last_put_id", self.last_put_id)] {
            if let Some(id) = id {
                object[name] = id.id().into();
            }
        }
        if let Some(given) = &self.given_ids {
            object["ids"] = given.to_json();
        }
        if let Some(MadeIn { id, chat }) = &self.made_in {
            object["made_in"] = json!({"交易ID": id, "chat": chat});
        }
        if let Some(retention) = self.retention {
            let seconds = retention.millis().map_or(0, |millis| millis.div_ceil(1000));
            object["retention_seconds"] = seconds.into();
        }
        object.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_written() {
        let text = r#"{"hidden":["2025-12"],"ids":[["20261117-120000","20261117-120000"]],"last_id":"20261117-120000","last_put_id":"20261118-000000","made_in":{"chat":"c0ffee","交易ID":"20261117-120000"},"months":["2026-09","2026-11"],"retention_seconds":86400}"#;
        let months = Months::read(Some(text));
        assert_eq!(months.to_json(), text);
        assert_eq!(Months::read(Some(&months.to_json())), months);
        assert_eq!(
            months.latest_first().map(|month| month.to_string()).collect::<Vec<_>>(),
            ["2026-11", "2026-09"]
        );
        assert_eq!(Months::default().to_json(), r#"{"months":[]}"#);
    }

    #[test]
    fn an_id_far_ahead_drags_no_other_along() {
        let now = Moment::parse_id("20261117-120000").unwrap();
        let next = |given: &str, put: &str| {
            let id = |text| Moment::parse_id(text).unwrap();
            let mut months = Months::default();
            months.add_id(id(given), now);
            months.add_put_id(id(put), now);
            Months::read(Some(&months.to_json())).given_ids(now).next(now).id()
        };
        assert_eq!(next("20261117-120001", "20261117-130000"), "20261117-130001");
        assert_eq!(next("20261117-120001", "99991231-235959"), "20261117-120002");
        assert_eq!(next("20991231-235959", "20991231-235959"), "20261117-120000");
    }

    #[test]
    fn of_a_list_of_version_0_2_every_id_may_have_been_given_up_to_the_latest_or_for_a_day() {
        let next = |now: &str, last: &str, put: &str| {
            let now = Moment::parse_id(now).unwrap();
            let stored = json!({"last_id": last, "last_put_id": put}).to_string();
            Months::read(Some(&stored)).given_ids(now).next(now).id()
        };
        assert_eq!(next("20261117-120000", "20261117-120001", ""), "20261117-120002");
        assert_eq!(next("20261117-120000", "20261117-120001", "20261117-130000"), "20261117-130001");
        // The id of a PUT that is far ahead hides those of the others.
        assert_eq!(next("20261117-120000", "20261117-120001", "20991231-235959"), "20261118-120001");
        assert_eq!(next("20261117-120000", "20991231-235959", ""), "20261118-120001");
    }

    #[test]
    fn the_list_lives_as_long_as_the_longest_log() {
        let day = |days: u64| Ttl::Of(Duration::from_secs(days * 86_400));
        let mut months = Months::default();
        for (now, expected) in
            [(day(30), day(30)), (day(90), day(90)), (day(7), day(90)), (Ttl::Forever, Ttl::Forever)]
        {
            assert_eq!(months.extend(now), expected);
            assert_eq!(Months::read(Some(&months.to_json())), months);
        }
        assert_eq!(months.extend(day(1)), Ttl::Forever);
    }

    #[test]
    fn what_cannot_be_read_counts_as_absent() {
        for text in ["", "[]", "{", r#"{"months":7,"last_id":"x"}"#, r#"{"months":["2026-13",7]}"#] {
            assert_eq!(Months::read(Some(text)), Months::default(), "{text}");
        }
    }
}
