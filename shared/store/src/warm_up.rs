//! Connections that are opened while a function starts.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::timeout;

/// Time limit for opening connections while a function starts.
pub const WARM_UP_TIMEOUT: Duration = Duration::from_millis(300);

/// Waits until `connect` has opened a connection to `service`, for at most [`WARM_UP_TIMEOUT`].
///
/// A failure does not stop the start, and is no news for an operator: the first call connects by itself and reports its
/// own failure.
pub async fn warm_up<E: Display>(service: &'static str, connect: impl Future<Output = Result<(), E>>) {
    match timeout(WARM_UP_TIMEOUT, connect).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(service, %error, "not_connected"),
        Err(_) => tracing::debug!(service, error = "no connection in time", "not_connected"),
    }
}
