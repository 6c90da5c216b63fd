//! Records every message that is published on a Redis server, on any channel.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use tokio::sync::watch;

/// Records what is published from its start on.
#[derive(Debug)]
pub(super) struct Published {
    client: redis::Client,
    heard: Arc<Mutex<Vec<String>>>,
    count: watch::Receiver<usize>,
}

impl Published {
    pub(super) async fn on(url: &str) -> Published {
        let client = redis::Client::open(url).unwrap();
        let mut subscription = client.get_async_pubsub().await.unwrap();
        subscription.psubscribe("*").await.unwrap();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let (counted, count) = watch::channel(0);
        let list = heard.clone();
        tokio::spawn(async move {
            let mut messages = subscription.into_on_message();
            while let Some(message) = messages.next().await {
                list.lock().unwrap().push(message.get_payload().unwrap());
                counted.send_modify(|count| *count += 1);
            }
        });
        Published { client, heard, count }
    }

    /// What was published before this call with `id` in it, sorted.
    pub(super) async fn with(&self, id: &str) -> Vec<String> {
        let end = format!("end of {id}");
        let mut connection = self.client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("PUBLISH").arg("end").arg(&end).exec_async(&mut connection).await.unwrap();
        let heard = || self.heard.lock().unwrap().clone();
        // Redis keeps the order of what it publishes.
        self.count.clone().wait_for(|_| heard().contains(&end)).await.unwrap();
        let mut texts: Vec<String> =
            heard().into_iter().filter(|text| text.contains(id) && *text != end).collect();
        texts.sort();
        texts
    }
}
