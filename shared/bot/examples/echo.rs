//! A bot that repeats every text.

use onetap_bot::{Incoming, Message, reply_fn, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    run(reply_fn(|incoming: &Incoming<'_>| incoming.text().map(Message::text))).await
}
