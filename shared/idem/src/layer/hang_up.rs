//! A request's work, and what becomes of it when its client hangs up.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tracing::{Instrument, Span};

/// Whether the client of a request has hung up.
#[derive(Clone, Debug, Default)]
pub(crate) struct HangUp(Arc<AtomicBool>);

impl HangUp {
    pub(crate) fn has_happened(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns once it has happened, for the work itself: it is polled after a hang-up without being woken.
    pub(crate) async fn happens(&self) {
        poll_fn(|_| if self.has_happened() { Poll::Ready(()) } else { Poll::Pending }).await
    }
}

/// Work that its caller polls for as long as it waits for it, and that a task of its own ends if the caller drops it.
///
/// So the work runs among its caller's task-locals and spans. It is polled or it is dropped, never both at once: a run either
/// began before the hang-up, and goes on, or finds out about the hang-up before it begins. In the task of its own the work is
/// polled at least once, which is why nothing has to wake it for the hang-up.
pub(super) struct ToTheEnd<T: Send + 'static> {
    /// `None` once it has ended, with a panic too.
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    hang_up: HangUp,
    /// Where it was polled first. Before that it has done nothing, and nothing has to be ended.
    began: Option<(Option<Handle>, Span)>,
}

/// Does `work` to its end, whether or not its caller waits for that. It learns of a hang-up by `hang_up`.
pub(super) fn to_the_end<T: Send + 'static>(
    hang_up: HangUp,
    work: impl Future<Output = T> + Send + 'static,
) -> ToTheEnd<T> {
    ToTheEnd { work: Some(Box::pin(work)), hang_up, began: None }
}

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // If it panics it is dropped here, and never polled again.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        self.began.get_or_insert_with(|| (Handle::try_current().ok(), Span::current()));
        let answer = work.as_mut().poll(cx);
        if answer.is_pending() {
            self.work = Some(work);
        }
        answer
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        let (Some(work), Some((Some(runtime), span))) = (self.work.take(), self.began.take()) else { return };
        self.hang_up.0.store(true, Ordering::SeqCst);
        // A runtime that is being shut down drops it. Then it ends as in a crash.
        drop(runtime.spawn(work.instrument(span)));
    }
}
