//! A caller that watches, and then reads, misses no record.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::timeout;

use super::{HOUR, Kept, Names, applied};
use crate::{Batch, Keep, Record, Store};

pub async fn a_watcher_hears_every_publish(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let channel = names.channel("頻道, with:comma");
    let mut rings = store.watch(&channel).await?;
    let mut others = store.watch(&channel).await?;
    for n in 0..5 {
        applied(&store, Batch::new().publish(&channel, format!("message {n}\nsecond line"))).await?;
        let ring = timeout(Duration::from_secs(60), rings.next()).await;
        ensure!(matches!(ring, Ok(Some(Ok(())))), "ring {n}: {ring:?}");
        ensure!(matches!(timeout(Duration::from_secs(60), others.next()).await, Ok(Some(Ok(())))));
    }
    Ok(())
}

pub async fn to_watch_and_then_read_misses_nothing(store: Arc<dyn Store>) -> Kept {
    const COUNT: usize = 40;
    let names = Names::new();
    let (log, channel) = (names.log("log"), names.channel("log"));
    let writer = {
        let (store, log, channel) = (Arc::clone(&store), log.clone(), channel.clone());
        tokio::spawn(async move {
            for n in 0..COUNT {
                let batch =
                    Batch::new().append(&log, n.to_string(), Keep::all_for(HOUR)).publish(&channel, "");
                applied(&store, batch).await?;
            }
            Kept::Ok(())
        })
    };
    let mut rings = store.watch(&channel).await?;
    let mut read: Vec<Record> = Vec::new();
    let all = async {
        loop {
            let after = read.last().map(|record| record.position);
            read.extend(store.read(&log, after, 100).await?);
            if read.len() == COUNT {
                break Kept::Ok(());
            }
            let Some(Ok(())) = rings.next().await else { broken!("the subscription ended") };
        }
    };
    let all = timeout(Duration::from_secs(60), all).await;
    ensure!(matches!(all, Ok(Ok(()))), "{} of {COUNT}", read.len());
    ensure!(read.iter().enumerate().all(|(n, record)| record.text == n.to_string()));
    writer.await??;
    Ok(())
}
