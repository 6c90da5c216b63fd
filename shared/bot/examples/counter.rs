//! A bot that counts what each user says: one write for each event, exactly once.

use onetap_bot::{Bot, Context, Incoming, Key, Message, Result, State, Ttl, run};
use serde::{Deserialize, Serialize};

/// What the bot keeps for each user in each chat.
#[derive(Default, Serialize, Deserialize)]
struct Count {
    said: u64,
}

const COUNT: State<Count> = State::new("count", Ttl::Forever);

/// The bot.
#[derive(Debug)]
pub struct Counter;

impl Bot for Counter {
    type Ask = ();

    /// Texts are counted, and nothing else.
    fn ask(&self, incoming: &Incoming<'_>) -> Option<()> {
        incoming.text().map(drop)
    }

    /// The count is read in the round trip that claims the event.
    fn reads(&self, incoming: &Incoming<'_>, _: &()) -> Vec<Key> {
        COUNT.keys(incoming)
    }

    /// The new count and the event's marker are one commit; the reply follows it.
    async fn answer(&self, context: &Context<'_>, _: &()) -> Result {
        let change = context.change(&COUNT, |count| {
            count.said += 1;
            Message::text(format!("That was number {}.", count.said))
        });
        Ok(change.into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    run(Counter).await
}
