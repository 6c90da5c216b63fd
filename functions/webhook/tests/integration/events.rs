//! The deliveries under `events/webhook`, as Lambda would hand them over.

use crate::support;

use std::path::{Path, PathBuf};

use lambda_http::request::from_str;
use onetap_ledger::{Moment, Month};
use support::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/webhook")
}

#[tokio::test]
async fn every_delivery_gets_the_answer_of_its_name() {
    let bot = Bot::with(memory(), &[("LINE_CHANNEL_SECRET", "local-channel-secret")]);
    let this_month = format!("{} 共 5 筆，合計 465 TWD", Month::from(Moment::now().date()));
    // In this order they tell a story: the file, its status, how each reply begins.
    let story: [(&str, u16, &[&str]); 21] = [
        ("verify", 200, &[]),
        ("wrong-signature", 401, &[]),
        ("not-json", 400, &[]),
        ("follow", 200, &["歡迎使用"]),
        ("set-home", 200, &["已將住家設定為新北市永和區"]),
        ("tap-home", 200, &["新北市永和區（範例資料）"]),
        ("redelivery", 200, &[]),
        ("double-tap", 200, &["⏳ 正在為您查詢天氣，請稍候...", "新北市永和區（範例資料）"]),
        ("place", 200, &["花蓮縣花蓮市（範例資料）"]),
        ("location", 200, &["臺北市中正區（範例資料）"]),
        ("recent", 200, &["最近查詢的地點："]),
        ("entry", 200, &["已記帳"]),
        ("edit-entry", 200, &["修改成功\n• 原幣金額：120 → 150"]),
        ("three-entries", 200, &["已記帳：\n• "]),
        ("half-said", 200, &["「午餐」100 元的付款方式是什麼？"]),
        ("rest-of-entry", 200, &["已記帳：\n• "]),
        ("this-month", 200, &[&this_month]),
        ("group", 200, &[]),
        ("unknown-kinds", 200, &["新北市永和區（範例資料）"]),
        ("base64", 200, &["新北市板橋區（範例資料）"]),
        ("erase", 200, &["確定要刪除您的所有資料嗎？"]),
    ];
    for (name, status, replies) in story {
        let event = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        let answer = bot.webhook.handle(from_str(&event).unwrap()).await;
        assert_eq!(answer.status().as_u16(), status, "{name}");
        let said = bot.said();
        assert_eq!(said.len(), replies.len(), "{name}: {said:?}");
        assert!(said.iter().zip(replies).all(|(said, start)| said.starts_with(start)), "{name}: {said:?}");
    }
    for file in std::fs::read_dir(folder()).unwrap() {
        let name = file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(story.iter().any(|(told, ..)| *told == name), "{name} is in no story");
    }
}
