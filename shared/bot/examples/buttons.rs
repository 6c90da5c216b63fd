//! A bot with buttons: a second tap, while the first is being handled, gets another answer.

use onetap_bot::{Action, Answer, Bot, Context, Incoming, Message, Messages, Overlap, Result, run};

/// What an event asks for.
#[derive(Debug)]
pub enum Ask {
    /// The menu.
    Menu,
    /// This drink.
    Order(String),
}

/// The bot.
#[derive(Debug)]
pub struct Cafe;

impl Bot for Cafe {
    type Ask = Ask;

    fn ask(&self, incoming: &Incoming<'_>) -> Option<Ask> {
        let ordered = incoming.data().and_then(|data| data.strip_prefix("order="));
        ordered.map(|drink| Ask::Order(drink.to_owned())).or(incoming.text().map(|_| Ask::Menu))
    }

    /// A match without a default: a new button has to say whether it takes the user's lock.
    fn overlap(&self, _: &Incoming<'_>, ask: &Ask) -> Overlap {
        match ask {
            Ask::Menu => Overlap::Concurrent,
            Ask::Order(_) => Overlap::Busy,
        }
    }

    async fn answer(&self, context: &Context<'_>, ask: &Ask) -> Result {
        let Ask::Order(drink) = ask else {
            let button = Action::postback("tea", "order=tea");
            return Ok(Message::text("What would you like?").quick_reply(button).into());
        };
        // The same key in every delivery of this tap: a kitchen that has seen it makes no second cup.
        let key = context.effect_keys().ok_or("LINE gave the tap no id")?.key("order").uuid();
        match tokio::time::timeout_at(context.deadline(), order(drink, &key)).await {
            Ok(Ok(number)) => Ok(Message::text(format!("One {drink}, order {number}.")).into()),
            // It may have taken the order: ask again, with the same key. An error would end the event.
            _ => Ok(Answer::again()),
        }
    }

    fn busy(&self) -> Messages {
        Message::text("Your order is on its way.").into()
    }
}

/// In place of a request to the kitchen, with the key in a header.
async fn order(_drink: &str, key: &str) -> Result<String> {
    Ok(key.to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    run(Cafe).await
}
