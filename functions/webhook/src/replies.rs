//! What is said, in the words of the bot.

use onetap_line::{Action, Message, Messages};
use onetap_weather::Place;

use crate::plan::{Saved, Say};

/// To a second tap while the first is being handled, unless `PROCESSING_LOCK_MESSAGE` says otherwise.
pub const PROCESSING: &str = "⏳ 正在為您查詢天氣，請稍候...";
/// Where the store or a forecast is needed and cannot be had.
pub const BUSY: &str = "系統暫時有點忙，請稍後再試一次。";

const NO_SUCH_PLACE: &str = "找不到這個地點，請輸入臺灣的鄉鎮市區名稱，例如：永和區";
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

/// The answer that is known.
pub fn say(say: &Say) -> Messages {
    match say {
        Say::AskLocation => Message::text("請傳送您的位置，為您查詢當地天氣。")
            .quick_reply(Action::location("傳送位置"))
            .into(),
        Say::Settings => Message::text("請輸入「設定住家 地名」或「設定公司 地名」，例如：設定住家 永和區")
            .quick_reply(Action::message("設定住家", "設定住家"))
            .quick_reply(Action::message("設定公司", "設定公司"))
            .into(),
        Say::Other => Message::text("其他功能")
            .quick_reply(Action::message("使用說明", "使用說明"))
            .quick_reply(Action::postback("最近查詢", "action=recent_queries"))
            .into(),
        Say::UnknownAction => text("未知的操作"),
        Say::Choose(places, saved) => {
            let choose = Message::text("找到多個符合的地點，請選擇：");
            let choice = |place: &Place| match saved {
                // A postback: in a group a text would have to be spoken to the bot.
                Some(saved) => Action::postback(place.name(), saved.data(place)),
                None => Some(Action::message(place.name(), place.name())),
            };
            let offer = |message: Message, place: &&'static Place| message.quick_reply(choice(place));
            places.iter().fold(choose, offer).into()
        }
        Say::NoSuchPlace => text(NO_SUCH_PLACE),
        Say::NoPlaceHelp => text(format!("{NO_SUCH_PLACE}\n\n{HELP}")),
        Say::SaveWhich(saved) => {
            text(format!("請輸入「設定{} 地名」，例如：設定{} 永和區", saved.name(), saved.name()))
        }
        Say::OnlyTaiwan => text("目前只提供臺灣地區的天氣查詢。"),
        Say::Help => text(HELP),
        Say::NotUnderstood => text(NOT_UNDERSTOOD),
        Say::NamePlaceInAGroup => text("在群組裡請說地名，例如：永和區天氣"),
        Say::Greeting => text(format!("大家好！{HELP}\n\n{SPEAKING_IN_A_GROUP}")),
        Say::NotInAGroup => text("為了保護您的隱私，請在和我的一對一聊天裡查帳。"),
        Say::ConfirmErasure(data) => Message::text(
            "確定要刪除您的所有資料嗎？記帳紀錄、地點與設定都會刪除，而且無法復原。\n\
             確定的話，請在 5 分鐘內按「確定刪除」；不按就什麼都不會變。",
        )
        .quick_reply(Action::postback("確定刪除", data))
        .into(),
        Say::ErasureNotConfirmed => text(
            "這個按鈕已經過期，或不是您的按鈕，所以沒有刪除任何資料。\n\
             如果要刪除您的資料，請再輸入一次「刪除我的資料」。",
        ),
        Say::UnknownUser => text("LINE 沒有告訴我您是誰，請在和我的一對一聊天裡再說一次。"),
        Say::Kind(answer) => text(*answer),
    }
}

/// To a user who came.
pub fn welcome() -> Messages {
    text(format!("歡迎使用！{HELP}"))
}

/// After a place was saved.
pub fn saved(saved: Saved, place: &Place) -> Messages {
    text(format!("已將{}設定為{}", saved.name(), place.name()))
}

/// Where the place that is asked for was never saved.
pub fn not_saved(saved: Saved) -> Messages {
    text(format!(
        "尚未設定{}，請輸入「設定{} 地名」，例如：設定{} 永和區",
        saved.name(),
        saved.name(),
        saved.name()
    ))
}

/// The places that were asked for last.
pub fn recent(places: &[&'static Place]) -> Messages {
    if places.is_empty() {
        return text("目前沒有最近查詢的地點，請輸入地名查詢天氣。");
    }
    let offer = |message: Message, place: &&'static Place| {
        message.quick_reply(Action::message(place.name(), place.name()))
    };
    places.iter().fold(Message::text("最近查詢的地點："), offer).into()
}

/// After everything was erased. Answers that are kept for repeated requests are not found by the user's id; they end by
/// themselves.
pub fn erased() -> Messages {
    text("已刪除您的所有資料。\n為避免重複處理而暫存的回覆，會在一天內自動刪除。")
}

/// After everything was hidden, and not yet all of it removed from the store.
pub fn erasure_unfinished() -> Messages {
    text("您的資料已不再顯示，但資料量大，尚未全部清除。請稍後再傳一次「刪除我的資料」以完成清除。")
}
