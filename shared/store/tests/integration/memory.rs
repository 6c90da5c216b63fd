//! The promises, on the store in this process. Its clock is tokio's, so that nothing waits.

use std::sync::Arc;

use onetap_store::{Memory, Store};

onetap_store::promises! { [#[tokio::test(start_paused = true)]] async { (Arc::new(Memory::new()) as Arc<dyn Store>, ()) } }
