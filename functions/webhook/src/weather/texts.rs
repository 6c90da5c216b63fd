//! The answers of this skill, in the words of the bot.

use onetap_line::{Action, Message, Messages};
use onetap_weather::Place;

use super::Saved;
use crate::replies::text;

/// Which of these places is meant.
pub(super) fn choose(places: &[&'static Place], saved: Option<Saved>) -> Messages {
    let choose = Message::text("找到多個符合的地點，請選擇：");
    let choice = |place: &Place| match saved {
        // A postback: in a group a text would have to be spoken to the bot.
        Some(saved) => Action::postback(place.name(), data(saved, place)),
        None => Some(Action::message(place.name(), place.name())),
    };
    let offer = |message: Message, place: &&'static Place| message.quick_reply(choice(place));
    places.iter().fold(choose, offer).into()
}

/// The data of a button that saves `place` as this one.
fn data(saved: Saved, place: &Place) -> String {
    let name = match saved {
        Saved::Home => "home",
        Saved::Office => "office",
    };
    format!("action=save&type={name}&place={}", place.name())
}

/// Asks where the user is.
pub(super) fn ask_location() -> Messages {
    Message::text("請傳送您的位置，為您查詢當地天氣。").quick_reply(Action::location("傳送位置")).into()
}

/// How places are saved.
pub(super) fn settings() -> Messages {
    Message::text("請輸入「設定住家 地名」或「設定公司 地名」，例如：設定住家 永和區")
        .quick_reply(Action::message("設定住家", "設定住家"))
        .quick_reply(Action::message("設定公司", "設定公司"))
        .into()
}

/// Which place is to be saved.
pub(super) fn save_which(saved: Saved) -> Messages {
    let name = saved.name();
    text(format!("請輸入「設定{name} 地名」，例如：設定{name} 永和區"))
}

/// After a place was saved.
pub(super) fn saved(saved: Saved, place: &Place) -> Messages {
    text(format!("已將{}設定為{}", saved.name(), place.name()))
}

/// Where the place that is asked for was never saved.
pub(super) fn not_saved(saved: Saved) -> Messages {
    let name = saved.name();
    text(format!("尚未設定{name}，請輸入「設定{name} 地名」，例如：設定{name} 永和區"))
}

/// The places that were asked for last.
pub(super) fn recent(places: &[&'static Place]) -> Messages {
    if places.is_empty() {
        return text("目前沒有最近查詢的地點，請輸入地名查詢天氣。");
    }
    let offer = |message: Message, place: &&'static Place| {
        message.quick_reply(Action::message(place.name(), place.name()))
    };
    places.iter().fold(Message::text("最近查詢的地點："), offer).into()
}
