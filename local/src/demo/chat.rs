//! The chapters about the chat.

use http::Method;
use serde_json::json;

use super::table::Row;
use super::{Reply, Story, paths, settle};
use crate::client::CallError;

const HOME: &str = "action=weather&type=home";
/// What a forecast of the home begins with.
const FORECAST: &str = "新北市永和區";

impl Story {
    /// A button that is tapped `times` at once.
    pub(super) async fn taps(&self, user: &str, times: usize) -> Result<Row, CallError> {
        self.write(user, "設定住家 永和區").await?;
        self.forget_forecasts().await?;
        let before = self.replies(user).await?.len();
        let tap = json!({ "type": "postback", "postback": { "data": HOME } });
        self.deliver(user, tap, times).await?;
        settle().await;
        let replies = self.replies(user).await?;
        let replies = &replies[before.min(replies.len())..];
        let count = |is: &dyn Fn(&Reply) -> bool| replies.iter().filter(|reply| is(reply)).count();
        let busy = count(&|reply| reply.busy);
        let late = count(&|reply| reply.text == webhook::replies::UNAVAILABLE);
        // On a slow machine the forecast may be late: then the one answer is an apology.
        let answer = if late > 0 { "late forecast" } else { "forecast" };
        let answers = count(&|reply| reply.text.starts_with(FORECAST)) + late;
        let mut did = vec![(answer, answers), ("please wait", busy)];
        did.extend([("other", replies.len() - answers - busy)].into_iter().filter(|(_, n)| *n > 0));
        let should = [(answer, 1), ("please wait", times - 1)];
        Ok(Row::counted("a button tapped, all at once", times, &did, &should))
    }

    /// An entry, delivered once and then three times more.
    pub(super) async fn redelivery(&self, user: &str) -> Result<Row, CallError> {
        let mut taken = self.write(user, "午餐 120 信用卡").await?;
        let entry = self.entry(user).await?;
        taken.extend(self.redeliver(user, 3).await?);
        let same = self.entry(user).await?.header("etag") == entry.header("etag");
        let written = taken.iter().filter(|path| *path == "handled").count() + usize::from(!same);
        let deduped = taken.iter().filter(|path| *path == "deduped").count();
        let replies = self.replies(user).await?.len();
        let did = [("entry", written), ("reply", replies), ("passed over", deduped)];
        let should = [("entry", 1), ("reply", 1), ("passed over", 3)];
        Ok(Row::counted("a webhook delivered again", 4, &did, &should))
    }

    /// Three entries in one sentence, delivered once and then three times more.
    pub(super) async fn three_entries(&self, user: &str) -> Result<Row, CallError> {
        let before = self.replies(user).await?.len();
        let mut taken = self.write(user, "早餐50元 午餐120元 飲料45元 現金").await?;
        taken.extend(self.redeliver(user, 3).await?);
        let deduped = taken.iter().filter(|path| *path == "deduped").count();
        let replies = self.replies(user).await?.len().saturating_sub(before);
        let (rows, total) = self.month(user).await?;
        let did =
            [("rows in the ledger", rows), ("TWD", total), ("reply", replies), ("passed over", deduped)];
        let should = [("rows in the ledger", 3), ("TWD", 215), ("reply", 1), ("passed over", 3)];
        Ok(Row::counted("three entries in one sentence, delivered again", 4, &did, &should))
    }

    /// Has LINE deliver the last webhook of `user` again. Returns the path of each.
    async fn redeliver(&self, user: &str, times: usize) -> Result<Vec<String>, CallError> {
        let mut taken = Vec::new();
        for _ in 0..times {
            let body = json!({ "user": user });
            taken.extend(paths(&self.client.json(Method::POST, "/playground/redeliver", &body).await?));
        }
        settle().await;
        Ok(taken)
    }

    /// A forecast, which needs no store, during an outage.
    pub(super) async fn outage(&self, user: &str) -> Result<Row, CallError> {
        self.forget_forecasts().await?;
        let before = self.replies(user).await?.len();
        self.set("store", &json!({ "down": true })).await?;
        let asked = self.write(user, "永和區").await;
        // The outage ends even if the call failed.
        self.set("store", &json!({ "down": false })).await?;
        asked?;
        let replies = self.replies(user).await?;
        let forecasts = replies.iter().skip(before).filter(|reply| reply.text.starts_with(FORECAST)).count();
        let what = "a place asked for, with the store down";
        Ok(Row::counted(what, 1, &[("forecast", forecasts)], &[("forecast", 1)]))
    }

    /// Erases the data of the demo's users.
    pub(super) async fn erase(&self, users: &[&str]) -> Result<Row, CallError> {
        for user in users {
            self.write(user, "刪除我的資料").await?;
            let asked = self.replies(user).await?.pop();
            let data = asked.and_then(|reply| reply.button).unwrap_or_default();
            self.deliver(user, json!({ "type": "postback", "postback": { "data": data } }), 1).await?;
        }
        settle().await;
        let snapshot = self.snapshot().await?;
        let keys = snapshot["keys"].as_array().into_iter().flatten();
        let names = keys.map(|key| key["key"].as_str().unwrap_or_default());
        let left = names.filter(|name| users.iter().any(|user| name.contains(user))).count();
        let mut rows = 0;
        for user in users {
            rows += self.month(user).await?.0;
        }
        let did = [("keys left", left), ("rows left", rows)];
        Ok(Row::counted("data erased", users.len(), &did, &[("keys left", 0), ("rows left", 0)]))
    }
}
