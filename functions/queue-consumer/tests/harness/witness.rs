//! Who saw what was published.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use onetap_store::testing::{Answer, TestStore};
use onetap_store::{Commit, Store, Write};
use tokio::task::JoinHandle;

use crate::support::World;

/// `store`, and what is published in it: how one hears every single publish in memory.
pub fn witnessed(store: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<Mutex<Vec<String>>>) {
    let published = Arc::new(Mutex::new(Vec::new()));
    let heard = published.clone();
    let store = TestStore::scripted(store, move |call| {
        let heard = heard.clone();
        async move {
            let answer = call.send().await;
            let Answer::Commits(commits) = &answer else { return answer };
            for (batch, commit) in call.batches().iter().zip(commits) {
                let texts = batch.writes().iter().filter_map(|write| match write {
                    Write::Publish { text, .. } => Some(text.clone()),
                    _ => None,
                });
                if let Ok(Commit::Applied(_)) = commit {
                    heard.lock().unwrap().extend(texts);
                }
            }
            answer
        }
    });
    (store, published)
}

/// A subscriber of another program's, to every channel of a domain.
pub struct Subscriber {
    client: redis::Client,
    end: String,
    heard: JoinHandle<Vec<String>>,
}

impl Subscriber {
    /// `None` where there is no Redis.
    pub async fn start(world: &World) -> Option<Subscriber> {
        let client = redis::Client::open(world.redis.as_deref()?).unwrap();
        let mut subscription = client.get_async_pubsub().await.unwrap();
        subscription.psubscribe(format!("{}:events:*", world.domain)).await.unwrap();
        let heard = tokio::spawn(async move {
            let mut messages =
                subscription.into_on_message().map(|message| message.get_payload::<String>().unwrap());
            let mut heard = Vec::new();
            while let Some(text) = messages.next().await.filter(|text| text != "end") {
                heard.push(text);
            }
            heard
        });
        Some(Subscriber { client, end: format!("{}:events:end", world.domain), heard })
    }

    /// Everything that was published so far.
    pub async fn heard(self) -> Vec<String> {
        let mut connection = self.client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("PUBLISH").arg(self.end).arg("end").exec_async(&mut connection).await.unwrap();
        self.heard.await.unwrap()
    }
}
