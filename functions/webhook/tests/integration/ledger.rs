//! The ledger in the chat: what is confirmed is kept, read back, completed and erased. On every backend.

use crate::support;

use std::collections::HashSet;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use onetap_ledger::{Book, Config, Month, Statement};
use onetap_store::testing::{Fault, TestStore};
use onetap_store::{Store, read_to_end};
use serde_json::{Value, json};
use support::*;

on_every_backend! {
    a_text_of_three_entries_delivered_four_times_is_three_records
    an_entry_stays_when_the_last_transaction_is_gone
    an_entry_whose_event_arrives_late_overwrites_no_other
    an_edit_that_moves_the_date_moves_the_entry_to_its_month
    another_currency_is_asked_for_its_rate_and_nothing_is_changed
    a_half_said_entry_is_completed_once
    a_half_said_entry_in_a_group_is_its_users_alone
    what_is_said_in_one_chat_is_not_told_in_another
    the_ledger_is_read_back
    erasing_leaves_nothing_and_what_comes_after_is_kept
    erasing_takes_any_number_of_months
    an_erasure_is_asked_for_and_confirmed_by_its_user_within_five_minutes
    a_group_neither_changes_nor_shows_what_was_said_elsewhere
    what_a_user_usually_does_is_remembered_and_erased
    a_question_offers_the_usual_ways_to_pay_and_a_way_out
    an_edit_or_deletion_concerns_the_entry_that_it_names
    a_correction_of_what_is_not_recorded_yet_changes_nothing_else
}

fn book(user: &str) -> Book {
    Book::new(user, Config::default()).unwrap()
}

async fn month(bot: &Bot, user: &str, name: &str) -> (Statement, usize) {
    let month = Month::parse(name).unwrap();
    let records = read_to_end(&bot.store, &book(user).log(month).unwrap()).await.unwrap();
    let statement = Statement::fold(month, records.iter().map(|record| record.text.as_str()));
    assert_eq!(statement.unreadable(), 0);
    (statement, records.len())
}

/// The items and amounts of a month, and the number of its records.
async fn entries(bot: &Bot, user: &str, name: &str) -> (Vec<String>, usize) {
    let (statement, records) = month(bot, user, name).await;
    let entry = |entry: &onetap_ledger::Entry| {
        let entry: Value = serde_json::from_str(&entry.to_json()).unwrap();
        format!("{} {}", entry["品項"].as_str().unwrap(), entry["原幣金額"])
    };
    (statement.entries().map(entry).collect(), records)
}

fn this_month() -> String {
    Month::from(onetap_ledger::Moment::now().date()).to_string()
}

async fn a_text_of_three_entries_delivered_four_times_is_three_records(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    let event = text(&user, "早餐 50、午餐 120、飲料 45 現金");
    assert_eq!(bot.deliver(from_ref(&event)).await, 200);
    let said = bot.said();
    assert!(said[0].starts_with("已記帳：\n• ") && said[0].lines().count() == 4, "{said:?}");
    for _ in 1..4 {
        assert_eq!(bot.deliver(&[redelivered(&event)]).await, 200);
    }
    assert_eq!(bot.said(), Vec::<String>::new());
    let kept = entries(&bot, &user, &this_month()).await;
    assert_eq!(kept, (["早餐 50", "午餐 120", "飲料 45"].map(str::to_owned).into(), 3));
}

async fn an_entry_stays_when_the_last_transaction_is_gone(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    for words in ["早餐 50 現金", "午餐 120 現金"] {
        assert_eq!(bot.deliver(&[text(&user, words)]).await, 200);
    }
    assert_eq!(bot.deliver(&[text(&user, "修改金額 150"), text(&user, "刪除上一筆")]).await, 200);
    assert_eq!(entries(&bot, &user, &this_month()).await, (vec!["早餐 50".to_owned()], 4));
    // The id of the entry that was deleted is not given again: it would be taken for the same entry.
    assert_eq!(bot.deliver(&[text(&user, "晚餐 200 現金")]).await, 200);
    let (statement, _) = month(&bot, &user, &this_month()).await;
    let ids: Vec<&str> = statement.entries().map(onetap_ledger::Entry::id).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids[0] < ids[1]);
}

async fn an_entry_whose_event_arrives_late_overwrites_no_other(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    let now = onetap_ledger::Moment::now().unix() * 1000;
    let late = now - 26 * 3600 * 1000;
    let said = [
        (late, "早餐 50 現金"),
        (late, "午餐 120 現金"),
        (late, "晚餐 200 現金"),
        (now, "宵夜 80 現金"),
        (late + 1200, "飲料 45 現金"),
        (now - 6 * 24 * 3600 * 1000, "茶 10 現金"),
        (late, "咖啡 60"),
        (late + 1000, "現金"),
    ];
    for (at, words) in said {
        let mut event = text(&user, words);
        event["timestamp"] = at.into();
        assert_eq!(bot.deliver(&[event]).await, 200);
    }
    assert_eq!(bot.said().iter().filter(|said| said.starts_with("已記帳")).count(), 7);
    let (mut items, mut ids) = (Vec::new(), HashSet::new());
    let listed = bot.store.get(book(&user).months()).await.unwrap();
    for listed in onetap_ledger::Months::read(listed.as_deref()).latest_first() {
        let (statement, _) = month(&bot, &user, &listed.to_string()).await;
        items.extend(entries(&bot, &user, &listed.to_string()).await.0);
        ids.extend(statement.entries().map(|entry| entry.id().to_owned()));
    }
    items.sort();
    assert_eq!(items, ["午餐 120", "咖啡 60", "宵夜 80", "早餐 50", "晚餐 200", "茶 10", "飲料 45"]);
    assert_eq!(ids.len(), 7);
}

async fn an_edit_that_moves_the_date_moves_the_entry_to_its_month(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    assert_eq!(bot.deliver(&[text(&user, "午餐 120 現金")]).await, 200);
    assert_eq!(bot.deliver(&[text(&user, "修改日期 2024-02-29")]).await, 200);
    assert_eq!(entries(&bot, &user, &this_month()).await, (vec![], 2));
    assert_eq!(entries(&bot, &user, "2024-02").await, (vec!["午餐 120".to_owned()], 1));
}

async fn another_currency_is_asked_for_its_rate_and_nothing_is_changed(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    bot.ask(&user, "2024-02-01 書 12.5 信用卡").await;
    let sum = async || bot.ask(&user, "2024-02").await.lines().next().unwrap_or_default().to_owned();
    let asked = bot.ask(&user, "修改幣別 美金").await;
    assert_eq!(asked, "匯率是多少？1 USD 等於多少台幣，例如：匯率 31.5");
    assert_eq!(sum().await, "2024-02 共 1 筆，合計 12.5 TWD");
    // The example works as it is.
    let example = asked.split_once("例如：").unwrap().1;
    assert_eq!(bot.ask(&user, example).await, "修改成功\n• 原幣別：TWD → USD\n• 匯率：1 → 31.5");
    assert_eq!(sum().await, "2024-02 共 1 筆，合計 393.75 TWD");
    assert_eq!(bot.ask(&user, "修改幣別 台幣").await, "修改成功\n• 原幣別：USD → TWD\n• 匯率：31.5 → 1");
    assert_eq!(sum().await, "2024-02 共 1 筆，合計 12.5 TWD");
}

async fn a_half_said_entry_is_completed_once(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    assert_eq!(bot.ask(&user, "午餐 100").await, "「午餐」100 元的付款方式是什麼？");
    // Anything else leaves it alone.
    assert!(bot.ask(&user, "永和").await.starts_with("新北市永和區"));
    assert!(bot.ask(&user, "謝謝").await.starts_with("不客氣"));
    let pay = text(&user, "信用卡");
    for _ in 0..3 {
        assert_eq!(bot.deliver(from_ref(&pay)).await, 200);
    }
    let said = bot.said();
    assert_eq!(said.len(), 1);
    assert!(said[0].ends_with("午餐 100 信用卡（飲食）"), "{said:?}");
    assert_eq!(bot.store.get(book(&user).pending()).await.unwrap(), None);
    assert!(bot.ask(&user, "信用卡").await.starts_with("不好意思，我沒聽懂。"));
    assert_eq!(entries(&bot, &user, &this_month()).await, (vec!["午餐 100".to_owned()], 1));
}

async fn a_half_said_entry_in_a_group_is_its_users_alone(store: Arc<dyn Store>) {
    let (bot, user, other) = (Bot::new(store), user(), support::user());
    assert_eq!(bot.deliver(&[mentioning(&user, "午餐 100")]).await, 200);
    assert_eq!(bot.said(), ["「午餐」100 元的付款方式是什麼？\n（請按按鈕，或在回答前面加上「記帳 」）"]);
    // Not spoken to the bot: nothing happens, and nothing is said.
    for (who, words) in [(&user, "現金"), (&other, "現金"), (&other, "120 現金"), (&user, "本月")] {
        assert_eq!(bot.deliver(&[in_group(text(who, words))]).await, 200);
        assert_eq!(bot.said(), Vec::<String>::new(), "{words}");
    }
    assert_eq!(bot.deliver(&[mentioning(&other, "現金")]).await, 200);
    assert!(bot.said()[0].starts_with("不好意思，我沒聽懂。"));
    assert_eq!(bot.deliver(&[in_group(text(&user, "記帳 信用卡"))]).await, 200);
    assert!(bot.said()[0].ends_with("午餐 100 信用卡（飲食）"));
    assert_eq!(entries(&bot, &user, &this_month()).await.1, 1);
    assert_eq!(entries(&bot, &other, &this_month()).await.1, 0);
}

async fn what_is_said_in_one_chat_is_not_told_in_another(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    bot.ask(&user, "午餐 100").await;
    assert_eq!(bot.deliver(&[mentioning(&user, "現金")]).await, 200);
    assert!(bot.said()[0].starts_with("不好意思，我沒聽懂。"));
    assert!(bot.ask(&user, "現金").await.ends_with("午餐 100 現金（飲食）"));
    // In one group, then in another, then in the first.
    let in_another = |mut event: Value| {
        event["source"]["groupId"] = "another-planted-group".into();
        event
    };
    assert_eq!(bot.deliver(&[mentioning(&user, "晚餐 200")]).await, 200);
    assert!(bot.said()[0].contains("晚餐"));
    assert_eq!(bot.deliver(&[in_another(mentioning(&user, "現金"))]).await, 200);
    assert!(bot.said().iter().all(|said| !said.contains("晚餐")));
    assert_eq!(bot.deliver(&[mentioning(&user, "現金")]).await, 200);
    assert!(bot.said()[0].ends_with("晚餐 200 現金（飲食）"));
}

async fn a_group_neither_changes_nor_shows_what_was_said_elsewhere(store: Arc<dyn Store>) {
    const NOTHING: &str = "目前沒有可修改的交易記錄（記帳後 1 小時內可以修改；更早的記錄仍保留在帳本中）";
    let (bot, user) = (Bot::new(store), user());
    let said_in = async |event: Value| {
        assert_eq!(bot.deliver(&[event]).await, 200);
        bot.said().join("\n")
    };
    let in_another = |mut event: Value| {
        event["source"]["groupId"] = "another-planted-group".into();
        event
    };
    bot.ask(&user, "藥 300 現金").await;
    for words in ["刪掉剛剛的", "品項改成飲料好了", "午餐 120 現金", "本月", "刪除我的資料", "說明", "大家好"]
    {
        assert_eq!(said_in(in_group(text(&user, words))).await, "", "{words}");
    }
    for words in ["刪掉剛剛的", "品項改成飲料好了", "修改日期 2024-02-29"] {
        assert_eq!(said_in(mentioning(&user, words)).await, NOTHING, "{words}");
    }
    assert!(said_in(mentioning(&user, "本月")).await.contains("一對一"));
    assert_eq!(entries(&bot, &user, &this_month()).await, (vec!["藥 300".to_owned()], 1));
    // What is entered in the group is edited there, and in the chat with the bot alone, and in no other group.
    assert!(said_in(mentioning(&user, "午餐 120 現金")).await.starts_with("已記帳"));
    assert_eq!(said_in(in_another(mentioning(&user, "修改金額 1"))).await, NOTHING);
    assert_eq!(said_in(mentioning(&user, "修改金額 150")).await, "修改成功\n• 原幣金額：150");
    assert!(bot.ask(&user, "修改金額 160").await.ends_with("150 → 160"));
    // The old value may have been said elsewhere.
    bot.ask(&user, "修改附註 給小美的禮物").await;
    assert_eq!(said_in(mentioning(&user, "修改附註 無")).await, "修改成功\n• 附註：無");
    assert!(said_in(in_group(text(&user, "記帳 刪除上一筆"))).await.starts_with("已刪除"));
    assert_eq!(entries(&bot, &user, &this_month()).await.0, ["藥 300"]);
    // One more of the chat alone: the group does not know it again.
    assert!(said_in(mentioning(&user, "茶 10 現金")).await.starts_with("已記帳"));
    bot.ask(&user, "水 20 現金").await;
    assert_eq!(said_in(mentioning(&user, "刪除上一筆")).await, NOTHING);
    // Without an entry it is the same.
    bot.ask(&user, "刪除上一筆").await;
    assert_eq!(said_in(mentioning(&user, "刪除上一筆")).await, NOTHING);
}

/// The texts that the buttons of the last reply send.
async fn buttons_after(bot: &Bot, event: Value) -> Vec<String> {
    assert_eq!(bot.deliver(&[event]).await, 200);
    let replies = bot.line.take_replies();
    let [reply] = &replies[..] else { panic!("{replies:?}") };
    let items = reply.messages[0]["quickReply"]["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["action"]["text"].as_str().unwrap().to_owned()).collect()
}

async fn what_a_user_usually_does_is_remembered_and_erased(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    // A category, a way to pay of the user's own, a default.
    bot.ask(&user, "拿鐵 65 現金").await;
    bot.ask(&user, "分類改成娛樂").await;
    assert!(bot.ask(&user, "拿鐵 70 現金").await.ends_with("拿鐵 70 現金（娛樂）"));
    bot.ask(&user, "付款方式改成福利點").await;
    assert!(bot.ask(&user, "便當 100 福利點").await.ends_with("便當 100 福利點（飲食）"));
    assert!(bot.ask(&user, "設定付款 福利點").await.contains("福利點"));
    assert!(bot.ask(&user, "晚餐 200").await.ends_with("晚餐 200 福利點（飲食）"));
    // A group is shown none of it.
    for (words, answer) in [("早餐 50", "付款方式是什麼"), ("拿鐵 70 現金", "拿鐵 70 現金（飲食）")]
    {
        assert_eq!(bot.deliver(&[mentioning(&user, words)]).await, 200);
        assert!(bot.said()[0].contains(answer), "{words}");
    }
    assert!(bot.ask(&user, "設定付款 無").await.contains("再問您"));
    assert!(bot.ask(&user, "晚餐 200").await.contains("付款方式是什麼"));
    // The saved place stays.
    bot.ask(&user, "設定住家 永和區").await;
    bot.ask(&user, "設定付款 現金").await;
    assert_eq!(bot.deliver(&[tap(&user, HOME)]).await, 200);
    assert!(bot.said()[0].starts_with("新北市永和區"));
    bot.erase(&user).await;
    let profile = onetap_store::Key::new(format!("user:{user}:profile")).unwrap();
    assert_eq!(bot.store.get(&profile).await.unwrap(), None);
    assert!(bot.ask(&user, "便當 100 福利點").await.contains("付款方式是什麼"));
    assert_eq!(bot.ask(&user, "取消").await, "好的，這筆先不記。");
    assert!(bot.ask(&user, "拿鐵 70 現金").await.ends_with("拿鐵 70 現金（飲食）"));
}

async fn a_question_offers_the_usual_ways_to_pay_and_a_way_out(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    let general = ["現金", "信用卡", "悠遊卡", "LINE Pay", "轉帳", "取消"];
    assert_eq!(buttons_after(&bot, text(&user, "午餐 120")).await, general);
    assert!(bot.ask(&user, "街口").await.starts_with("已記帳"));
    let own = ["街口", "現金", "信用卡", "悠遊卡", "LINE Pay", "轉帳", "取消"];
    assert_eq!(buttons_after(&bot, text(&user, "晚餐 200")).await, own);
    // In a group a button speaks to the bot, and does not show how the user pays.
    let in_a_group = general.map(|name| format!("記帳 {name}"));
    assert_eq!(buttons_after(&bot, mentioning(&user, "午餐 120")).await, in_a_group);
    assert_eq!(bot.deliver(&[in_group(text(&user, "記帳 取消"))]).await, 200);
    assert_eq!(bot.said(), ["好的，這筆先不記。"]);
    // Where something else is missing, nothing but the way out is offered.
    assert_eq!(buttons_after(&bot, text(&user, "書 12.5 usd 信用卡")).await, ["取消"]);
    assert_eq!(bot.ask(&user, "取消").await, "好的，這筆先不記。");
    assert!(bot.ask(&user, "取消").await.starts_with("目前沒有等待補充的記帳"));
    assert_eq!(bot.store.get(book(&user).pending()).await.unwrap(), None);
}

async fn an_edit_or_deletion_concerns_the_entry_that_it_names(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    bot.ask(&user, "午餐 120 現金").await;
    for words in ["刪除晚餐", "刪掉午餐 80", "晚餐改成150", "把晚餐改成宵夜", "不是80是150"]
    {
        let said = bot.ask(&user, words).await;
        assert_eq!(
            said, "最後記的是「午餐 120」，不是您說的那一筆，所以沒有變更。只能改或刪最後記的那一筆。",
            "{words}"
        );
    }
    assert_eq!(bot.ask(&user, "不是120是150").await, "修改成功\n• 原幣金額：120 → 150");
    assert!(bot.ask(&user, "把午餐改成便當").await.ends_with("午餐 → 便當"));
    assert!(bot.ask(&user, "刪除便當").await.starts_with("已刪除"));
    assert_eq!(entries(&bot, &user, &this_month()).await.0, [] as [&str; 0]);
}

async fn a_correction_of_what_is_not_recorded_yet_changes_nothing_else(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    bot.ask(&user, "早餐 50 現金").await;
    bot.ask(&user, "午餐 120").await;
    assert!(bot.ask(&user, "改成150").await.starts_with("剛才說的那筆還沒記下來"));
    assert_eq!(bot.ask(&user, "刪掉剛剛那筆").await, "好的，這筆先不記。");
    assert_eq!(entries(&bot, &user, &this_month()).await.0, ["早餐 50"]);
    assert_eq!(bot.ask(&user, "改成60").await, "修改成功\n• 原幣金額：50 → 60");
    // One question after another: the first entry is not dropped without a word.
    bot.ask(&user, "午餐 120").await;
    assert!(bot.ask(&user, "晚餐 200").await.starts_with("（剛才的「午餐 120」先不記。）"));
    assert!(bot.ask(&user, "現金").await.ends_with("晚餐 200 現金（飲食）"));
    assert_eq!(entries(&bot, &user, &this_month()).await.0, ["早餐 60", "晚餐 200"]);
}

async fn the_ledger_is_read_back(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    assert_eq!(bot.ask(&user, "最近紀錄").await, "目前沒有記帳紀錄，例如輸入：午餐 120 信用卡");
    assert_eq!(bot.ask(&user, "2024-02").await, "2024-02 沒有記帳紀錄");
    for words in [
        "2024-02-01 茶 10 現金",
        "2024-02-02 書 12.5 美金 匯率 31.5 信用卡",
        "上一筆分類改教育",
        "2024-02-29 早餐 50、2024-03-01 午餐 120.50、2024-03-02 晚餐 200 現金",
    ] {
        bot.ask(&user, words).await;
    }
    assert_eq!(
        bot.ask(&user, "2024-02").await,
        "2024-02 共 3 筆，合計 453.75 TWD\n• 教育：393.75 TWD（1 筆）\n• 飲食：60 TWD（2 筆）"
    );
    assert_eq!(
        bot.ask(&user, "最近紀錄").await,
        "最近紀錄：\n• 2024-03-02 晚餐 200 TWD 現金\n• 2024-03-01 午餐 120.50 TWD 現金\n\
         • 2024-02-29 早餐 50 TWD 現金\n• 2024-02-02 書 12.5 USD（匯率 31.5） 信用卡\n• 2024-02-01 茶 10 TWD 現金"
    );
    assert_eq!(bot.ask(&user, "本月").await, format!("{} 沒有記帳紀錄", this_month()));
}

async fn erasing_leaves_nothing_and_what_comes_after_is_kept(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    for words in ["設定住家 永和區", "早餐 50 現金", "2024-02-29 午餐 120 現金", "晚餐 200"]
    {
        bot.ask(&user, words).await;
    }
    let erase = confirmed_erasure(&user);
    assert_eq!(bot.deliver(from_ref(&erase)).await, 200);
    assert_eq!(bot.said(), ["已刪除您的所有資料。\n為避免重複處理而暫存的回覆，會在一天內自動刪除。"]);
    let book = book(&user);
    let profile = onetap_store::Key::new(format!("user:{user}:profile")).unwrap();
    let keys: Vec<_> = book.keys().into_iter().chain([profile]).collect();
    assert_eq!(bot.store.get_all(&keys).await.unwrap(), vec![None; 4]);
    for month in ["2024-02", &this_month()] {
        assert_eq!(entries(&bot, &user, month).await, (vec![], 0));
    }
    // A redelivery of the erasure takes nothing of what was said after it.
    bot.ask(&user, "宵夜 80 現金").await;
    assert_eq!(bot.deliver(&[redelivered(&erase)]).await, 200);
    assert_eq!(entries(&bot, &user, &this_month()).await, (vec!["宵夜 80".to_owned()], 1));
    assert_eq!(bot.erase(&user).await.lines().count(), 2);
    assert_eq!(bot.store.get_all(&keys).await.unwrap(), vec![None; 4]);
}

async fn an_erasure_is_asked_for_and_confirmed_by_its_user_within_five_minutes(store: Arc<dyn Store>) {
    const NOT_CONFIRMED: &str = "這個按鈕已經過期，或不是您的按鈕，所以沒有刪除任何資料。\n\
         如果要刪除您的資料，請再輸入一次「刪除我的資料」。";
    let (bot, user, other) = (Bot::new(store), user(), support::user());
    for user in [&user, &other] {
        bot.ask(user, "早餐 50 現金").await;
    }
    let now = onetap_ledger::Moment::now().unix() * 1000;
    let at = |seconds: i64, mut event: Value| {
        event["timestamp"] = (now + seconds * 1000).into();
        event
    };
    let data = bot.erasure_button(at(-600, text(&user, "刪除我的資料"))).await;
    let in_the_group = bot.erasure_button(at(-600, mentioning(&user, "刪除我的資料"))).await;
    // Neither the question nor anything else erases; nor does another member's tap, nor one that comes late.
    for words in ["確定刪除", "確定", "好", "是"] {
        assert!(!bot.ask(&user, words).await.contains("已刪除"));
    }
    for late in [
        at(-600, in_group(tap(&other, &in_the_group))),
        at(-299, tap(&user, &data)),
        tap(&user, "action=erase"),
    ] {
        assert_eq!(bot.deliver(&[late]).await, 200);
        assert_eq!(bot.said(), [NOT_CONFIRMED]);
    }
    for user in [&user, &other] {
        assert_eq!(entries(&bot, user, &this_month()).await, (vec!["早餐 50".to_owned()], 1));
    }
    // What counts is when it was tapped, not when it arrives.
    let tapped = at(-300, tap(&user, &data));
    assert_eq!(bot.deliver(from_ref(&tapped)).await, 200);
    assert!(bot.said()[0].starts_with("已刪除您的所有資料。"));
    assert_eq!(entries(&bot, &user, &this_month()).await, (vec![], 0));
    assert_eq!(entries(&bot, &other, &this_month()).await.1, 1);
    bot.ask(&user, "宵夜 80 現金").await;
    assert_eq!(bot.deliver(&[redelivered(&tapped)]).await, 200);
    assert_eq!(entries(&bot, &user, &this_month()).await, (vec!["宵夜 80".to_owned()], 1));
    // No menu leads to it.
    assert_eq!(bot.deliver(&[tap(&user, "action=other")]).await, 200);
    let menu = bot.line.take_replies();
    assert!(menu.iter().all(|reply| !format!("{:?}", reply.messages).contains("刪除")));
}

async fn erasing_takes_any_number_of_months(store: Arc<dyn Store>) {
    let (bot, user) = (Bot::new(store), user());
    for year in 2018..2023 {
        let month = |month: u8| format!("{year}-{month:02}-01 茶 10");
        let words = (1..=12).map(month).collect::<Vec<_>>().join("、") + " 現金";
        assert_eq!(bot.ask(&user, &words).await.lines().count(), 13);
    }
    bot.erase(&user).await;
    for month in ["2018-01", "2020-06", "2022-12"] {
        assert_eq!(entries(&bot, &user, month).await, (vec![], 0));
    }
    assert_eq!(bot.store.get_all(&book(&user).keys()).await.unwrap(), vec![None; 3]);
}

#[tokio::test]
async fn an_erasure_that_is_interrupted_is_finished_by_the_next() {
    let (bot, user) = (Bot::new(memory()), user());
    bot.ask(&user, "早餐 50 現金").await;
    // The claim, the look for too many months, the read and the commit that hides: then the store is gone.
    let failing =
        TestStore::faulty(
            Arc::clone(&bot.store),
            |call| if call <= 4 { Fault::Pass } else { Fault::NotSent },
        );
    let instance = bot.instance(failing, &[]);
    assert_eq!(deliver(&instance, &[confirmed_erasure(&user)]).await, 200);
    let said = bot.said();
    assert!(said[0].starts_with("您的資料已不再顯示，但"), "{said:?}");
    assert_eq!(entries(&bot, &user, &this_month()).await, (vec![], 0));
    assert!(bot.store.get(book(&user).months()).await.unwrap().is_some());
    assert!(bot.erase(&user).await.starts_with("已刪除您的所有資料。"));
    assert_eq!(bot.store.get_all(&book(&user).keys()).await.unwrap(), vec![None; 3]);
}

#[tokio::test]
async fn an_erasure_that_died_before_its_reply_is_finished_by_the_redelivery() {
    let (bot, user) = (Bot::new(memory()), user());
    bot.ask(&user, "早餐 50 現金").await;
    let erase = confirmed_erasure(&user);
    // Everything is hidden, then the store is gone, and LINE too.
    let failing =
        TestStore::faulty(
            Arc::clone(&bot.store),
            |call| if call <= 4 { Fault::Pass } else { Fault::NotSent },
        );
    bot.line.fail_next(onetap_line::testing::Fault::Status(429, json!({}).to_string()));
    assert_eq!(deliver(&bot.instance(failing, &[]), from_ref(&erase)).await, 500);
    bot.said();
    assert!(bot.store.get(book(&user).months()).await.unwrap().is_some());
    assert_eq!(bot.deliver(&[redelivered(&erase)]).await, 200);
    assert!(bot.said()[0].starts_with("已刪除您的所有資料。"));
    assert_eq!(bot.store.get_all(&book(&user).keys()).await.unwrap(), vec![None; 3]);
}

#[tokio::test]
async fn an_entry_that_comes_while_everything_is_erased_is_erased_with_it_or_kept_whole() {
    // Between the erasure's read and its commit.
    let (bot, user) = (Bot::new(memory()), user());
    for first in [None, Some("早餐 50 現金")] {
        if let Some(words) = first {
            bot.ask(&user, words).await;
        }
        let gate = onetap_store::testing::Gate::new();
        let held = gate.clone();
        let store = TestStore::faulty(Arc::clone(&bot.store), move |call| match call {
            4 => Fault::HeldBefore(held.clone()),
            _ => Fault::Pass,
        });
        let instance = bot.instance(store, &[]);
        let erase = [confirmed_erasure(&user)];
        let entry = async {
            gate.reached().await;
            assert_eq!(bot.deliver(&[text(&user, "午餐 120 現金")]).await, 200);
            gate.open();
        };
        let (status, ()) = tokio::join!(deliver(&instance, &erase), entry);
        assert_eq!(status, 200);
        bot.said();
        assert_eq!(bot.store.get_all(&book(&user).keys()).await.unwrap(), vec![None; 3], "{first:?}");
        assert_eq!(entries(&bot, &user, &this_month()).await, (vec![], 0), "{first:?}");
    }
}

#[tokio::test]
async fn a_shorter_retention_does_not_make_an_erasure_forget_the_months_of_a_longer_one() {
    let (bot, user) = (Bot::with(memory(), &[("LEDGER_RETENTION_DAYS", "0")]), user());
    bot.ask(&user, "2024-02-01 茶 10 現金").await;
    let short = bot.instance(Arc::clone(&bot.store), &[("LEDGER_RETENTION_DAYS", "1")]);
    assert_eq!(deliver(&short, &[text(&user, "早餐 50 現金")]).await, 200);
    bot.said();
    seconds_pass(3 * 86_400).await;
    assert_eq!(entries(&bot, &user, "2024-02").await.1, 1);
    bot.erase(&user).await;
    assert_eq!(entries(&bot, &user, "2024-02").await.1, 0);
}

#[tokio::test]
async fn without_the_store_a_half_said_entry_is_answered_and_a_way_to_pay_is_not_understood() {
    let bot = Bot::new(TestStore::faulty(memory(), |_| Fault::NotSent));
    let user = user();
    assert_eq!(bot.ask(&user, "午餐 100").await, "「午餐」100 元的付款方式是什麼？");
    assert_eq!(bot.ask(&user, "信用卡").await, BUSY);
    assert_eq!(bot.ask(&user, "本月").await, BUSY);
    assert!(bot.ask(&user, "東京都").await.starts_with("找不到這個地點"));
    for words in ["午餐 100", "信用卡"] {
        assert_eq!(bot.deliver(&[in_group(text(&user, words))]).await, 200);
    }
    assert_eq!(bot.said(), Vec::<String>::new());
}

#[tokio::test]
async fn a_half_said_entry_waits_ten_minutes() {
    let store = memory();
    let (bot, user) = (Bot::new(Arc::clone(&store)), user());
    bot.ask(&user, "午餐 100").await;
    seconds_pass(599).await;
    assert!(store.get(book(&user).pending()).await.unwrap().is_some());
    seconds_pass(2).await;
    assert!(bot.ask(&user, "信用卡").await.starts_with("不好意思，我沒聽懂。"));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_hide_the_others() {
    let (bot, user) = (Bot::new(memory()), user());
    bot.ask(&user, "2024-02-01 茶 10 現金").await;
    let log = book(&user).log(Month::parse("2024-02").unwrap()).unwrap();
    let broken = json!({"op": "put", "tx": {"交易ID": "x", "原幣金額": "ten"}}).to_string();
    let append =
        onetap_store::Batch::new().append(&log, broken, onetap_store::Keep::all_for(Duration::from_secs(60)));
    assert!(matches!(bot.store.commit(&append).await, Ok(onetap_store::Commit::Applied(_))));
    assert_eq!(bot.ask(&user, "2024-02").await.lines().next(), Some("2024-02 共 1 筆，合計 10 TWD"));
}
