//! What LINE may do to a reply, for every kind of event: the table in `docs/guarantees.md`, a test a cell. The user hears the answer
//! once wherever a redelivery comes, and never twice.

use std::collections::HashMap;
use std::time::Duration;

use onetap_line::testing::Fault;
use serde_json::{Value, json};

use super::{PROVIDERS, Stage, TIMES, build};
use crate::support::{HOME, SECRET, TOKEN, deliver, redelivered, tap, text, user};
use webhook::Times;

/// What the delivery meets at LINE: at its first reply, or at every one.
#[derive(Clone, Debug)]
enum Meets {
    Once(Fault),
    Always(Fault),
}

/// The end of a delivery whose reply met a fault, and of two redeliveries that LINE takes.
struct Heard {
    /// The status of the delivery.
    status: u16,
    /// How often the user has heard the answer after the delivery.
    first: usize,
    /// How often at last.
    at_last: usize,
}

/// At once, in the delivery.
const AT_ONCE: Heard = Heard { status: 200, first: 1, at_last: 1 };
/// LINE took it, and does not say so: the redelivery learns it.
const BEFORE_IT_IS_KNOWN: Heard = Heard { status: 500, first: 1, at_last: 1 };
/// By the redelivery.
const BY_THE_REDELIVERY: Heard = Heard { status: 500, first: 0, at_last: 1 };
/// Never: LINE refuses it for good.
const NEVER: Heard = Heard { status: 200, first: 0, at_last: 0 };

/// A user with a home, and what the user does; the beginning of the answer.
type Event = fn(&str) -> (Value, &'static str);

async fn meets(fault: Meets, event: Event, expected: Heard) {
    let user = user();
    let (event, beginning) = event(&user);
    let stage = Stage::new().await;
    stage.deliver(&text(&user, "設定住家 臺北市信義區")).await;
    match fault.clone() {
        Meets::Once(fault) => stage.line.fail_next(fault),
        Meets::Always(fault) => stage.line.fail_always(Some(fault)),
    }
    // A reply that hangs takes all its time, twice.
    let urls = [stage.line.url(), stage.provider.url()];
    let variables = HashMap::from([
        ("LINE_CHANNEL_SECRET", SECRET),
        ("LINE_CHANNEL_ACCESS_TOKEN", TOKEN),
        ("LINE_API_BASE_URL", urls[0].as_str()),
        ("WEATHER_PROVIDER", "cwa"),
        ("CWA_API_KEY", "key"),
        ("CWA_API_BASE_URL", &urls[1]),
    ]);
    let hasty = Times { reply: Duration::from_secs(3), ..TIMES };
    let hasty = build(&variables, stage.store.clone(), hasty);
    let hangs = matches!(fault, Meets::Once(Fault::Delay(_)) | Meets::Always(Fault::Delay(_)));
    let webhook = if hangs { &hasty } else { &stage.webhook };
    let status = deliver(webhook, std::slice::from_ref(&event)).await;
    let mut replies = stage.line.take_replies();
    assert_eq!((status, replies.len()), (expected.status, expected.first), "{fault:?}: {beginning}");
    stage.line.fail_always(None);
    for _ in 0..2 {
        assert_eq!(deliver(&stage.webhook, &[redelivered(&event)]).await, 200, "{fault:?}: {beginning}");
        replies.extend(stage.line.take_replies());
    }
    assert_eq!(replies.len(), expected.at_last, "{fault:?}: {beginning}");
    assert!(replies.iter().all(|reply| reply.text().starts_with(beginning)), "{fault:?}: {beginning}");
}

fn answers(status: u16, message: &str) -> Fault {
    Fault::Status(status, json!({ "message": message }).to_string())
}

fn took_it_and_answers(status: u16) -> Fault {
    Fault::AcceptThen(status, "{}".to_owned())
}

/// A test for each of these faults and each kind of event: one that writes nothing, one that reads the store, one that writes a
/// forecast's visit, one that writes an entry, one that writes a setting.
macro_rules! cells {
    ($($fault:ident: $meets:expr => $heard:expr;)*) => {$(
        mod $fault {
            use super::*;

            #[tokio::test]
            async fn a_menu() {
                meets($meets, |user| (tap(user, "action=other"), "其他功能"), $heard).await;
            }

            #[tokio::test]
            async fn a_forecast_of_a_saved_place() {
                meets($meets, |user| (tap(user, HOME), PROVIDERS), $heard).await;
            }

            #[tokio::test]
            async fn a_forecast_that_is_remembered() {
                meets($meets, |user| (text(user, "臺北市信義區"), PROVIDERS), $heard).await;
            }

            #[tokio::test]
            async fn an_entry() {
                meets($meets, |user| (text(user, "午餐 120 信用卡"), "已記帳"), $heard).await;
            }

            #[tokio::test]
            async fn a_setting() {
                meets($meets, |user| (text(user, "設定公司 花蓮市"), "已將公司設定為"), $heard).await;
            }
        }
    )*};
}

cells! {
    line_answers_500_once_and_took_nothing: Meets::Once(answers(500, "no")) => AT_ONCE;
    line_answers_500_once_and_took_it: Meets::Once(took_it_and_answers(500)) => AT_ONCE;
    line_answers_503_once_and_took_nothing: Meets::Once(answers(503, "no")) => AT_ONCE;
    line_closes_the_connection_once_before_it_reads: Meets::Once(Fault::Close) => AT_ONCE;
    line_closes_the_connection_once_after_it_took_it: Meets::Once(Fault::DropAnswer) => AT_ONCE;
    line_answers_500_and_took_nothing: Meets::Always(answers(500, "no")) => BY_THE_REDELIVERY;
    line_answers_500_and_took_it: Meets::Always(took_it_and_answers(500)) => BEFORE_IT_IS_KNOWN;
    line_answers_503_and_took_nothing: Meets::Always(answers(503, "no")) => BY_THE_REDELIVERY;
    line_answers_503_and_took_it: Meets::Always(took_it_and_answers(503)) => BEFORE_IT_IS_KNOWN;
    line_closes_the_connection_before_it_reads: Meets::Always(Fault::Close) => BY_THE_REDELIVERY;
    line_closes_the_connection_after_it_took_it: Meets::Always(Fault::DropAnswer) => BEFORE_IT_IS_KNOWN;
    line_hangs: Meets::Always(Fault::Delay(TIMES.delivery)) => BY_THE_REDELIVERY;
    line_answers_429: Meets::Always(answers(429, "no")) => BY_THE_REDELIVERY;
    line_answers_401: Meets::Always(answers(401, "no")) => BY_THE_REDELIVERY;
    line_answers_403: Meets::Always(answers(403, "no")) => BY_THE_REDELIVERY;
    line_answers_400_to_the_token: Meets::Always(answers(400, "Invalid reply token")) => NEVER;
    line_answers_400_to_the_messages: Meets::Always(answers(400, "The request body has 1 error(s)")) => NEVER;
}
