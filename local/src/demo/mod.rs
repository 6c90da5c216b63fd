//! The demo: duplicates, races and crashes, each over HTTP as a user or LINE would cause it, and a table of the
//! effects.

mod chat;
mod jobs;
mod ledger;
mod table;
mod weather;

use std::time::{Duration, Instant};

use http::Method;
use onetap_store::lease::unique_token;
use serde_json::{Value, json};

use crate::client::{CallError, Client};
use table::{Row, all_right, render};

/// Delay of the weather: long enough for taps to meet, and below half of [`TIMES`]' limit for a forecast, after which the
/// fallback is asked.
const WEATHER_DELAY_MS: u64 = 700;

/// The webhook's time limits in the demo: a forecast has twice its usual time, so that taps have longer to meet.
pub(crate) const TIMES: webhook::Times = webhook::Times {
    delivery: Duration::from_millis(2800),
    forecast: Duration::from_secs(2),
    reply: Duration::from_millis(500),
};

/// What the chapters share.
struct Story {
    client: Client,
    edit_token: String,
}

/// A reply that the LINE stub took for a user.
struct Reply {
    text: String,
    busy: bool,
    /// The data of its first button.
    button: Option<String>,
}

/// Runs the demo on the runner at `url`. Returns whether nothing was doubled and nothing lost.
pub async fn run(url: &str, print: impl Fn(&str)) -> bool {
    let start = Instant::now();
    let rows = match Story::begin(url).await {
        Ok((story, store)) => {
            print(&format!("One tap, one effect: the story on the store `{store}`, at {url}\n"));
            story.tell(&print).await
        }
        Err(problem) => vec![Row::failed("the story begins", &problem)],
    };
    let right = all_right(&rows);
    print(&format!("\n{}\n", render(&rows)));
    let seconds = start.elapsed().as_secs_f32();
    print(&match right {
        true => format!("Nothing was doubled and nothing was lost. ({seconds:.1} s)"),
        false => format!("Something was doubled or lost: see the rows that are not right. ({seconds:.1} s)"),
    });
    right
}

impl Story {
    async fn begin(url: &str) -> Result<(Story, String), CallError> {
        let client = Client::new(url);
        let config = client.json(Method::GET, "/playground/config", &Value::Null).await?;
        let text = |name: &str| config[name].as_str().unwrap_or_default().to_owned();
        let story = Story { client, edit_token: text("edit_token") };
        story.set("weather", &json!({ "delay_ms": WEATHER_DELAY_MS })).await?;
        Ok((story, text("store")))
    }

    async fn tell(&self, print: &impl Fn(&str)) -> Vec<Row> {
        // New users in every run: the store may be a real one.
        let [ann, ben, eve] = [(); 3].map(|()| format!("U{}", unique_token()));
        let mut rows = Vec::new();
        print("  Ann taps `home` twice at once");
        rows.push(self.taps(&ann, 2).await.unwrap_or_else(|p| Row::failed("a button tapped twice", &p)));
        print("  Ben taps it twenty times at once");
        rows.push(self.taps(&ben, 20).await.unwrap_or_else(|p| Row::failed("a button tapped 20 times", &p)));
        print("  Eve writes down her lunch, and LINE delivers that three times more");
        rows.push(self.redelivery(&eve).await.unwrap_or_else(|p| Row::failed("a redelivery", &p)));
        print("  Ben writes down three entries in one sentence, and LINE delivers that three times more");
        rows.push(self.three_entries(&ben).await.unwrap_or_else(|p| Row::failed("three entries", &p)));
        print("  the store goes down, and Ann asks for a forecast");
        rows.push(self.outage(&ann).await.unwrap_or_else(|p| Row::failed("a store that is down", &p)));
        print("  the weather provider goes down, and all three ask for a forecast");
        let all = [ann.as_str(), &ben, &eve];
        rows.push(
            self.provider_down(all).await.unwrap_or_else(|p| Row::failed("a provider that is down", &p)),
        );
        print("  Eve edits the lunch from two places at once, then from a stale page");
        rows.extend(self.edits(&eve).await.unwrap_or_else(|p| vec![Row::failed("two edits at once", &p)]));
        print("  Eve's dinner is sent twice under one key, with an edit in between");
        rows.push(self.once(&eve).await.unwrap_or_else(|p| Row::failed("a key sent twice", &p)));
        print("  a job goes through the queue three times over, shuffled; its consumer dies halfway");
        rows.extend(self.job().await.unwrap_or_else(|p| vec![Row::failed("a job", &p)]));
        print("  everybody has their data erased");
        rows.push(self.erase(&all).await.unwrap_or_else(|p| Row::failed("the end", &p)));
        rows
    }

    async fn set(&self, what: &str, to: &Value) -> Result<Value, CallError> {
        self.client.json(Method::PUT, &format!("/playground/{what}"), to).await
    }

    /// Has kept forecasts forgotten: the next one is fetched, which takes its time.
    async fn forget_forecasts(&self) -> Result<(), CallError> {
        self.client.json(Method::POST, "/playground/weather/forget", &json!({})).await.map(drop)
    }

    /// Delivers an event of `user`, `times` at once.
    async fn post(&self, user: &str, event: Value, times: usize) -> Result<Value, CallError> {
        let body = json!({ "user": user, "events": [event], "times": times });
        self.client.json(Method::POST, "/playground/deliver", &body).await
    }

    /// The same; returns the path of each.
    async fn deliver(&self, user: &str, event: Value, times: usize) -> Result<Vec<String>, CallError> {
        Ok(paths(&self.post(user, event, times).await?))
    }

    async fn write(&self, user: &str, text: &str) -> Result<Vec<String>, CallError> {
        self.deliver(user, json!({ "type": "message", "message": { "type": "text", "text": text } }), 1).await
    }

    /// What the page would show now.
    async fn snapshot(&self) -> Result<Value, CallError> {
        let silent = || CallError("/playground/live: no snapshot".to_owned());
        let mut events = self.client.events("/playground/live", &[]).await?.map_err(|_| silent())?;
        let first = events.next().await?.ok_or_else(silent)?;
        serde_json::from_str(&first.data).map_err(|_| silent())
    }

    /// The replies that `user` got so far.
    async fn replies(&self, user: &str) -> Result<Vec<Reply>, CallError> {
        let snapshot = self.snapshot().await?;
        let own = snapshot["replies"].as_array().into_iter().flatten().filter(|reply| reply["user"] == user);
        let read = |reply: &Value| Reply {
            text: reply["text"].as_str().unwrap_or_default().to_owned(),
            busy: reply["path"] == "busy",
            button: reply["quick_replies"][0]["data"].as_str().map(str::to_owned),
        };
        Ok(own.map(read).collect())
    }
}

fn paths(answer: &Value) -> Vec<String> {
    let deliveries = answer["deliveries"].as_array().into_iter().flatten();
    let events = deliveries.flat_map(|delivery| delivery["events"].as_array().into_iter().flatten());
    events.map(|event| event["path"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits long enough for a second effect to show, if there is one.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}
