//! `Idempotency-Key`: a change that happens once, with its answer, however often it is asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use onetap_ledger::{Attempt, ChangeError, Slot, Step, next};
use onetap_store::idem::{Call, Error, Idempotency, digest};
use onetap_store::{Store, idem};
use std::sync::Arc;
use tokio::time::Instant;

use crate::answer::{Answer, Success, failed, problem, replayed};

/// A request that has a key: what the key is scoped by, and what it is tied to.
pub(crate) struct Keyed<'a> {
    pub(crate) key: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// What must not change under the key: the condition and the body.
    pub(crate) payload: [&'a [u8]; 2],
    pub(crate) deadline: Option<Instant>,
}

impl Keyed<'_> {
    /// The call. The caller is not part of its scope: all tokens are those of the one caller there is, and a repeat
    /// after a rotation is still a repeat.
    fn call(&self, idem: &Idempotency) -> Call {
        let scope = digest(&[self.method.as_bytes(), self.path.as_bytes(), self.key.as_bytes()]);
        let call = idem.call(&scope).fingerprint(digest(&self.payload));
        match self.deadline {
            Some(deadline) => call.deadline(deadline),
            None => call,
        }
    }
}

/// Makes the change once for the key. The write and the answer are committed together, so that no crash leaves one
/// without the other; a failure is not kept, and the next request tries anew.
pub(crate) async fn once(
    store: &Arc<dyn Store>,
    idem: &Idempotency,
    keyed: &Keyed<'_>,
    slot: &Slot,
    attempt: &Attempt,
    success: impl Fn(&Step) -> Success,
) -> Answer {
    let ran = AtomicBool::new(false);
    let (ran, success) = (&ran, &success);
    let change = |refusal: Vec<_>| async move {
        ran.store(true, Ordering::Relaxed);
        let step = next(store, slot, attempt, &refusal).await?;
        Ok::<_, ChangeError>((step.batch(slot), success(&step)))
    };
    match keyed.call(idem).transact(change).await {
        Ok(success) if ran.load(Ordering::Relaxed) => success.into(),
        Ok(success) => replayed(success.into()),
        Err(error) => refused(error, slot.life()),
    }
}

fn refused(error: idem::Error<Success, ChangeError>, life: Duration) -> Answer {
    let conflict = |message, wait| problem(StatusCode::CONFLICT, message, wait);
    match error {
        Error::Function(failure) => failed(&failure, life),
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
        // No time was left to begin.
        _ => failed(&ChangeError::Outrun, life),
    }
}
