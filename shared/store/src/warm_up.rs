//! Connections that are opened while a function starts.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::timeout;

/// Time limit for opening a connection while a function starts. A call that arrives meanwhile waits for that connection, for at most
/// 300 ms; then it opens its own.
pub const WARM_UP_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until `connect` has opened a connection to `service`, for at most [`WARM_UP_TIMEOUT`].
///
/// Run it beside the first poll, which it does not delay:
///
/// ```no_run
/// # use lambda_runtime::{Error, LambdaEvent, service_fn};
/// # use onetap_store::{Config, open, warm_up};
/// # async fn handler(_: LambdaEvent<()>) -> Result<(), Error> { Ok(()) }
/// # async fn run() -> Result<(), Error> {
/// let store = open(&Config::from_env()?)?;
/// let ((), ended) = tokio::join!(warm_up("store", store.connect()), lambda_runtime::run(service_fn(handler)));
/// # ended }
/// ```
///
/// A failure does not stop the start, and is logged at debug level only: the first call connects by itself and reports its
/// own failure.
pub async fn warm_up<E: Display>(service: &'static str, connect: impl Future<Output = Result<(), E>>) {
    let failure = match timeout(WARM_UP_TIMEOUT, connect).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no connection in time".to_owned(),
    };
    log(service, &failure);
}

fn log(service: &str, error: &str) {
    tracing::debug!(service, error, "not_connected");
}
