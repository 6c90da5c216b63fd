//! What only the store in this process can do to a channel.

use std::time::Duration;

use futures_util::StreamExt;
use onetap_store::{Batch, Channel, Memory, Store};

#[tokio::test]
async fn nothing_is_left_of_a_channel_whose_watchers_have_ended() {
    let store = Memory::new();
    let channel = |n: u32| Channel::new(format!("job {n}")).unwrap();
    for n in 0..1000 {
        let [first, second] =
            [store.watch(&channel(n)).await.unwrap(), store.watch(&channel(n)).await.unwrap()];
        assert!(format!("{store:?}").contains("channels: 1"), "{store:?}");
        drop(first);
        assert!(format!("{store:?}").contains("channels: 1"), "the other one still watches: {store:?}");
        drop(second);
        assert!(format!("{store:?}").contains("channels: 0"), "{store:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_hears_what_is_published_after_another_one_has_ended() {
    let store = Memory::new();
    let channel = Channel::new("job").unwrap();
    let publish = async || store.commit(&Batch::new().publish(&channel, "")).await.unwrap();
    drop(store.watch(&channel).await.unwrap());
    let mut rings = store.watch(&channel).await.unwrap();
    drop(store.watch(&channel).await.unwrap());
    let _ = publish().await;
    assert!(matches!(rings.next().await, Some(Ok(()))));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), rings.next()).await.is_err(),
        "one publish, one ring"
    );
    drop(store);
    assert!(rings.next().await.is_none(), "the stream ends with the store");
}
