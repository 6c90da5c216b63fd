//! The chat as a table: what every button, text and place asks for, and whether it takes the lock.

use crate::support;

use onetap_bot::Incoming;
use onetap_ledger::chat::{self, Habits, Recall, Sentence};
use onetap_line::webhook::Event;
use onetap_line::{Messages, WebhookBody};
use serde_json::{Value, json};
use support::*;
use webhook::Scope;
use webhook::ask::{Ask, Say, ask};
use webhook::bookkeeping::Ask as Books;
use webhook::weather::{Ask as Weather, Saved};

fn parse(event: Value) -> Event {
    let body = json!({"events": [event]}).to_string();
    WebhookBody::parse(body.as_bytes()).unwrap().events.remove(0)
}

/// What is asked for, in a word.
fn word(ask: Option<&Ask>) -> String {
    match ask {
        None => "ignore".into(),
        Some(Ask::Weather(ask)) => weather(ask),
        Some(Ask::Bookkeeping(ask)) => books(ask),
        Some(Ask::Follow) => "follow".into(),
        Some(Ask::Unfollow) => "unfollow".into(),
        Some(Ask::Say(say)) => match say {
            Say::Other => "other".into(),
            Say::UnknownAction => "unknown".into(),
            Say::Help => "help".into(),
            Say::Greeting => "greeting".into(),
            Say::Kind(_) => "a kind word".into(),
        },
    }
}

fn weather(ask: &Weather) -> String {
    let of = |saved: &Saved| saved.name().to_owned();
    match ask {
        Weather::Forecast(place) => place.name(),
        Weather::Saved(saved) => format!("forecast of {}", of(saved)),
        Weather::Recent => "recent".into(),
        Weather::Save(saved, place) => format!("{} = {}", of(saved), place.name()),
        Weather::Location => "ask location".into(),
        Weather::Settings => "settings".into(),
        Weather::Choose(places, None) => format!("choose {}", places.len()),
        Weather::Choose(places, Some(saved)) => format!("choose {} for {}", places.len(), of(saved)),
        Weather::NoSuchPlace => "no such place".into(),
        Weather::NoPlaceHelp => "no place, and help".into(),
        Weather::NotUnderstood => "not understood".into(),
        Weather::SaveWhich(saved) => format!("save which {}", of(saved)),
        Weather::OnlyTaiwan => "only taiwan".into(),
        Weather::NamePlaceInAGroup => "name a place".into(),
    }
}

fn books(ask: &Books) -> String {
    match ask {
        Books::Words(words, otherwise) => match chat::parse(&words.text, words.at, &Habits::default()) {
            Sentence::Delete(_) => "delete".into(),
            Sentence::Edit(..) => "edit".into(),
            Sentence::Note(_) => "note".into(),
            Sentence::HalfSaid(..) => "half-said".into(),
            Sentence::SetPayment(_) => "way to pay".into(),
            Sentence::EditProblem(_) | Sentence::NoteProblem(_) => "ledger says".into(),
            _ => format!("an answer, or {}", said(otherwise)),
        },
        Books::Nothing(messages) => said(messages).into(),
        Books::Recall(Recall::Recent) => "recent entries".into(),
        Books::Recall(Recall::Month(month)) => format!("sums of {month}"),
        Books::Recall(Recall::Days { first, last, of, .. }) => {
            let of = of.as_ref().map(|of| format!(" of {of}")).unwrap_or_default();
            format!("sums of {first} to {last}{of}")
        }
        Books::Erase => "erase".into(),
        Books::NotInAGroup => "not in a group".into(),
        Books::ConfirmErasure(_) => "erase?".into(),
        Books::ErasureNotConfirmed => "not confirmed".into(),
        Books::UnknownUser => "unknown user".into(),
    }
}

/// What the messages say, in a word.
fn said(messages: &Messages) -> &'static str {
    let json = serde_json::to_string(messages).unwrap();
    match () {
        () if json.contains("找不到這個地點") && json.contains("您可以這樣使用") => {
            "no place, and help"
        }
        () if json.contains("您可以這樣使用") => "help",
        () if json.contains("我沒聽懂") => "not understood",
        () => panic!("{json}"),
    }
}

fn check(event: Value, expected: &str, selective: bool, all: bool) {
    let event = parse(event);
    let asked = ask(&Incoming::new(&event, 1_700_000_000_000));
    let locks = |scope| asked.as_ref().is_some_and(|ask| ask.locks(&event, scope));
    assert_eq!(word(asked.as_ref()), expected, "{event:?}");
    assert_eq!(locks(Scope::Selective), selective, "{expected}, selective");
    // What asks for nothing is never claimed, nor locked.
    assert_eq!(locks(Scope::All), all && asked.is_some(), "{expected}, all");
}

#[test]
fn every_button_asks_for_its_thing() {
    let table = [
        ("action=weather&type=home", "forecast of 住家", true),
        ("action=weather&type=office", "forecast of 公司", true),
        ("type=home&action=weather", "forecast of 住家", true),
        ("action=weather&type=h%6Fme", "forecast of 住家", true),
        ("action=weather&type=current", "ask location", false),
        ("action=weather", "unknown", false),
        ("action=weather&type=moon", "unknown", false),
        ("action=recent_queries", "recent", true),
        ("action=save&type=home&place=臺北市信義區", "住家 = 臺北市信義區", false),
        (
            "action=save&type=office&place=%E8%87%BA%E5%8C%97%E5%B8%82%E4%BF%A1%E7%BE%A9%E5%8D%80",
            "公司 = 臺北市信義區",
            false,
        ),
        ("action=save&type=home&place=信義區", "unknown", false),
        ("action=save&type=moon&place=臺北市信義區", "unknown", false),
        ("action=erase", "not confirmed", false),
        ("action=erase&asked=1700000000&user=U1", "not confirmed", false),
        ("action=settings", "settings", false),
        ("action=other", "other", false),
        ("action=", "unknown", false),
        ("action", "unknown", false),
        ("天氣", "unknown", false),
        ("action=%ff", "unknown", false),
    ];
    for (data, expected, selective) in table {
        check(tap("U1", data), expected, selective, true);
        check(in_group(tap("U1", data)), expected, selective, true);
    }
}

#[test]
fn every_text_is_the_first_thing_that_it_can_be() {
    // the words, alone, in a group where the bot is not spoken to; spoken to, they are what they are alone
    let table = [
        ("設定住家 永和區", "住家 = 新北市永和區", "ignore"),
        ("設定公司板橋", "公司 = 新北市板橋區", "ignore"),
        ("設定住家", "save which 住家", "ignore"),
        ("設定住家 信義區", "choose 2 for 住家", "ignore"),
        ("設定住家 台北", "choose 12 for 住家", "ignore"),
        ("設定住家 東京", "no such place", "ignore"),
        ("設定住家 謝謝", "no such place", "ignore"),
        ("刪除我的資料", "erase?", "ignore"),
        ("刪除上一筆", "delete", "ignore"),
        ("刪掉剛剛的", "delete", "ignore"),
        ("修改金額 150", "edit", "ignore"),
        ("品項改成飲料好了", "edit", "ignore"),
        ("上一筆分類改教育", "edit", "ignore"),
        ("修改金額", "ledger says", "ignore"),
        ("午餐 120 信用卡", "note", "ignore"),
        ("昨天 計程車 250 現金", "note", "ignore"),
        ("永和", "新北市永和區", "ignore"),
        ("永和區", "新北市永和區", "新北市永和區"),
        ("臺北市信義區", "臺北市信義區", "臺北市信義區"),
        ("台北市信義區", "臺北市信義區", "臺北市信義區"),
        ("台北信義區", "臺北市信義區", "臺北市信義區"),
        ("信義區", "choose 2", "choose 2"),
        ("信義", "choose 3", "ignore"),
        ("東區", "choose 4", "choose 4"),
        ("台北", "choose 12", "ignore"),
        ("午餐 120", "half-said", "ignore"),
        ("120 現金", "half-said", "ignore"),
        ("午餐 -120 現金", "ledger says", "ignore"),
        ("信用卡", "an answer, or not understood", "ignore"),
        ("Apple Pay", "an answer, or not understood", "ignore"),
        ("最近紀錄", "recent entries", "ignore"),
        ("本月", "sums of 2023-11", "ignore"),
        ("上個月", "sums of 2023-10", "ignore"),
        ("9月", "sums of 2023-09", "ignore"),
        ("2022-09", "sums of 2022-09", "ignore"),
        ("東京都", "an answer, or no place, and help", "ignore"),
        ("謝謝", "a kind word", "ignore"),
        ("多謝您的幫忙喔", "an answer, or not understood", "ignore"),
        ("說明", "help", "ignore"),
        ("hello", "a kind word", "ignore"),
        ("👍", "an answer, or not understood", "ignore"),
        ("", "ignore", "ignore"),
        ("今天天氣真好我們出去玩", "no place, and help", "ignore"),
        ("明天會下雨嗎", "forecast of 住家", "ignore"),
        ("公司天氣", "forecast of 公司", "ignore"),
        ("設定付款 現金", "way to pay", "ignore"),
        ("今天花多少", "sums of 2023-11-15 to 2023-11-15", "ignore"),
        ("飲食花了多少", "sums of 2023-11-01 to 2023-11-15 of 飲食", "ignore"),
        ("上週花了多少錢？", "sums of 2023-11-06 to 2023-11-12", "ignore"),
    ];
    for (words, alone, group) in table {
        if words.is_empty() {
            // LINE sends no empty text; one without words lacks its field.
            check(text("U1", words), alone, false, false);
            continue;
        }
        check(text("U1", words), alone, false, true);
        check(in_group(text("U1", words)), group, false, true);
        let spoken = match alone {
            "recent entries" => "not in a group",
            sums if sums.starts_with("sums of") => "not in a group",
            home if home.starts_with("forecast of") => "name a place",
            alone => alone,
        };
        check(mentioning("U1", words), spoken, false, true);
        check(in_group(text("U1", &format!("記帳 {words}"))), spoken, false, true);
    }
}

#[test]
fn in_a_group_the_bot_is_spoken_to_by_a_mention_or_by_a_word_in_front() {
    for (words, expected) in [
        ("記帳　午餐 120 現金", "note"),
        ("記帳\n早餐 50 現金\n午餐 120 現金", "note"),
        ("記帳午餐 120 現金", "ignore"),
        ("我要記帳 午餐 120 現金", "ignore"),
        ("記帳", "ignore"),
        ("永和天氣", "新北市永和區"),
        ("永和區 天氣", "新北市永和區"),
        ("信義區天氣", "choose 2"),
        ("台北天氣", "choose 12"),
        ("今天天氣", "ignore"),
        ("天氣", "ignore"),
        ("東京天氣", "ignore"),
    ] {
        check(in_group(text("U1", words)), expected, false, true);
        let mut room = text("U1", words);
        room["source"] = json!({"type": "room", "roomId": "R1", "userId": "U1"});
        check(room, expected, false, true);
    }
    // A mention in the midst, after emoji; the mention alone; one that points nowhere; one of another user.
    let mention = |words: &str, mentionee: Value| {
        let mut event = in_group(text("U1", words));
        event["message"]["mention"] = json!({ "mentionees": [mentionee] });
        event
    };
    let bot = |index: i64| json!({"type": "user", "isSelf": true, "index": index, "length": 4});
    check(mention("👍👍 午餐 @小幫手120 現金", bot(8)), "note", false, true);
    check(mention("午餐 120 現金 @小幫手", bot(10)), "note", false, true);
    check(mention("@小幫手", bot(0)), "help", false, true);
    check(mention("👍@小幫手 午餐 120 現金", bot(1)), "ignore", false, true);
    check(mention("午餐 120 現金 @小幫手", bot(-1)), "ignore", false, true);
    let another = json!({"type": "user", "userId": "U2", "isSelf": false, "index": 0, "length": 4});
    check(mention("@小美美 午餐 120 現金", another), "ignore", false, true);
    // An erasure needs a user, whom LINE does not always name in a group.
    let mut nameless = in_group(text("U1", "記帳 刪除我的資料"));
    nameless["source"] = json!({"type": "group", "groupId": "G1"});
    check(nameless, "unknown user", false, true);
}

#[tokio::test]
async fn a_short_text_that_is_no_place_is_answered_with_what_can_be_said() {
    let (bot, user) = (Bot::new(memory()), user());
    let help = bot.ask(&user, "說明").await;
    assert!(help.starts_with("您可以這樣使用："), "{help}");
    let no_place = bot.ask(&user, "設定住家 謝謝").await;
    assert_eq!(no_place, "找不到這個地點，請輸入臺灣的鄉鎮市區名稱，例如：永和區");
    assert_eq!(bot.ask(&user, "謝謝").await, "不客氣！有需要再跟我說 😊");
    for words in ["東京都", "今天天氣真好我們出去玩"] {
        assert_eq!(bot.ask(&user, words).await, format!("{no_place}\n\n{help}"));
        assert_eq!(bot.deliver(&[in_group(text(&user, words))]).await, 200);
        assert_eq!(bot.said(), [] as [&str; 0], "nobody in a group asked the bot");
    }
    for words in ["👍", "我今天忘記帶悠遊卡", "信用卡"] {
        assert!(bot.ask(&user, words).await.starts_with("不好意思，我沒聽懂。"), "{words}");
    }
}

#[test]
fn a_location_is_its_address_or_the_nearest_place_in_taiwan() {
    check(location("U1", "106臺北市大安區和平東路", 0.0, 0.0), "臺北市大安區", false, true);
    check(location("U1", "somewhere", 25.0330, 121.5654), "臺北市信義區", false, true);
    check(location("U1", "東京都", 35.68, 139.76), "only taiwan", false, true);
    check(in_group(location("U1", "東京都", 35.68, 139.76)), "ignore", false, true);
    check(in_group(location("U1", "somewhere", 25.0330, 121.5654)), "臺北市信義區", false, true);
}

#[test]
fn other_events_do_what_they_should_and_take_no_lock() {
    check(event("U1", json!({"type": "follow"})), "follow", false, false);
    check(event("U1", json!({"type": "unfollow"})), "unfollow", false, false);
    check(in_group(event("U1", json!({"type": "join"}))), "greeting", false, false);
    check(in_group(event("U1", json!({"type": "leave"}))), "ignore", false, false);
    check(event("U1", json!({"type": "message", "message": {"type": "sticker"}})), "ignore", false, false);
    check(event("U1", json!({"type": "videoPlayComplete"})), "ignore", false, false);
}

#[tokio::test]
async fn an_event_of_an_unknown_kind_of_chat_is_skipped() {
    let bot = Bot::new(memory());
    for source in [json!({"type": "planet", "userId": "U1"}), json!({})] {
        assert_eq!(bot.deliver(&[event("U1", json!({"type": "follow", "source": source}))]).await, 200);
        assert_eq!(bot.said(), [] as [&str; 0]);
    }
}

#[test]
fn an_event_happened_at_its_timestamp_unless_that_cannot_be_true() {
    const NOW: i64 = 1_800_000_000;
    let (minute, day) = (60, 24 * 3600);
    let at = |timestamp: Value| {
        let event = parse(event("U1", json!({"timestamp": timestamp})));
        Incoming::new(&event, NOW * 1000).at_ms.div_euclid(1000)
    };
    for believed in [0, -1, -10 * minute, -7 * day, 5 * minute] {
        assert_eq!(at(json!((NOW + believed) * 1000)), NOW + believed);
    }
    for wrong in [-7 * day - 1, 5 * minute + 1, -30 * day, 400 * day, -NOW] {
        assert_eq!(at(json!((NOW + wrong) * 1000)), NOW, "{wrong} s");
    }
    for nonsense in [json!(i64::MAX), json!(i64::MIN), json!("soon"), json!(null), json!(1.5e300)] {
        assert_eq!(at(nonsense), NOW);
    }
}
