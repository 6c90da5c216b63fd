//! TTLs: which values expire, what renews a TTL, and what does not.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::{HOUR, Kept, Names, SHORT, absent_or, applied, holds, in_time, is, refused, there};
use crate::{Batch, Expect, Key, Store, Ttl};

pub async fn an_expired_key_is_absent_to_every_operation(store: Arc<dyn Store>) -> Kept {
    let names = Names::new();
    let keys: Vec<Key> = (0..9).map(|n| names.key(&n.to_string())).collect();
    for key in &keys {
        applied(&store, Batch::new().put(key, Expect::Absent, r#"{"seq":9}"#, SHORT)).await?;
    }
    sleep(SHORT * 2).await;
    let old = r#"{"seq":9}"#;
    holds(&store, &keys[0], None).await?;
    applied(&store, Batch::new().put(&keys[1], Expect::Absent, "new", HOUR)).await?;
    ensure_eq!(refused(&store, Batch::new().put(&keys[2], is(old), "new", HOUR)).await?, [None]);
    applied(&store, Batch::new().put(&keys[3], absent_or("other"), "new", HOUR)).await?;
    ensure_eq!(refused(&store, Batch::new().delete(&keys[4], old)).await?, [None]);
    ensure_eq!(refused(&store, Batch::new().check(&keys[5], is(old))).await?, [None]);
    applied(&store, Batch::new().check(&keys[6], Expect::Absent)).await?;
    applied(&store, Batch::new().put_if_newer(&keys[7], 1, r#"{"seq":1}"#, HOUR)).await?;
    holds(&store, &keys[7], Some(r#"{"seq":1}"#)).await?;
    // The same in a batch of several writes: a backend may use another mechanism there.
    let both = Batch::new().check(&keys[6], Expect::Absent).put(&keys[8], Expect::Absent, "new", HOUR);
    applied(&store, both).await?;
    let neither = Batch::new().check(&keys[5], is(old)).delete(&keys[4], old);
    ensure_eq!(refused(&store, neither).await?, [None, None]);
    Ok(())
}

pub async fn a_write_renews_the_life_and_a_read_does_not(store: Arc<dyn Store>) -> Kept {
    let put = |key: &Key, expect| Batch::new().put(key, expect, "v", SHORT * 2);
    let observed = in_time(SHORT * 3, async || {
        let names = Names::new();
        let (written, read) = (names.key("written"), names.key("read"));
        applied(&store, put(&written, Expect::Absent)).await?;
        applied(&store, put(&read, Expect::Absent)).await?;
        sleep(SHORT).await;
        holds(&store, &read, Some("v")).await?;
        applied(&store, Batch::new().check(&read, is("v"))).await?;
        applied(&store, put(&written, is("v"))).await?;
        sleep(SHORT + SHORT / 2).await;
        let written = store.get(&written).await?;
        Ok((Instant::now(), (written, store.get(&read).await?)))
    });
    ensure_eq!(observed.await?, (Some("v".to_owned()), None));
    Ok(())
}

pub async fn a_refused_write_does_not_renew_the_life(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    applied(&store, Batch::new().put(&key, Expect::Absent, "v", SHORT)).await?;
    ensure_eq!(refused(&store, Batch::new().put(&key, Expect::Absent, "w", HOUR)).await?, there("v"));
    sleep(SHORT * 2).await;
    holds(&store, &key, None).await
}

pub async fn what_is_put_for_ever_outlives_the_end_it_had(store: Arc<dyn Store>) -> Kept {
    let key = Names::new().key("k");
    applied(&store, Batch::new().put(&key, Expect::Absent, "v", SHORT)).await?;
    applied(&store, Batch::new().put(&key, is("v"), "w", Ttl::Forever)).await?;
    sleep(SHORT * 2).await;
    holds(&store, &key, Some("w")).await
}
