//! LINE: the channel access token, the webhook URL that LINE has, the message quota, and LINE's own test of the webhook.

mod api;

use std::time::Duration;

use http::Uri;
use onetap_config::Variables;
use onetap_line::Config;
use serde::Deserialize;

use self::api::{Api, Failure};
use crate::{Finding, Report, Status};

const OF: &str = "line";
/// Time limit for the answers that a check needs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for LINE's test of the webhook, which LINE waits for meanwhile.
const WEBHOOK_TEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Where the webhook is, as `template.yaml` routes it.
const WEBHOOK_PATH: &str = "/line/webhook";

/// Checks the channel of `LINE_CHANNEL_ACCESS_TOKEN`. LINE calls the webhook only with `send`.
pub async fn examine(variables: &Variables<'_>, send: bool, report: &mut Report) {
    let api = open(variables);
    let bot = match &api {
        Ok(api) => bot(api).await,
        Err(why) => Finding::skipped(OF, "bot", why),
    };
    report.add(bot.clone());
    let Some(api) = api.ok().filter(|_| bot.status != Status::Wrong) else {
        for check in ["webhook", "quota", "webhook-test"] {
            report.add(Finding::needs(OF, check, &bot));
        }
        return;
    };

    let webhook = webhook(&api).await;
    report.add(webhook.clone());
    report.add(quota(&api).await);
    report.add(match webhook.status {
        Status::Wrong => Finding::needs(OF, "webhook-test", &webhook),
        _ if send => webhook_test(&api).await,
        _ => Finding::skipped(
            OF,
            "webhook-test",
            "with --send LINE calls the webhook, which proves its channel secret",
        ),
    });
}

/// The Messaging API, or why it is not asked.
fn open(variables: &Variables<'_>) -> Result<Api, String> {
    const TOKEN: &str = "LINE_CHANNEL_ACCESS_TOKEN";
    if variables.optional("LINE_CHANNELS").is_ok_and(|set| set.is_some()) {
        return Err(format!("one channel is checked at a time: set its {TOKEN} in place of LINE_CHANNELS"));
    }
    if variables.optional(TOKEN) == Ok(None) {
        return Err(format!("{TOKEN} is not set"));
    }
    // The channel secret is not needed for any call. If it is missing, the webhook's own check says so.
    let lookup = |name: &str| match name {
        "LINE_CHANNEL_SECRET" => Ok(Some("not used".to_owned())),
        _ => variables.optional(name),
    };
    let config = Config::from_variables(&Variables::try_from_lookup(lookup));
    let api = config.and_then(|config| Api::new(&config));
    api.map_err(|_| "needs webhook variables".to_owned())
}

async fn bot(api: &Api) -> Finding {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Bot {
        display_name: String,
        basic_id: String,
        chat_mode: Option<String>,
    }
    match api.get::<Bot>("/v2/bot/info", api::deadline(ANSWER_TIMEOUT)).await {
        Ok(bot) => {
            // Webhooks come also while people can answer by hand: nothing is wrong with that.
            let chat = if bot.chat_mode.as_deref() == Some("chat") {
                ", people may answer too (chat is on)"
            } else {
                ""
            };
            Finding::ok(
                OF,
                "bot",
                format!("{} ({}){chat}", printable(&bot.display_name), printable(&bot.basic_id)),
            )
        }
        Err(failure) => failure.finding("bot"),
    }
}

async fn webhook(api: &Api) -> Finding {
    #[derive(Deserialize)]
    struct Endpoint {
        endpoint: String,
        active: bool,
    }
    const PASTE: &str =
        "Paste WebhookUrl, an output of the stack, into LINE's console under Messaging API, Webhook URL.";
    let endpoint = match api
        .get::<Endpoint>("/v2/bot/channel/webhook/endpoint", api::deadline(ANSWER_TIMEOUT))
        .await
    {
        Ok(endpoint) => endpoint,
        Err(Failure::Status(404)) => return Finding::wrong(OF, "webhook", "LINE has no webhook URL", PASTE),
        Err(failure) => return failure.finding("webhook"),
    };
    let Some((shown, uri)) = without_secrets(&endpoint.endpoint) else {
        return Finding::wrong(OF, "webhook", "LINE's webhook URL is not a URL", PASTE);
    };
    if !endpoint.active {
        let remedy = "Turn Use webhook on in LINE's console, under Messaging API.";
        return Finding::wrong(OF, "webhook", format!("{shown} is not active"), remedy);
    }
    if uri.scheme_str() != Some("https") {
        return Finding::warning(OF, "webhook", format!("{shown} is not https, which LINE requires"), PASTE);
    }
    if !uri.path().ends_with(WEBHOOK_PATH) {
        let seen = format!("{shown} does not end in {WEBHOOK_PATH}, where the stack has the webhook");
        return Finding::warning(OF, "webhook", seen, PASTE);
    }
    Finding::ok(OF, "webhook", format!("{shown} is active"))
}

async fn quota(api: &Api) -> Finding {
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "lowercase")]
    enum Quota {
        None,
        Limited { value: u64 },
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Consumption {
        total_usage: u64,
    }
    let deadline = api::deadline(ANSWER_TIMEOUT);
    let quota = async {
        let quota: Quota = api.get("/v2/bot/message/quota", deadline).await?;
        let consumption: Consumption = api.get("/v2/bot/message/quota/consumption", deadline).await?;
        Ok::<_, Failure>((consumption.total_usage, quota))
    };
    match quota.await {
        Ok((used, Quota::None)) => Finding::ok(OF, "quota", format!("{used} messages this month, no limit")),
        Ok((used, Quota::Limited { value: limit })) if used < limit => Finding::ok(
            OF,
            "quota",
            format!("{used} of {limit} messages this month; replies are not counted"),
        ),
        // LINE does not count replies, and the bot sends nothing else: it goes on.
        Ok((used, Quota::Limited { value: limit })) => Finding::warning(
            OF,
            "quota",
            format!("used up: {used} of {limit} messages this month; replies are not counted and still work"),
            "Choose a larger plan in the Official Account Manager (https://manager.line.biz) if you push messages too.",
        ),
        Err(failure) => failure.finding("quota"),
    }
}

async fn webhook_test(api: &Api) -> Finding {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outcome {
        success: Option<bool>,
        /// The webhook's status; not above zero if there was no response.
        status_code: i32,
        reason: String,
    }
    let test = api.post::<Outcome>("/v2/bot/channel/webhook/test", api::deadline(WEBHOOK_TEST_TIMEOUT));
    let outcome = match test.await {
        Ok(outcome) => outcome,
        Err(failure) => return failure.finding("webhook-test"),
    };
    let wrong = |seen: &str, remedy: &str| Finding::wrong(OF, "webhook-test", seen, remedy);
    match (outcome.status_code, outcome.reason.to_ascii_uppercase().as_str()) {
        (status, _) if outcome.success == Some(true) => {
            Finding::ok(OF, "webhook-test", format!("LINE called the webhook, which answered {status}"))
        }
        (401, _) => wrong(
            "the webhook refused LINE's signature (401)",
            "Deploy the webhook with LINE_CHANNEL_SECRET as it is in LINE's console, under Basic settings.",
        ),
        (status @ 403..=405, _) => wrong(
            &format!("there is no webhook at LINE's webhook URL ({status})"),
            "Paste WebhookUrl, an output of the stack, into LINE's console under Messaging API, Webhook URL.",
        ),
        (status, _) if status > 0 => wrong(
            &format!("the webhook answered {status}"),
            "Look at the webhook's log, in the CloudWatch group /onetap/webhook.",
        ),
        (_, "REQUEST_TIMEOUT") => wrong(
            "the webhook did not answer LINE in time",
            "Look at the times in the webhook's log, in the CloudWatch group /onetap/webhook.",
        ),
        (_, "COULD_NOT_CONNECT") => wrong(
            "LINE could not connect to the webhook",
            "Compare LINE's webhook URL with WebhookUrl, an output of the stack, and check that the stack is deployed.",
        ),
        _ => wrong(
            "LINE's test failed, and LINE does not say why",
            "Press Verify in LINE's console, under Messaging API, Webhook URL.",
        ),
    }
}

/// The address without what may be secret in it: a user name and password, a query.
fn without_secrets(url: &str) -> Option<(String, Uri)> {
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority()?.as_str();
    let server = authority.rsplit_once('@').map_or(authority, |(_, server)| server);
    Some((printable(&format!("{}://{server}{}", uri.scheme_str()?, uri.path())), uri))
}

/// Text from outside for a terminal: no control characters, and not long.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}
