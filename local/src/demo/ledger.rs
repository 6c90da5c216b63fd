//! The chapters about the last transaction, and the ledger.

use http::Method;
use serde_json::{Value, json};

use super::Story;
use super::table::Row;
use crate::client::{CallError, Response};

const DINNER: &str = r#"{"intent":"bookkeeping","日期":"2025-11-29","時間":"18:30","品項":"晚餐","原幣別":"TWD","原幣金額":250,"匯率":1,"付款方式":"現金","交易ID":"20251129-183000","分類":"飲食","專案":"日常","必要性":"必要","代墊狀態":"無"}"#;

impl Story {
    async fn ask(
        &self,
        method: Method,
        user: &str,
        more: (&str, &str),
        body: &str,
    ) -> Result<Response, CallError> {
        self.ask_at(method, &format!("/users/{user}/last-transaction"), more, body).await
    }

    async fn ask_at(
        &self,
        method: Method,
        path: &str,
        more: (&str, &str),
        body: &str,
    ) -> Result<Response, CallError> {
        let authorization = format!("Bearer {}", self.edit_token);
        let mut headers =
            vec![("authorization", authorization.as_str()), ("content-type", "application/json")];
        headers.extend([more].into_iter().filter(|(name, _)| !name.is_empty()));
        self.client.call(method, path, &headers, body.to_owned()).await
    }

    /// How many entries `user` has this month, and their sum in TWD.
    pub(super) async fn month(&self, user: &str) -> Result<(usize, usize), CallError> {
        let path = format!("/users/{user}/transactions");
        let month = self.ask_at(Method::GET, &path, ("", ""), "").await?;
        let wrong = || CallError(format!("{path}: {} {}", month.status, month.text));
        let count = month.json["transactions"].as_array().ok_or_else(wrong)?.len();
        let total =
            month.json["total_twd"].as_str().and_then(|total| total.parse().ok()).ok_or_else(wrong)?;
        Ok((count, total))
    }

    pub(super) async fn entry(&self, user: &str) -> Result<Response, CallError> {
        self.ask(Method::GET, user, ("", ""), "").await
    }

    async fn patch(&self, user: &str, more: (&str, &str), fields: &Value) -> Result<Response, CallError> {
        self.ask(Method::PATCH, user, more, &fields.to_string()).await
    }

    /// Two concurrent edits of different fields, and one edit of an old version.
    pub(super) async fn edits(&self, user: &str) -> Result<Vec<Row>, CallError> {
        let old = self.entry(user).await?;
        let (amount, category) = (json!({ "原幣金額": 150 }), json!({ "分類": "教育" }));
        let (one, other) =
            tokio::join!(self.patch(user, ("", ""), &amount), self.patch(user, ("", ""), &category));
        let accepted = [one?, other?].iter().filter(|answer| answer.status == 200).count();
        let now = self.entry(user).await?;
        let kept = usize::from(now.json["原幣金額"] == 150) + usize::from(now.json["分類"] == "教育");
        let both = Row::counted(
            "one entry edited by two, at once",
            2,
            &[("accepted", accepted), ("kept", kept)],
            &[("accepted", 2), ("kept", 2)],
        );

        let stale = ("if-match", old.header("etag").unwrap_or_default());
        let refused = self.patch(user, stale, &json!({ "原幣金額": 9 })).await?;
        let after = self.entry(user).await?;
        let changed = usize::from(after.header("etag") != now.header("etag"));
        let conflict = Row::counted(
            "an edit of a version that is gone",
            1,
            &[("conflict told", usize::from(refused.status == 412)), ("changes", changed)],
            &[("conflict told", 1), ("changes", 0)],
        );
        Ok(vec![both, conflict])
    }

    /// The same PUT under one key, before and after an edit: the second must not undo the edit.
    pub(super) async fn once(&self, user: &str) -> Result<Row, CallError> {
        let key = ("idempotency-key", "dinner");
        let first = self.ask(Method::PUT, user, key, DINNER).await?;
        let edited = self.patch(user, ("", ""), &json!({ "原幣金額": 260 })).await?;
        let again = self.ask(Method::PUT, user, key, DINNER).await?;
        let now = self.entry(user).await?;
        let fresh =
            |answer: &Response| answer.status.is_success() && answer.header("idempotency-replayed").is_none();
        let writes = [&first, &again].into_iter().filter(|answer| fresh(answer)).count();
        let replays = usize::from(again.status == first.status && again.text == first.text && !fresh(&again));
        let lost = usize::from(edited.status != 200 || now.json["原幣金額"] != 260);
        Ok(Row::counted(
            "a PUT sent again under one key",
            2,
            &[("write", writes), ("same answer again", replays), ("edits lost", lost)],
            &[("write", 1), ("same answer again", 1), ("edits lost", 0)],
        ))
    }
}
