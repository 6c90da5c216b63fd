//! The chapter about the weather.

use serde_json::{Value, json};

use super::Story;
use super::table::Row;
use crate::client::CallError;

const PLACE: &str = "永和區";

impl Story {
    /// One place that everybody asks for while the provider is down: one call of each provider for all of them.
    pub(super) async fn provider_down(&self, users: [&str; 3]) -> Result<Row, CallError> {
        self.forget_forecasts().await?;
        let before = self.calls().await?;
        self.set("weather", &json!({ "provider": "down" })).await?;
        let asked = self.sources(users).await;
        // It works again even if a call failed.
        self.set("weather", &json!({ "provider": "works" })).await?;
        let sources = asked?;
        let after = self.calls().await?;
        let from = |source: &str| sources.iter().filter(|each| *each == source).count();
        let did = [
            ("from the fallback", from("fallback")),
            ("kept", from("kept")),
            ("call of the provider", after[0] - before[0]),
            ("call of the fallback", after[1] - before[1]),
        ];
        let should = [
            ("from the fallback", 1),
            ("kept", users.len() - 1),
            ("call of the provider", 1),
            ("call of the fallback", 1),
        ];
        Ok(Row::counted("a forecast, with the weather provider down", users.len(), &did, &should))
    }

    /// Where the forecast of each user came from, one after the other.
    async fn sources(&self, users: [&str; 3]) -> Result<Vec<String>, CallError> {
        let mut sources = Vec::new();
        for user in users {
            let event = json!({ "type": "message", "message": { "type": "text", "text": PLACE } });
            let answer = self.post(user, event, 1).await?;
            let source = &answer["deliveries"][0]["events"][0]["forecast"];
            sources.push(source.as_str().unwrap_or_default().to_owned());
        }
        Ok(sources)
    }

    /// How often the provider and the fallback were asked since the start.
    async fn calls(&self) -> Result<[usize; 2], CallError> {
        let weather = self.snapshot().await?["weather"].take();
        let calls = |provider: &Value| usize::try_from(provider["calls"].as_u64()?).ok();
        match [0, 1].map(|n| calls(&weather["providers"][n])) {
            [Some(provider), Some(fallback)] => Ok([provider, fallback]),
            _ => Err(CallError("/playground/live: no calls are counted".to_owned())),
        }
    }
}
