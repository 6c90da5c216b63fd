//! The phone with a bot of one's own.

use onetap_bot::line::Card;
use onetap_bot::{Action, Bot, Context, Incoming, Message, Overlap, Result, State, Ttl};
use onetap_config::Variables;
use onetap_local::arguments::Options;
use onetap_local::{Local, OwnBot};

use crate::support::{ALICE, BOB, Runner, tap, text};

const TAPS: State<u32> = State::new("taps", Ttl::Forever);

/// Offers a button, and counts its taps.
struct Shop;

impl Bot for Shop {
    type Ask = bool;

    fn ask(&self, incoming: &Incoming<'_>) -> Option<bool> {
        incoming.data().map(|_| true).or(incoming.text().map(|_| false))
    }

    fn overlap(&self, _: &Incoming<'_>, is_tap: &bool) -> Overlap {
        if *is_tap { Overlap::Busy } else { Overlap::Concurrent }
    }

    async fn answer(&self, context: &Context<'_>, is_tap: &bool) -> Result {
        if !is_tap {
            let card = Card::new("What would you like?").button(Action::postback("Tea", "order=tea"));
            return Ok(Message::buttons("a menu", card).ok_or("a menu")?.into());
        }
        let change = context.change(&TAPS, |taps| {
            *taps += 1;
            Message::text(format!("taps: {taps}"))
        });
        Ok(change.into())
    }
}

pub(crate) fn shop() -> OwnBot {
    OwnBot::new(|_, _| Ok(Shop))
}

#[tokio::test]
async fn the_phone_talks_to_a_bot_of_ones_own_and_shows_what_it_keeps() {
    let runner = Runner::with_bot(&[], Some(shop())).await;
    assert_eq!(runner.deliver(ALICE, text("hello"), 1).await, ["handled"]);
    assert_eq!(runner.deliver(ALICE, tap("order=tea"), 1).await, ["handled"]);
    assert_eq!(runner.deliver(BOB, tap("order=tea"), 1).await, ["handled"]);
    assert_eq!(runner.deliver(ALICE, tap("order=tea"), 1).await, ["handled"]);
    assert_eq!(runner.said(ALICE).await, ["[template: a menu]", "taps: 1", "taps: 2"]);
    assert_eq!(runner.said(BOB).await, ["taps: 1"]);
    let snapshot = runner.snapshot().await;
    assert_eq!(snapshot["replies"][0]["quick_replies"][0]["data"], "order=tea", "a button of a template");
    let keys: Vec<_> = snapshot["keys"].as_array().unwrap().iter().map(|key| key["key"].clone()).collect();
    assert!(keys.contains(&format!("user:{ALICE}:taps").into()), "{keys:?}");
    assert!(!keys.iter().any(|key| key.as_str().unwrap().ends_with(":profile")), "{keys:?}");
    runner.local.stop().await;
}

#[tokio::test]
async fn several_channels_are_not_for_the_runner() {
    let set = |name: &str| (name == "LINE_CHANNELS").then(|| "[]".to_owned());
    let options = Options { port: Some(0), ..Options::default() };
    let error = Local::start(&options, &Variables::from_lookup(set)).await.unwrap_err();
    assert!(error.to_string().starts_with("LINE_CHANNELS: "), "{error}");
}
