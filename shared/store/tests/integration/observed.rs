//! What the store counts, on the thread of the test.

use std::sync::Arc;

use onetap_store::{Batch, Commit, Expect, Key, Memory, Observed, Store, Ttl};
use onetap_telemetry::Recorder;

#[tokio::test]
async fn reads_are_counted_by_what_the_key_holds_and_never_by_its_name() {
    let recorder = Recorder::default();
    let _guard = recorder.on_this_thread();
    let kind = |key: &Key| if key.as_str().starts_with("user:") { "user" } else { "other" };
    let store = Observed::with_kinds(Arc::new(Memory::new()), kind);
    let kinds = [("user:U1", "user"), ("user:U2", "user"), ("weather:永和區", "other")];
    let keys = kinds.map(|(name, _)| Key::new(name).unwrap());
    store.get_all(&keys).await.unwrap();
    for key in &keys {
        let batch = Batch::new().put(key, Expect::Absent, "{}", Ttl::Forever);
        assert!(matches!(store.commit(&batch).await.unwrap(), Commit::Applied(_)));
    }
    store.get_all(&keys).await.unwrap();

    let text = recorder.prometheus();
    let counted: Vec<&str> =
        text.lines().filter(|line| line.starts_with("kv_hit") || line.starts_with("kv_miss")).collect();
    let expected = ["kv_hit_total", "kv_miss_total"].iter().flat_map(|name| {
        ["other", "user"].map(|kind| {
            let keys = kinds.iter().filter(|(_, of)| *of == kind).count();
            format!("{name}{{kind=\"{kind}\"}} {keys}")
        })
    });
    assert_eq!(counted, expected.collect::<Vec<_>>());
}
