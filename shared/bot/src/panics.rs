//! Panics of a bot's code: each is a failure of one event.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

/// What `code` returns; `None` if it panics. The panic's message is not logged here: it may quote what a user wrote.
pub(crate) fn caught<T>(what: &'static str, code: impl FnOnce() -> T) -> Option<T> {
    log(what, catch_unwind(AssertUnwindSafe(code)).ok())
}

/// The same for a future.
pub(crate) async fn caught_async<T>(what: &'static str, code: impl Future<Output = T>) -> Option<T> {
    log(what, AssertUnwindSafe(code).catch_unwind().await.ok())
}

fn log<T>(what: &'static str, returned: Option<T>) -> Option<T> {
    if returned.is_none() {
        tracing::error!(what, "the bot has panicked");
    }
    returned
}
