//! Runs the bot.

use std::process::ExitCode;

use webhook::Assistant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    onetap_bot::run_with(Assistant::from_variables).await
}
