//! Parsers that need no store: what they take they write down again in the same words.

use onetap_config::Secret;
use onetap_ledger::chat::{self, Habits, PendingByChat, Sentence};
use onetap_ledger::{Entry, LedgerRecord, Moment, Month, Months, Patch, Statement};
use onetap_line::WebhookBody;
use onetap_line::signature::{Verdict, sign, verify};
use serde_json::{Value, json};

use super::files;

/// Seed 002's entry, with an amount that a binary float would not keep.
pub(super) const LUNCH: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":100.10,"匯率":1.0,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

const SECRET: &str = "channel-secret";
const BODY: &[u8] = br#"{"events":[]}"#;

/// A signature is genuine if it is the very text that LINE would send, and by no other spelling of the same bytes.
pub fn signature_header(bytes: &[u8]) {
    let secrets = [Secret::new("another"), Secret::new(SECRET)];
    let header = std::str::from_utf8(bytes).ok();
    let expected = match header {
        None => Verdict::Missing,
        Some(text) if secrets.iter().any(|secret| sign(secret, BODY) == text) => Verdict::Genuine,
        Some(_) => Verdict::Wrong,
    };
    assert_eq!(verify(&secrets, BODY, header), expected);
}

pub(super) fn signatures() -> Vec<Vec<u8>> {
    [sign(&Secret::new(SECRET), BODY), sign(&Secret::new("third"), BODY), String::new(), "AAAA".to_owned()]
        .map(String::into_bytes)
        .into()
}

/// An entry or an edit that is taken is written down so that it is read as the same.
pub fn entry_json(bytes: &[u8]) {
    if let Ok(entry) = Entry::from_body(bytes) {
        let json = entry.to_json();
        assert!(Entry::from_body(json.as_bytes()) == Ok(entry.clone()), "taken, written, and then another");
        assert!(Entry::read(&json).as_ref() == Some(&entry), "taken, and not readable");
        assert!(Moment::parse_id(entry.id()).is_some(), "an id that is no moment");
    }
    if let Some(entry) = std::str::from_utf8(bytes).ok().and_then(Entry::read) {
        assert!(Entry::read(&entry.to_json()) == Some(entry), "read, written, and then another");
    }
    if let Ok(edit) = Patch::from_body(bytes) {
        let base = Entry::read(LUNCH).unwrap();
        assert!(edit.fields().next().is_some(), "an edit of nothing");
        if let Ok(edited) = edit.apply(&base) {
            assert_eq!(edited.id(), base.id());
            assert!(
                Entry::from_body(edited.to_json().as_bytes()) == Ok(edited),
                "edited into what is no entry"
            );
        }
    }
}

pub(super) fn entries() -> Vec<Vec<u8>> {
    let edit = r#"{"原幣金額":150.00,"附註":"改"}"#;
    let bodies = files("events/edit-last-transaction", ".json").into_iter().filter_map(|event| {
        let event: serde_json::Value = serde_json::from_slice(&event).ok()?;
        Some(event["body"].as_str()?.as_bytes().to_vec())
    });
    [LUNCH, edit].map(|text| text.as_bytes().to_vec()).into_iter().chain(bodies).collect()
}

/// Whatever is in a month's log hides no entry but the one that it names, and the month is still JSON.
pub fn ledger_record(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lunch = Entry::read(LUNCH).unwrap();
    let put = LedgerRecord::Put(lunch.clone()).to_json();
    let month = Month::parse("2025-11").unwrap();
    let statement = Statement::fold(month, [put.as_str(), &text, "{}"]);
    let record = LedgerRecord::read(&text);
    if record.as_ref().is_none_or(|record| record.id() != lunch.id()) {
        assert!(statement.entries().any(|entry| *entry == lunch), "the entry is hidden");
    }
    if let Some(record) = record {
        assert!(LedgerRecord::read(&record.to_json()) == Some(record), "read, written, and then another");
    } else {
        assert_eq!((statement.count(), statement.unreadable()), (1, 2));
    }
    let json: serde_json::Value = serde_json::from_str(&statement.to_json()).expect("the month is JSON");
    assert_eq!(json["count"].as_u64(), json["transactions"].as_array().map(|all| all.len() as u64));
    assert!(statement.to_csv().ends_with("\r\n"));
}

pub(super) fn ledger_records() -> Vec<Vec<u8>> {
    let put = format!(r#"{{"op":"put","tx":{}}}"#, LUNCH.replace("143000", "183000"));
    [put.as_str(), &put.replace("午餐", "=1+1"), r#"{"op":"delete","交易ID":"20251129-143000"}"#, LUNCH]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

/// What a sentence notes are entries that the other way in would take too, and in every chat it has a plan.
pub fn chat_sentence(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let now = Moment::from_unix(1_764_397_800).unwrap();
    match chat::parse(&text, now, &Habits::default()) {
        Sentence::Note(note) => {
            let entries = note.entries(Entry::read(LUNCH).as_ref(), &Months::default());
            assert!(!entries.is_empty(), "a note of nothing");
            for entry in entries {
                assert!(Entry::from_body(entry.to_json().as_bytes()) == Ok(entry), "noted, and no entry");
            }
        }
        Sentence::Edit(edit, _) => {
            let edited = edit.apply(&Entry::read(LUNCH).unwrap());
            let is_entry = |entry: Entry| Entry::from_body(entry.to_json().as_bytes()) == Ok(entry);
            // Another currency is refused without its rate, which is asked for.
            assert!(edited.map_or_else(|wrong| edit.currency_without_rate(&wrong).is_some(), is_entry));
        }
        Sentence::EditProblem(problem) | Sentence::NoteProblem(problem) => assert!(!problem.0.is_empty()),
        Sentence::HalfSaid(pending, problem) => {
            assert!(!problem.0.is_empty());
            let mut all = PendingByChat::default();
            all.put(&pending, None, now);
            let stored = all.get(None, &Habits::default(), now);
            assert_eq!(stored, Some(pending), "kept, and not the same");
        }
        Sentence::Delete(_) | Sentence::Recall(_) | Sentence::SetPayment(_) | Sentence::Other => {}
    }
    let latitude = f64::from_bits(bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)));
    for chat in ["user", "group", "room", "planet"] {
        let event = |name: &str, what: Value| {
            json!({
                "type": name, name: what, "replyToken": "token", "source": { "type": chat, "userId": "U1" },
            })
        };
        let body = json!({ "events": [
            event("message", json!({ "type": "text", "text": text })),
            event(
                "message",
                json!({ "type": "location", "address": text, "latitude": latitude, "longitude": 121.5 }),
            ),
            event("postback", json!({ "data": text })),
        ] });
        for event in WebhookBody::parse(body.to_string().as_bytes()).unwrap().events {
            let _ = webhook::ask::ask(&onetap_bot::Incoming::new(&event, now.unix() * 1000));
        }
    }
}

pub(super) fn sentences() -> Vec<Vec<u8>> {
    [
        "午餐 120 信用卡",
        "昨天 計程車 250 現金",
        "早餐 50、午餐 120、飲料 45 現金",
        "書 12.5 美金 匯率 31.5 信用卡",
        "上週五 房租 2萬 5000 轉帳 分類 居住",
        "停車 30 分鐘 四十元 用悠遊卡付的",
        "把午餐改成 150 現金",
        "打錯了，是 280",
        "飲食花了多少",
        "修改金額 150",
        "上一筆分類改教育",
        "修改日期 2025-11-28",
        "刪除上一筆",
        "刪除我的資料",
        "設定住家 永和區",
        "信義區",
        "11/28 晚餐 1,250元 悠遊卡",
        "臺北市中正區重慶南路",
        "action=weather&type=home",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
