//! The end, as everybody waits for it.

use tokio::sync::watch;

/// Whether the runner is to stop; a clone waits for the same.
#[derive(Clone)]
pub(crate) struct Stopping(watch::Receiver<bool>);

/// Who may say so.
pub(crate) struct Stop(watch::Sender<bool>);

impl Stop {
    pub(crate) fn new() -> (Stop, Stopping) {
        let (stop, stopping) = watch::channel(false);
        (Stop(stop), Stopping(stopping))
    }

    /// It is time.
    pub(crate) fn now(&self) {
        self.0.send_replace(true);
    }
}

impl Stopping {
    /// Returns when it is time, or when nobody is left to say so.
    pub(crate) async fn asked(&mut self) {
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}
