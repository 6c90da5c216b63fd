//! A store on each backend.

use std::sync::Arc;

use onetap_servers::{Backend, Environment};
use onetap_store::Store;

/// A store on a backend's real servers, which end with their environment.
pub(crate) async fn start(backend: Backend) -> (Arc<dyn Store>, Environment) {
    let environment = Environment::start(backend).await.with("STORE_TIMEOUT_MS", "30000");
    let store = environment.store();
    (store, environment)
}
