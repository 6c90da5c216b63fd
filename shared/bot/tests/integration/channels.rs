//! Several channels in one function, each with its secret and its token.

use std::sync::Arc;

use onetap_bot::{
    Bot, Config, ConfigError, Context, Incoming, Message, Result, State, Ttl, Variables, Webhook,
};
use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_store::Memory;
use serde_json::{Value, json};

use onetap_bot::testing::{deliver, text, user};

const COUNT: State<u32> = State::new("count", Ttl::Forever);

/// Says to which channel it was spoken, and how often.
#[derive(Debug)]
struct Concierge;

impl Bot for Concierge {
    type Ask = ();

    fn ask(&self, incoming: &Incoming<'_>) -> Option<()> {
        incoming.text().map(drop)
    }

    async fn answer(&self, context: &Context<'_>, _: &()) -> Result {
        let channel = context.incoming().channel.unwrap_or("the only one").to_owned();
        let change = context.change(&COUNT, move |count| {
            *count += 1;
            Message::text(format!("{channel}: {count}"))
        });
        Ok(change.into())
    }
}

fn config(variables: &[(&str, String)]) -> std::result::Result<Config, ConfigError> {
    let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
    Config::from_variables(&Variables::from_lookup(|name| value(name).map(|(_, value)| value.clone())))
}

fn channels(json: &Value) -> Vec<(&'static str, String)> {
    vec![("LINE_CHANNELS", json.to_string())]
}

fn two() -> Value {
    json!([
        {"destination": "Ushop", "secret": "shop-secret", "access_token": "planted-shop-token"},
        {
            "destination": "Uhelp", "secret": "help-secret,old-help-secret", "access_token": "planted-help-token",
            "name": "help",
        },
    ])
}

#[tokio::test]
async fn each_channel_has_its_own_secret_and_token_and_state() {
    // A stub of LINE takes one token: each channel's replies go to its own.
    for (destination, secret, token) in [
        ("Ushop", "shop-secret", "planted-shop-token"),
        ("Uhelp", "help-secret", "planted-help-token"),
        ("Uhelp", "old-help-secret", "planted-help-token"),
    ] {
        let line = MessagingApi::start(Secret::new(token)).unwrap();
        let mut variables = channels(&two());
        variables.push(("LINE_API_BASE_URL", line.url()));
        let config = config(&variables).unwrap();
        let http = onetap_http::Client::new();
        let webhook = Webhook::new(Arc::new(Memory::new()), Concierge, &http, config).unwrap();
        let user = user();
        let body = |to: &str, words| json!({"destination": to, "events": [text(&user, words)]});
        assert_eq!(deliver(&webhook, secret, &body(destination, "hello")).await, 200);
        let replies = line.take_replies();
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].text(), format!("{destination}: 1"));
        // Signed by one channel for another.
        let other = if destination == "Ushop" { "Uhelp" } else { "Ushop" };
        assert_eq!(deliver(&webhook, secret, &body(other, "hello")).await, 401);
        assert_eq!(deliver(&webhook, "nobodys-secret", &body(destination, "hello")).await, 401);
        assert_eq!(line.take_replies().len(), 0);
        // The other channel's token is another; its reply is refused here, and its state is its own.
        let other_secret = if other == "Ushop" { "shop-secret" } else { "help-secret" };
        assert_eq!(deliver(&webhook, other_secret, &body(other, "hello")).await, 500);
    }
}

/// A user has one id for all channels of a provider. What a bot keeps in one of them stays where a second one is added.
#[tokio::test]
async fn a_channel_that_is_added_leaves_the_states_of_the_first_as_they_are() {
    let line = MessagingApi::start(Secret::new("planted-shop-token")).unwrap();
    let (store, user) = (Arc::new(Memory::new()), user());
    let alone = vec![
        ("LINE_CHANNEL_SECRET", "shop-secret".to_owned()),
        ("LINE_CHANNEL_ACCESS_TOKEN", "planted-shop-token".to_owned()),
    ];
    for (variables, destination, secret, status, said) in [
        (alone, "Ushop", "shop-secret", 200, vec!["the only one: 1"]),
        (channels(&two()), "Ushop", "shop-secret", 200, vec!["Ushop: 2"]),
        // Its reply is refused by this stub, which knows the other token.
        (channels(&two()), "Uhelp", "help-secret", 500, vec![]),
        (channels(&two()), "Ushop", "shop-secret", 200, vec!["Ushop: 3"]),
    ] {
        let config = config(&[variables, vec![("LINE_API_BASE_URL", line.url())]].concat()).unwrap();
        let webhook = Webhook::new(store.clone(), Concierge, &onetap_http::Client::new(), config).unwrap();
        let body = json!({"destination": destination, "events": [text(&user, "hello")]});
        assert_eq!(deliver(&webhook, secret, &body).await, status);
        assert_eq!(line.take_replies().iter().map(|reply| reply.text()).collect::<Vec<_>>(), said);
    }
}

#[test]
fn a_wrong_list_of_channels_stops_the_start_and_shows_no_secret() {
    let secret = "planted-secret-of-a-channel";
    let channel = |destination: &str, secret: &str, token: &str| json!({"destination": destination, "secret": secret, "access_token": token});
    let named = |destination: &str, secret: &str, name: &str| json!({"destination": destination, "secret": secret, "access_token": "t", "name": name});
    for (wrong, problem) in [
        (json!([]), "names no channel"),
        (json!({"destination": "U1"}), "is not JSON of the form"),
        (json!([{"destination": "U1", "secret": secret}]), "is not JSON of the form"),
        (json!([channel("U1", secret, "t"), channel("U1", "other", "t")]), "channel 2 has the destination"),
        (json!([channel("U1", secret, "t"), named("U2", secret, "a")]), "two channels have the same secret"),
        (json!([channel("U1", secret, "t"), channel("U2", "other", "t")]), "channel 2 needs a `name`"),
        (
            json!([named("U1", secret, "a"), channel("U2", "b", "t"), named("U3", "c", "a")]),
            "channel 3 has the name of another one",
        ),
        (json!([named("U1", secret, " ")]), "channel 1 has an empty field"),
        (json!([channel("", secret, "t")]), "channel 1 has an empty field"),
        (json!([channel("U1", secret, "to\nken")]), "channel 1: LINE_CHANNEL_ACCESS_TOKEN"),
    ] {
        let error = config(&channels(&wrong)).unwrap_err();
        assert_eq!(error.variable(), "LINE_CHANNELS");
        let text = error.to_string();
        assert!(text.contains(problem), "{text}");
        assert!(!text.contains(secret) && !format!("{error:?}").contains(secret), "{text}");
    }
    let mut both = channels(&two());
    both.push(("LINE_CHANNEL_SECRET", secret.to_owned()));
    let error = config(&both).unwrap_err().to_string();
    assert!(error.contains("LINE_CHANNEL_SECRET") && !error.contains(secret), "{error}");
    let shown = |config: &Config| format!("{config:?}");
    let shown = shown(&config(&channels(&two())).unwrap());
    for hidden in ["shop-secret", "help-secret", "planted-shop-token", "planted-help-token"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}
