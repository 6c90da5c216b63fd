//! Settings: `設定付款 現金`.

use super::tables::TABLES;
use super::{Problem, Sentence};

const SET: [&str; 9] = [
    "設定付款方式",
    "設定預設付款",
    "設定付款",
    "預設付款方式",
    "預設付款",
    "預設支付",
    "設定支付方式",
    "以後都用",
    "之後都用",
];
const NONE: [&str; 8] = ["取消", "無", "不要", "沒有", "不設定", "清除", "關閉", "問我"];
const MAX_CHARS: usize = 20;

/// The setting that the text makes; `None` if it makes none.
pub(super) fn parse(text: &str) -> Option<Sentence> {
    if ["取消預設付款", "取消付款設定", "取消設定付款"].iter().any(|word| text.starts_with(word))
    {
        return Some(Sentence::SetPayment(None));
    }
    let name = SET.iter().find_map(|word| text.strip_prefix(word))?;
    let name = name.trim_start_matches([' ', ':', '=', '為', '是', '用', '成']);
    let name = name.trim_end_matches(['。', '!', '~', ' ', '吧', '付', '喔']);
    Some(match TABLES.payments.whole(name) {
        Some(name) => Sentence::SetPayment(Some(name.to_owned())),
        None if NONE.contains(&name) => Sentence::SetPayment(None),
        None if name.is_empty() => {
            Sentence::EditProblem(Problem::from("請說要預設哪一種付款方式，例如：設定付款 現金"))
        }
        None if name.chars().count() > MAX_CHARS
            || name.contains(|c: char| c.is_ascii_digit() || c == ' ') =>
        {
            Sentence::EditProblem(Problem::from("付款方式請用簡短的名稱，例如：設定付款 現金"))
        }
        None => Sentence::SetPayment(Some(name.to_owned())),
    })
}
