//! A caller that watches, and then reads, misses no record.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::timeout;

use super::{HOUR, Names, applied};
use crate::{Batch, Keep, Record, Store};

pub async fn a_watcher_hears_every_publish(store: Arc<dyn Store>) {
    let names = Names::new();
    let channel = names.channel("頻道, with:comma");
    let mut rings = store.watch(&channel).await.unwrap();
    let mut others = store.watch(&channel).await.unwrap();
    for n in 0..5 {
        applied(&store, Batch::new().publish(&channel, format!("message {n}\nsecond line"))).await;
        let ring = timeout(Duration::from_secs(60), rings.next()).await;
        assert!(matches!(ring, Ok(Some(Ok(())))), "ring {n}: {ring:?}");
        assert!(matches!(timeout(Duration::from_secs(60), others.next()).await, Ok(Some(Ok(())))));
    }
}

pub async fn to_watch_and_then_read_misses_nothing(store: Arc<dyn Store>) {
    const COUNT: usize = 40;
    let names = Names::new();
    let (log, channel) = (names.log("log"), names.channel("log"));
    let writer = {
        let (store, log, channel) = (Arc::clone(&store), log.clone(), channel.clone());
        tokio::spawn(async move {
            for n in 0..COUNT {
                let batch =
                    Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR)).publish(&channel, "");
                applied(&store, batch).await;
            }
        })
    };
    let mut rings = store.watch(&channel).await.unwrap();
    let mut read: Vec<Record> = Vec::new();
    let all = async {
        loop {
            let after = read.last().map(|record| record.position);
            read.extend(store.read(&log, after, 100).await.unwrap());
            if read.len() == COUNT {
                break;
            }
            rings.next().await.unwrap().unwrap();
        }
    };
    assert!(timeout(Duration::from_secs(60), all).await.is_ok(), "{} of {COUNT}", read.len());
    assert!(read.iter().enumerate().all(|(n, record)| record.text == n.to_string()));
    writer.await.unwrap();
}
