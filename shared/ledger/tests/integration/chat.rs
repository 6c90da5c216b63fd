//! What a sentence does, sentence by sentence.

use std::time::Duration;

use onetap_ledger::chat::{self, Answer, Habits, Pending, PendingByChat, Problem, Recall, Sentence};
use onetap_ledger::{Attempt, Change, Entry, Field, Moment, Month, Months, texts};

/// Seed 002's entry.
const LUNCH: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":100.0,"匯率":1.0,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;

/// 2025-11-29 14:30:00 in Taipei, a Saturday.
fn now() -> Moment {
    Moment::from_unix(1_764_397_800).unwrap()
}

/// What is stored; nothing if it cannot be read.
fn stored(text: &str) -> PendingByChat {
    serde_json::from_str(text).unwrap_or_default()
}

/// What another chat finds of what was half said in `said_in`, once it is stored.
fn kept(pending: &Pending, said_in: Option<&str>, chat: Option<&str>) -> Option<Pending> {
    let mut all = PendingByChat::default();
    all.put(pending, said_in, now());
    stored(&serde_json::to_string(&all).unwrap()).get(chat, &Habits::default(), now())
}

/// What a text means to a user without habits.
fn parse(text: &str, now: Moment) -> Sentence {
    chat::parse(text, now, &Habits::default())
}

/// What becomes of a text, in a line or two.
fn says(text: &str) -> String {
    match parse(text, now()) {
        Sentence::Delete(this) => {
            let mut attempt = Attempt::new(Change::Delete, None).meant_for(this);
            attempt
                .step(Some(LUNCH), &Months::default())
                .map_or("delete another".to_owned(), |_| "delete".to_owned())
        }
        Sentence::SetPayment(payment) => format!("pay {payment:?}"),
        Sentence::Edit(edit, this) => {
            let change = Change::Edit(edit.clone());
            match Attempt::new(change.clone(), None).meant_for(this).step(Some(LUNCH), &Months::default()) {
                Ok(step) => texts::edited(&edit, &step).replace("修改成功\n• ", "").replace("\n• ", " | "),
                Err(failure) => {
                    format!("edit? {}", texts::chat_failure(&failure, &change, Duration::from_secs(3600)))
                }
            }
        }
        Sentence::Note(note) => noted(&note),
        Sentence::EditProblem(Problem(text)) => format!("edit? {text}"),
        Sentence::Recall(recall) => format!("{recall:?}"),
        Sentence::HalfSaid(_, Problem(text)) | Sentence::NoteProblem(Problem(text)) => {
            format!("note? {}", text.replace("，例如：午餐 120 信用卡", ""))
        }
        Sentence::Other => "-".to_owned(),
    }
}

fn noted(note: &chat::Note) -> String {
    texts::noted(note, &note.entries(None, &Months::default()))
        .replace("已記帳：\n• ", "")
        .replace("\n• ", " | ")
}

fn each_says(table: &[(&str, &str)]) {
    let wrong: Vec<String> = table
        .iter()
        .filter(|(text, expected)| says(text) != *expected)
        .map(|(text, expected)| format!("{text}\n   is {}\n  not {expected}", says(text)))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

#[test]
fn a_sentence_with_an_item_an_amount_and_a_payment_is_noted() {
    each_says(&[
        ("午餐 120 信用卡", "午餐 120 信用卡（飲食）"),
        ("昨天 計程車 250 現金", "2025-11-28 計程車 250 現金（交通）"),
        ("120 午餐 信用卡", "午餐 120 信用卡（飲食）"),
        ("信用卡 120 午餐", "午餐 120 信用卡（飲食）"),
        ("現金 早餐 65", "早餐 65 現金（飲食）"),
        ("早餐 現金 65", "早餐 65 現金（飲食）"),
        ("午餐120信用卡", "午餐 120 信用卡（飲食）"),
        ("午餐120元現金", "午餐 120 現金（飲食）"),
        ("午餐 120元 現金", "午餐 120 現金（飲食）"),
        ("午餐 120 元 現金", "午餐 120 現金（飲食）"),
        ("午餐 $120 現金", "午餐 120 現金（飲食）"),
        ("午餐 NT$1,200 刷卡", "午餐 1200 信用卡（飲食）"),
        ("房租 18,000 轉帳", "房租 18000 轉帳（居住）"),
        ("咖啡 45.5 悠遊卡", "咖啡 45.5 悠遊卡（飲食）"),
        ("咖啡 45.50 悠遊卡", "咖啡 45.50 悠遊卡（飲食）"),
        ("　咖啡　４５　現金　", "咖啡 45 現金（飲食）"),
        ("牛肉麵 大碗 180 LINE Pay", "牛肉麵 大碗 180 LINE Pay（飲食）"),
        ("飲料 60 linepay", "飲料 60 LINE Pay（飲食）"),
        ("便當 100 街口支付", "便當 100 街口（飲食）"),
        ("衣服 1280 國泰信用卡", "衣服 1280 國泰信用卡（服飾）"),
        ("早餐現金 65", "早餐 65 現金（飲食）"),
        ("生日卡 50 現金", "生日卡 50 現金（其他）"),
        ("悠遊卡 500 現金", "悠遊卡 500 現金（其他）"),
        ("7-11 咖啡 45 現金", "7-11 咖啡 45 現金（飲食）"),
        ("85度C 蛋糕 120 信用卡", "85度C 蛋糕 120 信用卡（飲食）"),
        ("iPhone 15 30000元 信用卡", "iPhone 15 30000 信用卡（通訊）"),
        ("買 2 杯 咖啡 90 元 現金", "2 杯 咖啡 90 現金（飲食）"),
        ("免費試吃 0 現金", "免費試吃 0 現金（其他）"),
    ]);
}

#[test]
fn a_day_may_be_said_in_many_ways() {
    each_says(&[
        ("今天 午餐 120 現金", "午餐 120 現金（飲食）"),
        ("前天 電影 330 信用卡", "2025-11-27 電影 330 信用卡（娛樂）"),
        ("昨天計程車 250 現金", "2025-11-28 計程車 250 現金（交通）"),
        ("昨天120元午餐 現金", "2025-11-28 午餐 120 現金（飲食）"),
        ("11/3 午餐 120 現金", "2025-11-03 午餐 120 現金（飲食）"),
        ("12/31 跨年 500 現金", "2024-12-31 跨年 500 現金（其他）"),
        ("2/29 午餐 120 現金", "2024-02-29 午餐 120 現金（飲食）"),
        ("2025-10-01 月票 1200 信用卡", "2025-10-01 月票 1200 信用卡（交通）"),
        ("2025/1/5 月票 1200 信用卡", "2025-01-05 月票 1200 信用卡（交通）"),
        ("剛剛 計程車 250 現金", "計程車 250 現金（交通）"),
        ("2/30 午餐 120 現金", "note? 「午餐」日期不存在"),
        ("2/30，午餐 120 現金", "note? 「午餐」日期不存在"),
        ("13/1 午餐 120 現金", "note? 「午餐」日期不存在"),
    ]);
}

#[test]
fn another_currency_needs_its_rate() {
    each_says(&[
        ("書 12.5 美金 匯率 31.5 信用卡", "書 12.5 USD（匯率 31.5） 信用卡（教育）"),
        ("書 USD 12.5 匯率31.5 信用卡", "書 12.5 USD（匯率 31.5） 信用卡（教育）"),
        ("書 12.5USD 信用卡 匯率：31.5", "書 12.5 USD（匯率 31.5） 信用卡（教育）"),
        ("拉麵 980日圓 匯率 0.21 現金", "拉麵 980 JPY（匯率 0.21） 現金（飲食）"),
        ("門票 US$20 匯率 32 刷卡", "門票 20 USD（匯率 32） 信用卡（娛樂）"),
        ("書 12.5 美金 信用卡", "note? 「書」12.5 USD 的匯率是多少？（1 USD 等於多少台幣，例如：31.5）"),
        ("書 12.5 美金 匯率 0 信用卡", "note? 「書」匯率必須大於 0"),
        ("書 12.5 信用卡 匯率 31.5", "note? 「書」12.5 元是哪一種幣別？"),
        ("書 12.5 美金 匯率 信用卡", "note? 「書」匯率必須是數字"),
    ]);
}

#[test]
fn several_things_share_what_one_of_them_says() {
    each_says(&[
        (
            "早餐 50、午餐 120、飲料 45 現金",
            "早餐 50 現金（飲食） | 午餐 120 現金（飲食） | 飲料 45 現金（飲食）",
        ),
        ("早餐 50 現金，午餐 120 信用卡", "早餐 50 現金（飲食） | 午餐 120 信用卡（飲食）"),
        ("昨天 早餐 50；午餐 120 現金", "2025-11-28 早餐 50 現金（飲食） | 2025-11-28 午餐 120 現金（飲食）"),
        ("早餐 50\n午餐 120\n現金", "早餐 50 現金（飲食） | 午餐 120 現金（飲食）"),
        ("房租 18,000, 水費 350 轉帳", "房租 18000 轉帳（居住） | 水費 350 轉帳（居住）"),
        ("午餐 120，信用卡", "午餐 120 信用卡（飲食）"),
        (
            "書 10 美金、午餐 120 信用卡 匯率 31.5",
            "書 10 USD（匯率 31.5） 信用卡（教育） | 午餐 120 信用卡（飲食）",
        ),
        ("牛奶、麵包 120 現金", "牛奶、麵包 120 現金（飲食）"),
        ("早餐 50、午餐 120", "note? 「早餐」50 元的付款方式是什麼？\n「午餐」120 元的付款方式是什麼？"),
    ]);
}

#[test]
fn what_is_missing_is_said() {
    each_says(&[
        ("午餐 120", "note? 「午餐」120 元的付款方式是什麼？"),
        ("120 信用卡", "note? 120 元是什麼品項？"),
        ("120", "note? 120 元是什麼品項？的付款方式是什麼？"),
        ("午餐 -120 現金", "note? 「午餐」金額不可為負數"),
        ("午餐 1234567890123456789 現金", "note? 「午餐」金額最多 18 位整數與 8 位小數"),
        ("午餐 0.123456789 現金", "note? 「午餐」金額最多 18 位整數與 8 位小數"),
        ("午餐 120 150 現金", "note? 「午餐」金額不只一個，請在金額後加上「元」，或一筆一筆輸入"),
        ("iPhone 15 30000 信用卡", "iPhone 15 30000 信用卡（通訊）"),
    ]);
}

#[test]
fn an_edit_changes_one_field() {
    each_says(&[
        ("修改金額 150", "原幣金額：100.0 → 150"),
        ("上一筆分類改教育", "分類：飲食 → 教育"),
        ("修改金額為150", "原幣金額：100.0 → 150"),
        ("修改金額成 150", "原幣金額：100.0 → 150"),
        ("修改 金額 150 元", "原幣金額：100.0 → 150"),
        ("修改金額 $1,500", "原幣金額：100.0 → 1500"),
        ("修改原幣金額 99.90", "原幣金額：100.0 → 99.90"),
        ("更改品項為工作午餐", "品項：午餐 → 工作午餐"),
        ("改品項 工作午餐", "品項：午餐 → 工作午餐"),
        ("更新付款方式 現金", "付款方式：信用卡 → 現金"),
        ("修改上一筆的金額為 150", "原幣金額：100.0 → 150"),
        ("上一筆 金額 改成 150", "原幣金額：100.0 → 150"),
        ("前一筆的品項改為晚餐", "品項：午餐 → 晚餐"),
        ("最後一筆專案改旅遊", "專案：日常 → 旅遊"),
        ("剛剛的金額改150", "原幣金額：100.0 → 150"),
        ("剛剛那筆改金額150", "原幣金額：100.0 → 150"),
        ("請幫我把金額改成150", "原幣金額：100.0 → 150"),
        ("金額改 150", "原幣金額：100.0 → 150"),
        ("修改幣別 台幣", "原幣別：TWD → TWD"),
        ("修改匯率 31.5", "匯率：1.0 → 31.5"),
        ("修改明細 和同事聚餐", "明細說明：（空） → 和同事聚餐"),
        ("修改附註：下次再約 時間未定", "附註：（空） → 下次再約 時間未定"),
        ("修改日期 昨天", "日期：2025-11-29 → 2025-11-28"),
        ("日期改成 11/3", "日期：2025-11-29 → 2025-11-03"),
        ("修改時間 9:05", "時間：14:30 → 09:05"),
        ("時間改為 18：30", "時間：14:30 → 18:30"),
        ("代墊狀態改代墊", "代墊狀態：無 → 代墊"),
        ("修改分類 成人用品", "分類：飲食 → 成人用品"),
        ("修改分類成教育", "分類：飲食 → 教育"),
        ("分類改 成人用品", "分類：飲食 → 成人用品"),
        ("修改附註 分類", "附註：（空） → 分類"),
        ("修改品項 時間管理課", "品項：午餐 → 時間管理課"),
        ("請 修改 上一筆 的 專案 為 旅遊", "專案：日常 → 旅遊"),
        ("修改金額１５０", "原幣金額：100.0 → 150"),
    ]);
}

#[test]
fn another_currency_is_changed_to_with_its_rate_only() {
    let dollars = "原幣別：TWD → USD | 匯率：1.0 → 31.5";
    each_says(&[
        ("修改幣別 美金", "edit? 匯率是多少？1 USD 等於多少台幣，例如：匯率 31.5"),
        ("幣別改成JPY", "edit? 匯率是多少？1 JPY 等於多少台幣，例如：匯率 0.21"),
        ("修改幣別 USD 匯率 31.5", dollars),
        ("修改幣別 JPY 匯率 0.21", "原幣別：TWD → JPY | 匯率：1.0 → 0.21"),
        ("修改幣別 美金，匯率 31.5", dollars),
        ("幣別改成美金、匯率改成31.5", dollars),
        ("上一筆的幣別改美元和匯率改31.5", dollars),
        ("修改匯率 31.5 幣別 美金", dollars),
        ("修改匯率為31.5，原幣別為USD", dollars),
        ("修改幣別 美金 匯率 0", "edit? 匯率必須大於 0"),
        ("修改幣別 貝殼 匯率 31.5", "edit? 幣別必須是 ISO 4217 幣別代碼"),
        ("修改幣別 美金 匯率", "edit? 一次只允許更新一個欄位"),
        ("修改幣別和匯率", "edit? 一次只允許更新一個欄位"),
        ("修改幣別 美金 匯率 31.5 金額 12", "原幣別：TWD → USD | 匯率：1.0 → 31.5 | 原幣金額：100.0 → 12"),
    ]);
}

#[test]
fn an_edit_that_cannot_be_made_says_why() {
    each_says(&[
        ("修改", "edit? 缺少欄位名稱或新值"),
        ("修改金額", "edit? 缺少欄位名稱或新值"),
        ("修改上一筆", "edit? 缺少欄位名稱或新值"),
        ("修改 150", "原幣金額：100.0 → 150"),
        ("上一筆改150", "原幣金額：100.0 → 150"),
        ("金額改", "edit? 缺少欄位名稱或新值"),
        ("更新顏色 紅", "edit? 缺少欄位名稱或新值"),
        ("修改金額 150 分類 教育", "原幣金額：100.0 → 150 | 分類：飲食 → 教育"),
        ("修改金額150，分類改教育", "原幣金額：100.0 → 150 | 分類：飲食 → 教育"),
        ("修改金額為150、品項為晚餐", "原幣金額：100.0 → 150 | 品項：午餐 → 晚餐"),
        ("修改金額和分類", "edit? 一次只允許更新一個欄位"),
        ("金額和分類改成 150 教育", "edit? 一次只允許更新一個欄位"),
        ("修改金額 -50", "edit? 金額不可為負數"),
        ("金額改成-0.01", "edit? 金額不可為負數"),
        ("修改金額 很多", "edit? 金額必須是數字"),
        ("修改匯率 0", "edit? 匯率必須大於 0"),
        ("修改日期 2025-02-30", "edit? 日期不存在"),
        ("修改日期 下週", "edit? 日期還沒到，請在付款之後再記"),
        ("修改時間 25:00", "edit? 時間必須是 HH:MM"),
        ("修改幣別 貝殼", "edit? 幣別必須是 ISO 4217 幣別代碼"),
        ("代墊狀態改也許", "edit? 代墊狀態必須是 無、代墊、需支付 或 不索取"),
        ("修改交易ID 20251129-150000", "edit? 交易ID 不可修改"),
        ("修改intent other", "edit? intent 不可修改"),
    ]);
}

#[test]
fn the_last_transaction_can_be_deleted() {
    for text in [
        "刪除上一筆",
        "刪除上一筆交易",
        "刪掉剛剛那筆",
        "上一筆刪除",
        "請刪除最後一筆記錄。",
        "把前一筆刪掉",
        "刪除 上一筆",
    ] {
        assert_eq!(says(text), "delete", "{text}");
    }
}

#[test]
fn what_is_not_about_the_ledger_is_left_to_others() {
    for text in [
        "你好",
        "",
        "   ",
        "台北",
        "設定住家 信義區",
        "刪除我的資料",
        "刪除上一筆的附註",
        "改天再說",
        "改名了嗎",
        "分類",
        "剛剛改了行程",
        "時間不夠",
        "上一筆金額多少",
        "上一筆 金額 150 現金",
        "今天好累",
        "我走了10000步",
        "85度C",
        "3點開會",
        "0912345678",
        "COVID19",
        "天氣，如何",
        "信用卡",
        "12:30 集合",
    ] {
        assert_eq!(says(text), "-", "{text}");
    }
}

#[test]
fn what_is_noted_is_a_valid_entry_with_the_defaults() {
    let Sentence::Note(note) = parse("午餐 120 信用卡", now()) else { panic!("a note") };
    let json = note.entries(None, &Months::default())[0].to_json();
    assert_eq!(Entry::from_body(json.as_bytes()).unwrap().to_json(), json);
    let expected = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"14:30","品項":"午餐","原幣別":"TWD","原幣金額":120,"匯率":1,"付款方式":"信用卡","交易ID":"20251129-143000","明細說明":"","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無","收款支付對象":"","附註":""}"#;
    assert_eq!(json, expected);
}

#[test]
fn two_entries_in_one_second_never_share_an_id() {
    let Sentence::Note(note) = parse("早餐 50、午餐 120、晚餐 200 現金", now()) else {
        panic!("a note")
    };
    let ids = |entries: &[Entry]| entries.iter().map(|entry| entry.id().to_owned()).collect::<Vec<_>>();
    let first = note.entries(None, &Months::default());
    assert_eq!(ids(&first), ["20251129-143000", "20251129-143001", "20251129-143002"]);
    let second = note.entries(first.last(), &Months::default());
    assert_eq!(ids(&second), ["20251129-143003", "20251129-143004", "20251129-143005"]);
    let before = Entry::read(&LUNCH.replace("20251129-143000", "20251129-142959")).unwrap();
    assert_eq!(note.entries(Some(&before), &Months::default())[0].id(), "20251129-143000");
    let foreign = Entry::read(r#"{"交易ID":"who knows"}"#).unwrap();
    assert_eq!(note.entries(Some(&foreign), &Months::default())[0].id(), "20251129-143000");
}

#[test]
fn an_id_that_was_given_is_not_given_again_though_its_entry_is_gone() {
    let Sentence::Note(note) = parse("早餐 50 現金", now()) else { panic!("a note") };
    let given = Months::read(Some(r#"{"months":["2025-11"],"last_id":"20251129-143001"}"#));
    assert_eq!(note.entries(None, &given)[0].id(), "20251129-143002");
    let before = Entry::read(&LUNCH.replace("20251129-143000", "20251129-143005")).unwrap();
    assert_eq!(note.entries(Some(&before), &given)[0].id(), "20251129-143006");
}

/// What becomes of a half-said entry and the text after it: the entries, what is still missing, or nothing.
fn then(first: &str, second: &str) -> String {
    let Sentence::HalfSaid(pending, _) = parse(first, now()) else { panic!("nothing is missing in {first}") };
    let stored = kept(&pending, None, None).unwrap();
    assert_eq!(stored, pending, "{first}");
    match stored.answer(second, &Habits::default()) {
        Answer::Other => "-".to_owned(),
        Answer::Complete(note) => noted(&note),
        Answer::Edit(..) => "edit".to_owned(),
        Answer::Asks(_, Problem(text)) => text,
        Answer::Cancelled => "cancelled".to_owned(),
    }
}

#[test]
fn what_is_missing_may_be_said_next() {
    for (first, second, expected) in [
        ("午餐 100", "信用卡", "午餐 100 信用卡（飲食）"),
        ("午餐 100", " 信用卡 ", "午餐 100 信用卡（飲食）"),
        ("午餐 100", "國泰信用卡", "午餐 100 國泰信用卡（飲食）"),
        ("昨天 午餐 100", "Apple Pay", "2025-11-28 午餐 100 Apple Pay（飲食）"),
        ("早餐 50、午餐 120", "現金", "早餐 50 現金（飲食） | 午餐 120 現金（飲食）"),
        ("100 現金", "午餐", "午餐 100 現金（飲食）"),
        ("100", "午餐", "「午餐」100 元的付款方式是什麼？"),
        ("100", "現金", "100 元是什麼品項？"),
        ("100", "午餐 現金", "午餐 100 現金（飲食）"),
        ("書 12.5 美金 信用卡", "匯率 31.5", "書 12.5 USD（匯率 31.5） 信用卡（教育）"),
        ("書 12.5 美金 信用卡", "31.5", "書 12.5 USD（匯率 31.5） 信用卡（教育）"),
        (
            "書 12.5 美金 信用卡",
            "匯率 -1",
            "請告訴我匯率：1 單位的外幣等於多少台幣，要大於 0，例如：匯率 31.5",
        ),
        ("書 12.5 美金", "信用卡", "「書」12.5 USD 的匯率是多少？（1 USD 等於多少台幣，例如：31.5）"),
        ("早餐 50 現金、午餐", "120", "早餐 50 現金（飲食） | 午餐 120 現金（飲食）"),
    ] {
        assert_eq!(then(first, second), expected, "{first}, then {second}");
    }
}

#[test]
fn anything_else_leaves_a_half_said_entry_alone() {
    for (first, second) in [
        ("午餐 100", "晚餐"),
        ("午餐 100", "晚餐 200"),
        ("午餐 100", "晚餐 200 現金"),
        ("午餐 100", "晚餐 現金"),
        ("午餐 100", "昨天 現金"),
        ("午餐 100", "謝謝"),
        ("午餐 100", ""),
        ("午餐 100", "現金、信用卡"),
        ("100 現金", "信用卡"),
        ("100 現金", "明天的會議改到下午三點，地點在二樓的會議室"),
        ("午餐 100", "31.5"),
        ("午餐 100", "我今天忘記帶悠遊卡"),
        ("100 現金", "謝謝"),
    ] {
        assert_eq!(then(first, second), "-", "{first}, then {second}");
    }
}

#[test]
fn what_is_said_in_one_chat_is_not_completed_in_another() {
    let Sentence::HalfSaid(pending, _) = parse("午餐 100", now()) else { panic!("something is missing") };
    for (said_in, chat) in [(None, Some("a")), (Some("a"), None), (Some("a"), Some("b"))] {
        assert_eq!(kept(&pending, said_in, chat), None);
        assert_eq!(kept(&pending, said_in, said_in), Some(pending.clone()));
    }
}

#[test]
fn a_broken_value_is_no_half_said_entry() {
    for text in ["", "{}", r#"{"text":"午餐 100","at":"x"}"#, r#"{"text":"午餐","at":"20251129-143000"}"#]
    {
        assert!(stored(text).get(None, &Habits::default(), now()).is_none(), "{text}");
    }
}

#[test]
fn a_month_is_asked_for_by_its_name() {
    let month = |text| Recall::Month(Month::parse(text).unwrap());
    for (text, expected) in [
        ("最近紀錄", Recall::Recent),
        ("最近記錄", Recall::Recent),
        ("本月", month("2025-11")),
        ("上個月", month("2025-10")),
        ("9月", month("2025-09")),
        ("09月", month("2025-09")),
        ("１１月", month("2025-11")),
        ("12月", month("2024-12")),
        ("2026-09", month("2026-09")),
        ("2024/2", month("2024-02")),
        ("2024年2月", month("2024-02")),
    ] {
        assert_eq!(parse(text, now()), Sentence::Recall(expected), "{text}");
    }
    for text in ["13月", "0月", "9月 午餐", "月", "2025-13", "25-09", "最近", "本月 100 現金"] {
        assert!(!matches!(parse(text, now()), Sentence::Recall(_)), "{text}");
    }
}

#[test]
fn a_text_has_at_most_twenty_entries() {
    let text = |entries: usize| vec!["茶 10"; entries].join("、") + " 現金";
    assert!(matches!(parse(&text(20), now()), Sentence::Note(_)));
    assert_eq!(says(&text(21)), "note? 一次最多記錄 20 筆，請分開輸入");
    assert_eq!(says(&vec!["茶 10"; 21].join("、")), "note? 一次最多記錄 20 筆，請分開輸入");
}

#[test]
fn debug_shows_no_words() {
    for text in ["午餐 120 信用卡", "修改金額 150", "修改金額 -150", "午餐 120"] {
        let shown = format!("{:?}", parse(text, now()));
        assert!(!shown.contains("午餐") && !shown.contains("120") && !shown.contains("150"), "{shown}");
    }
}

mod any_text {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    /// Words of every kind that the grammar knows, and some that it does not.
    const WORDS: [&str; 76] = [
        "午餐",
        "湯圓",
        "雞塊",
        "計程車",
        "房租",
        "薪水",
        "手機殼",
        "嗶嗶",
        "iPhone",
        "公車",
        "120",
        "50",
        "1,200",
        "1，200",
        "１２０",
        "12.5",
        "-5",
        "0",
        "1.5萬",
        "2萬5",
        "2萬 5000",
        "3百",
        "5k",
        "三百",
        "兩百五",
        "一千二",
        "一百二十",
        "三四百",
        "7-11",
        "85度C",
        "2杯",
        "30 分鐘",
        "3 張",
        "0912345678",
        "$",
        "NT$",
        "元",
        "塊",
        "美金",
        "usd",
        "¥",
        "匯率",
        "31.5",
        "現金",
        "信用卡",
        "刷卡",
        "Line Pay",
        "國泰信用卡",
        "用",
        "付的",
        "悠遊卡",
        "加值",
        "、",
        "，",
        "。",
        "\n",
        " ",
        "-",
        "昨天",
        "11/5",
        "5號",
        "115/11/03",
        "上週五",
        "12:30",
        "分類",
        "教育",
        "改成",
        "刪除",
        "不是",
        "打錯了",
        "總共",
        "花了",
        "我",
        "嗎",
        "👍",
        "(和小美)",
    ];

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => proptest::collection::vec(select(&WORDS[..]), 0..10).prop_map(|words| words.concat()),
            4 => proptest::collection::vec(select(&WORDS[..]), 0..10).prop_map(|words| words.join(" ")),
            1 => "\\PC{0,40}",
        ]
    }

    /// The digits of a text, however they are written, without zeros: those of an amount are among them, in their order.
    fn digits(text: &str) -> String {
        let digit = |c: char| match c {
            '1'..='9' => Some(c),
            '１'..='９' => char::from_u32(u32::from(c) - 0xfee0),
            _ => "一二三四五六七八九"
                .chars()
                .position(|d| d == c)
                .and_then(|n| char::from_digit(n as u32 + 1, 10))
                .or(if c == '兩' { Some('2') } else { None }),
        };
        text.chars().filter_map(digit).collect()
    }

    fn half_width(text: &str) -> String {
        let half_width = |c: char| match c {
            '！'..='～' => char::from_u32(u32::from(c) - 0xfee0).unwrap(),
            c => c,
        };
        text.chars().map(half_width).collect()
    }

    fn is_within(part: &str, whole: &str) -> bool {
        let mut whole = whole.chars();
        part.chars().all(|c| whole.any(|other| other == c))
    }

    /// Whatever is recorded is shown, digit for digit, and was said.
    fn check(note: &chat::Note, said: &str) -> Result<(), TestCaseError> {
        let entries = note.entries(None, &Months::default());
        let shown = texts::noted(note, &entries);
        let lines: Vec<&str> = shown.lines().skip(1).collect();
        prop_assert_eq!(lines.len(), entries.len());
        let spaceless = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        for (entry, line) in entries.iter().zip(lines) {
            prop_assert!(Entry::from_body(entry.to_json().as_bytes()).is_ok(), "{}", said);
            let field = |field| entry.get(field).unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            prop_assert!(
                words.contains(&field(Field::Amount).as_str())
                    || line.contains(&format!(" {}（", field(Field::Amount))),
                "{}: {}",
                said,
                line
            );
            for shown in [Field::Item, Field::Payment, Field::Category] {
                prop_assert!(line.contains(&field(shown)), "{}: {}", said, line);
            }
            if field(Field::Currency) != "TWD" {
                let foreign = format!(
                    "{} {}（匯率 {}）",
                    field(Field::Amount),
                    field(Field::Currency),
                    field(Field::Rate)
                );
                prop_assert!(line.contains(&foreign), "{}: {}", said, line);
                prop_assert!(digits(said).contains(&digits(&field(Field::Rate))), "{}: {}", said, line);
            }
            if field(Field::Date) != "2025-11-29" {
                prop_assert!(line.contains(&field(Field::Date)), "{}: {}", said, line);
            }
            prop_assert!(is_within(&digits(&field(Field::Amount)), &digits(said)), "{}: {}", said, line);
            prop_assert!(
                is_within(&spaceless(&field(Field::Item)), &half_width(&spaceless(said))),
                "{}: {}",
                said,
                line
            );
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn books_only_what_was_said_and_shows_all_of_it(text in texts()) {
            says(&text);
            if let Sentence::Note(note) = parse(&text, now()) {
                check(&note, &text)?;
            }
        }

        #[test]
        fn completes_an_entry_only_by_what_one_of_two_texts_says(first in texts(), second in texts()) {
            if let Sentence::HalfSaid(pending, _) = parse(&first, now()) {
                let stored = kept(&pending, None, None);
                prop_assert_eq!(stored.as_ref(), Some(&pending));
                if let Answer::Complete(note) = pending.answer(&second, &Habits::default()) {
                    check(&note, &format!("{second} {first} {second}"))?;
                }
            }
        }

        #[test]
        fn without_a_number_nothing_is_booked(text in "[^0-9０-９一二兩两三四五六七八九十百千萬万壹貳參肆伍陸柒捌玖拾佰仟]{0,30}") {
            prop_assert!(!matches!(parse(&text, now()), Sentence::Note(_)), "{}", text);
        }
    }

    #[test]
    fn breaks_nothing_however_long_it_is() {
        for word in WORDS.iter().chain(&["1a", "用", "國泰", "上", "是", "改", "分類", "LINE Pay ", "1萬"])
        {
            says(&word.repeat(5000 / word.chars().count()));
        }
    }
}
