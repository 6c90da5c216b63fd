//! The events under `events/edit-last-transaction`, as Lambda would deliver them.

use crate::support;

use std::path::Path;

use edit_last_transaction::{Config, EditLastTransaction};
use lambda_http::request::from_str;
use onetap_config::Secret;
use support::{Reply, config, memory};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../events/edit-last-transaction")
}

#[tokio::test]
async fn every_event_gets_the_answer_of_its_name() {
    let config = Config { tokens: vec![Secret::new("local-edit-token")], ..config() };
    let function = EditLastTransaction::new(memory(), config);
    // In this order they tell a story.
    let story = [
        ("openapi", 200, "3.1.0"),
        ("read", 404, "目前沒有可修改的交易記錄"),
        ("record", 201, r#""原幣金額":100.10"#),
        ("read", 200, r#""原幣金額":100.10"#),
        ("edit", 200, r#""原幣金額":150,"#),
        ("edit-base64", 200, "工作午餐"),
        ("edit-once", 200, "教育"),
        ("edit-once", 200, "教育"),
        ("edit-of-another", 412, "交易已變更，請重新操作"),
        ("edit-invalid", 422, "顏色是未知的欄位"),
        ("unauthorized", 401, "bearer"),
        ("month", 200, r#"{"month":"2025-11","count":1,"total_twd":"150","income_twd":"0","#),
        ("month-csv", 200, "\u{feff}intent,日期,"),
        ("month-wrong", 400, "month 必須是存在的月份"),
        ("delete", 204, ""),
        ("month", 200, r#""count":0"#),
        ("delete", 404, "目前沒有可修改的交易記錄"),
    ];
    for (name, status, part) in story {
        let event = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        let reply = Reply::new(function.handle(from_str(&event).unwrap()).await);
        assert_eq!(reply.status, status, "{name}: {}", reply.body);
        assert!(reply.body.contains(part), "{name}: {}", reply.body);
    }
    for file in std::fs::read_dir(folder()).unwrap() {
        let name = file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(story.iter().any(|(told, ..)| *told == name), "{name} is in no story");
    }
}

#[tokio::test]
async fn a_stage_in_the_path_is_not_part_of_it() {
    let function = EditLastTransaction::new(memory(), config());
    let event = std::fs::read_to_string(folder().join("openapi.json")).unwrap().replace("$default", "prod");
    assert_eq!(function.handle(from_str(&event).unwrap()).await.status(), 200);
}
