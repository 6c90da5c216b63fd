//! The phone of `docs/own-bot.md`, for the bot of that page.

use std::process::ExitCode;

#[path = "../../shared/bot/examples/counter.rs"]
#[allow(dead_code, unreachable_pub, reason = "it has a main of its own")]
mod my_bot;

#[tokio::main]
async fn main() -> ExitCode {
    onetap_local::run(my_bot::Counter).await
}
