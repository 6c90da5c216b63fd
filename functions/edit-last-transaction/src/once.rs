//! `Idempotency-Key`: a change that happens once, with its answer, however often it is asked for.

use std::time::Duration;

use http::StatusCode;
use onetap_ledger::{Attempt, Book, ChangeError, Step};
use onetap_store::edit;
use onetap_store::idem::{Call, Error, Idempotency, Returned, digest};
use tokio::time::Instant;

use crate::answer::{Answer, Success, failed, problem, replayed};

/// A request with an idempotency key. Method and path belong to the key; the payload is its fingerprint.
pub(crate) struct Keyed<'a> {
    pub(crate) key: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// What must not change under the key: the condition and the body.
    pub(crate) payload: [&'a [u8]; 2],
    pub(crate) deadline: Option<Instant>,
    /// When Lambda ends the invocation.
    pub(crate) end: Option<Instant>,
}

impl Keyed<'_> {
    /// The call. The bearer token is not part of its key: there is one client, and a retry with a rotated token must still
    /// count as a retry.
    fn call(&self, idem: &Idempotency) -> Call {
        let key = digest(&[self.method.as_bytes(), self.path.as_bytes(), self.key.as_bytes()]);
        let call = idem.call(&key).fingerprint(digest(&self.payload));
        let call = match self.deadline {
            Some(deadline) => call.deadline(deadline),
            None => call,
        };
        match self.end {
            Some(end) => call.invocation_end(end),
            None => call,
        }
    }
}

/// Makes the change once for the key. The write and the answer are committed together, so that no crash leaves one
/// without the other. Errors are not recorded: the next request with the key runs again.
pub(crate) async fn once(
    idem: &Idempotency,
    keyed: &Keyed<'_>,
    book: &Book,
    mut attempt: Attempt,
    success: impl Fn(&Step) -> Success,
) -> Answer {
    let change = keyed.call(idem).edit(attempt.edit(book), |there| {
        let (writes, step) = attempt.write(book, there)?;
        Ok((writes, success(&step)))
    });
    match change.await {
        Ok(Returned::Executed(success)) => success.into(),
        Ok(Returned::Replayed(success)) => replayed(success.into()),
        Err(error) => refused(error, book.life()),
    }
}

fn refused(error: Error<Success, edit::Error<ChangeError>>, life: Duration) -> Answer {
    let conflict = |message, wait| problem(StatusCode::CONFLICT, message, wait);
    match error {
        Error::Function(error) => failed(&error.into(), life),
        Error::Mismatch => {
            problem(StatusCode::UNPROCESSABLE_ENTITY, "這個 Idempotency-Key 已用於另一個請求", None)
        }
        Error::InProgress { left } => {
            conflict("相同 Idempotency-Key 的請求正在處理中，請稍後再試", Some(left))
        }
        Error::LostLease { .. } => {
            conflict("相同 Idempotency-Key 的請求正在處理中，請稍後再試", Some(Duration::ZERO))
        }
        Error::NotKept => conflict("這個請求已經處理過，但結果過大而未保留", None),
        Error::Store(onetap_store::Error::TooLarge { .. }) => failed(&ChangeError::TooLarge, life),
        Error::Store(onetap_store::Error::Decode { .. }) => failed(&ChangeError::Broken, life),
        Error::Store(error) | Error::Unrecorded { error, .. } => {
            failed(&ChangeError::Unwritable(error), life)
        }
        // The deadline had passed before the change began; the other errors cannot come from an edit.
        _ => failed(&ChangeError::Outrun, life),
    }
}
