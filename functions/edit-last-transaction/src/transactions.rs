//! A month of the ledger: read, folded, and answered as JSON or CSV.

use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, HeaderValue, VARY};
use http::{Request, StatusCode};
use onetap_ledger::{Book, ChangeError, Month, Statement, etag};
use onetap_store::sender::Sender;
use onetap_store::{Error, ErrorKind, Observed};
use tokio::time::Instant;

use crate::EditLastTransaction;
use crate::answer::{Answer, empty, failed, refusal, whole};
use crate::month::{Format, MonthQuery, is_known, preferred};
use crate::request::{deadline, query};

/// The largest answer to a month, in bytes of the JSON string that carries it to Lambda. Lambda's limit is 6 MiB for the
/// whole response; above it the caller gets a 500 without our message.
pub const MAX_ANSWER_BYTES: usize = 5_500_000;

impl EditLastTransaction {
    /// Answers with the month that the request names, or the current one.
    pub(crate) async fn month<B>(&self, request: &Request<B>, book: &Book) -> Answer {
        let asked = match MonthQuery::parse(query(request)) {
            Ok(asked) => asked,
            Err(wrong) => return refusal(StatusCode::BAD_REQUEST, &wrong),
        };
        let month = asked.month.unwrap_or_else(|| Month::from((self.clock)().date()));
        let statement = match self.statement(book, month, deadline(request)).await {
            Ok(statement) => statement,
            Err(error) if error.kind() == ErrorKind::Decode => {
                return failed(&ChangeError::Broken, book.life());
            }
            Err(error) => return failed(&ChangeError::Unreadable(error), book.life()),
        };
        let format = asked.format.unwrap_or_else(|| preferred(request.headers()));
        let body = match format {
            Format::Json => statement.to_json(),
            Format::Csv => statement.to_csv(),
        };
        let bytes = json_string_bytes(&body);
        if bytes > MAX_ANSWER_BYTES {
            tracing::error!(bytes, limit = MAX_ANSWER_BYTES, "the month is too large to be answered");
            return refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "這個月的記錄過多，超過單次回應的上限（5.5 MB）",
            );
        }
        let etag = etag(&body);
        let mut answer = match is_known(request.headers(), &etag) {
            true => empty(StatusCode::NOT_MODIFIED),
            false => represented(month, format, body),
        };
        let headers = answer.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        if let Ok(etag) = HeaderValue::try_from(etag) {
            headers.insert(ETAG, etag);
        }
        answer
    }

    async fn statement(
        &self,
        book: &Book,
        month: Month,
        deadline: Option<Instant>,
    ) -> Result<Statement, Error> {
        let sender = Sender { store: &*self.store, deadline };
        let records = sender.read_to_end(&book.log(month)?).await?;
        let statement = Statement::fold(month, records.iter().map(|record| record.text.as_str()));
        Observed::count_unreadable(statement.unreadable());
        Ok(statement)
    }
}

fn represented(month: Month, format: Format, body: String) -> Answer {
    let mut answer = whole(StatusCode::OK, body);
    if let Format::Csv = format {
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8; header=present"));
        let name = format!("attachment; filename=\"transactions-{month}.csv\"");
        if let Ok(name) = HeaderValue::try_from(name) {
            headers.insert(CONTENT_DISPOSITION, name);
        }
    }
    answer
}

/// The size of `text` as a JSON string, in which form Lambda takes it: quotes and line breaks cost another byte.
fn json_string_bytes(text: &str) -> usize {
    let bytes = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | b'\x08' | b'\x0c' => 2,
        b'\0'..=b'\x1f' => 6,
        _ => 1,
    };
    2 + text.bytes().map(bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_large_as_its_json() {
        let all: String = (0..0x250).filter_map(char::from_u32).collect();
        for text in ["", "a", "午餐", r#"{"a":"b\\"}"#, "\u{feff}a,b\r\n", &all] {
            assert_eq!(json_string_bytes(text), serde_json::to_string(text).unwrap().len(), "{text}");
        }
    }
}
