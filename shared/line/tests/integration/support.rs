//! A Messaging API that knows LINE's rules, and a client of it.

use std::time::Duration;

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_line::{Client, Config, Message, Messages};
use tokio::time::Instant;

pub(crate) const TOKEN: &str = "planted-access-token";

pub(crate) fn start() -> (MessagingApi, Client) {
    let api = MessagingApi::start(Secret::new(TOKEN)).unwrap();
    let client = client(&api.url(), TOKEN);
    (api, client)
}

pub(crate) fn config(url: &str, token: &str) -> Config {
    Config {
        secrets: vec![],
        token: Secret::new(token),
        base_url: url.to_owned(),
        data_base_url: url.to_owned(),
    }
}

pub(crate) fn client(url: &str, token: &str) -> Client {
    Client::new(onetap_http::Client::new(), &config(url, token)).unwrap()
}

pub(crate) fn hello() -> Messages {
    Message::text("您好").into()
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}
