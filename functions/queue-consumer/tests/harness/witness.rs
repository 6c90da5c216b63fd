//! Who saw what was published.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use onetap_store::{Batch, Commit, Error, Store, Write, forward};
use tokio::task::JoinHandle;

use crate::support::World;

/// A store that remembers what was published in it: how one hears every single publish in memory.
#[derive(Debug)]
pub struct Witness {
    store: Arc<dyn Store>,
    published: Mutex<Vec<String>>,
}

impl Witness {
    pub fn new(store: Arc<dyn Store>) -> Arc<Witness> {
        Arc::new(Witness { store, published: Mutex::default() })
    }

    pub fn published(&self) -> Vec<String> {
        self.published.lock().unwrap().clone()
    }

    fn saw(&self, batch: &Batch, answer: &Result<Commit, Error>) {
        for write in batch.writes() {
            if let (Write::Publish { text, .. }, Ok(Commit::Applied(_))) = (write, answer) {
                self.published.lock().unwrap().push(text.clone());
            }
        }
    }
}

#[async_trait]
impl Store for Witness {
    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        let answer = self.store.commit(batch).await;
        self.saw(batch, &answer);
        answer
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let answers = self.store.commit_each(batches).await;
        batches.iter().zip(&answers).for_each(|(batch, answer)| self.saw(batch, answer));
        answers
    }

    forward!(store: get_all, read, watch, connect, max_value);
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
