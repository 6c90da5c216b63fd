//! A program of its own: the subscriber that catches its log lines is the process's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

use std::io::Write;
use std::sync::{Arc, Mutex};

use onetap_bot::testing::Phone;
use onetap_bot::{Bot, Context, Incoming, Result};
use onetap_telemetry::LevelFilter;

/// Fails as it is told, each time with the words of the user.
struct Clumsy;

impl Bot for Clumsy {
    type Ask = String;

    fn ask(&self, incoming: &Incoming<'_>) -> Option<String> {
        incoming.text().map(str::to_owned)
    }

    async fn answer(&self, context: &Context<'_>, words: &String) -> Result {
        match words.split_once(' ') {
            Some(("fail", said)) => Err(format!("cannot do {said}"))?,
            Some(("panic", said)) => panic!("cannot do {said}"),
            _ => Err(context.line().profile("not an id", context.deadline()).await.unwrap_err())?,
        }
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_bot_fails_with_is_logged_only_if_it_quotes_no_user() {
    let lines = Lines::default();
    let writer = lines.clone();
    onetap_telemetry::init_with(LevelFilter::INFO, move || writer.clone());
    let phone = Phone::new(Clumsy);
    for (words, logged) in [
        ("fail planted-word", "RUST_LOG=debug shows the error"),
        ("panic planted-word", "the bot has panicked"),
        ("ask LINE", "LINE refuses the request"),
    ] {
        assert_eq!(phone.say("Uplanted", words).await.len(), 1);
        let said = String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap();
        assert!(said.contains(logged), "{words}: {said}");
        assert!(!said.contains("planted"), "{words}: {said}");
    }
}
