//! What belongs to no skill, in the words of the bot.

use onetap_line::{Action, Message, Messages};

/// To a second tap while the first is being handled, unless `PROCESSING_LOCK_MESSAGE` says otherwise.
pub const PROCESSING: &str = "⏳ 正在為您查詢天氣，請稍候...";
/// Where the store or a forecast is needed and cannot be had.
pub const UNAVAILABLE: &str = "系統暫時有點忙，請稍後再試一次。";

/// To the name of no place.
pub(crate) const NO_SUCH_PLACE: &str = "找不到這個地點，請輸入臺灣的鄉鎮市區名稱，例如：永和區";
const HELP: &str = "您可以這樣使用：\n\
    • 輸入地名查天氣：信義區、永和、花蓮市\n\
    • 傳送位置訊息查當地天氣\n\
    • 設定住家 永和區、設定公司 信義區\n\
    • 記帳：午餐 120 信用卡、昨天計程車 250 現金\n\
    • 改錯：改成150、分類改成娛樂、刪掉剛剛那筆\n\
    • 查帳：今天花多少、本週、上個月、飲食花了多少、最近紀錄\n\
    • 設定付款 現金（之後不用每次說）\n\
    • 清除資料：刪除我的資料";
const NOT_UNDERSTOOD: &str = "不好意思，我沒聽懂。記帳請說「午餐 120 現金」，查天氣請說「永和區」；\
    輸入「說明」可以看所有用法。";
const SPEAKING_IN_A_GROUP: &str = "在群組裡請先 @ 我，或在前面加上「記帳 」，例如：記帳 午餐 120 信用卡\n\
    查天氣請輸入完整地名，例如：永和區、永和天氣";

/// A message of these words.
pub fn text(text: impl Into<String>) -> Messages {
    Message::text(text).into()
}

/// Where the store or a forecast is needed and cannot be had.
pub(crate) fn unavailable() -> Messages {
    text(UNAVAILABLE)
}

/// What can be said.
pub(crate) fn help() -> Messages {
    text(HELP)
}

/// To a text that is not understood.
pub(crate) fn not_understood() -> Messages {
    text(NOT_UNDERSTOOD)
}

/// To a text that may have been meant as a place: there is none of that name, and what can be said.
pub(crate) fn no_place_help() -> Messages {
    text(format!("{NO_SUCH_PLACE}\n\n{HELP}"))
}

/// The menu of everything else.
pub(crate) fn other() -> Messages {
    Message::text("其他功能")
        .quick_reply(Action::message("使用說明", "使用說明"))
        .quick_reply(Action::postback("最近查詢", "action=recent_queries"))
        .into()
}

/// To a group that the bot joined.
pub(crate) fn greeting() -> Messages {
    text(format!("大家好！{HELP}\n\n{SPEAKING_IN_A_GROUP}"))
}

/// To a user who came.
pub(crate) fn welcome() -> Messages {
    text(format!("歡迎使用！{HELP}"))
}
