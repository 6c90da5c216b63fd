//! A bot with buttons: a second tap, while the first is being handled, is told to wait.

use onetap_bot::{Action, Bot, Context, Incoming, Message, Overlap, Result, run};

/// What an event asks for.
#[derive(Debug)]
pub enum Ask {
    /// The menu.
    Menu,
    /// A drink of it.
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

    /// Which events take the user's lock: a match without a default, so that a new button has to say it.
    fn overlap(&self, _: &Incoming<'_>, ask: &Ask) -> Overlap {
        match ask {
            Ask::Menu => Overlap::Concurrent,
            Ask::Order(_) => Overlap::Busy,
        }
    }

    async fn answer(&self, context: &Context<'_>, ask: &Ask) -> Result {
        let drink = match ask {
            Ask::Menu => {
                let button = |drink| Action::postback(drink, format!("order={drink}"));
                let menu = Message::text("What would you like?");
                return Ok(menu.quick_reply(button("latte")).quick_reply(button("tea")).into());
            }
            Ask::Order(drink) => drink,
        };
        // The same key in every delivery of this tap: a kitchen that knows it makes one cup.
        let key = context.effect_keys().ok_or("LINE gave the tap no id")?.key("order").uuid();
        Ok(Message::text(format!("One {drink}, order {key}.")).into())
    }

    fn busy(&self) -> Message {
        Message::text("Your order is on its way.")
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    run(Cafe).await
}
