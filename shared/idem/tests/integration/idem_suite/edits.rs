//! Edits that are recorded as the result of a run.

use onetap_store::edit::{self, Edit};
use onetap_store::lease::{Acquire, AcquireOutcome};
use onetap_store::testing::Fault;
use onetap_store::{Batch, Values};

use super::*;

/// Increments the number.
fn increment(key: &Key, there: &Values) -> Result<(Batch, usize), Infallible> {
    let next = there.get(key).map_or(0, |text| text.parse().unwrap()) + 1;
    Ok((Batch::new().put(key, there.expect(key), next.to_string(), LONG), next))
}

async fn number(store: &Arc<dyn Store>, key: &Key) -> Option<String> {
    store.get(key).await.unwrap()
}

pub async fn a_recorded_edit_happens_once_whichever_replies_are_lost(store: Arc<dyn Store>) {
    let names = fresh("edit");
    // The claim, the read, the write, and the repeats of each.
    for first in 1..=5 {
        for second in first..=5 {
            let id = format!("{names}:{first}-{second}");
            let edited = Key::new(format!("{id}:edited")).unwrap();
            let lossy = TestStore::faulty(Arc::clone(&store), move |call| {
                if call == first || call == second { Fault::ReplyLost } else { Fault::Pass }
            });
            let lossy: Arc<dyn Store> = lossy;
            for store in [&lossy, &store, &store] {
                let idem = engine(store, SHORT);
                match idem.edit(&id, Edit::of(&edited), |there| increment(&edited, there)).await {
                    Ok(n) => assert_eq!(n, 1, "{first} {second}"),
                    // A read whose reply is lost is not read again: nothing was written, and the key is free.
                    Err(error) => assert_eq!(error.outcome(), "failed", "{first} {second}"),
                }
            }
            assert_eq!(number(&store, &edited).await.as_deref(), Some("1"));
        }
    }
}

pub async fn a_recorded_edit_of_a_run_that_was_taken_over_writes_nothing(store: Arc<dyn Store>) {
    let id = fresh("edit");
    let edited = Key::new(format!("{id}:edited")).unwrap();
    let mut run = claim(&store, &engine(&store, SHORT), &id).await;
    sleep(LAPSED).await;
    let edit = Edit::of(&edited);
    let step = |there: &Values| increment(&edited, there);
    assert_eq!(engine(&store, LONG).edit(&id, edit.clone(), step).await.unwrap(), 1);
    assert!(matches!(run.edit(&*store, &edit, step).await, Err(edit::Error::TakenOver)));
    assert_eq!(number(&store, &edited).await.as_deref(), Some("1"));
}

pub async fn an_edit_with_a_record_that_loses_its_lease_frees_its_key(store: Arc<dyn Store>) {
    let id = fresh("edit");
    let (edited, lock) = (Key::new(format!("{id}:edited")).unwrap(), Key::new(format!("{id}:lock")).unwrap());
    let request = Acquire::new(store.clone(), lock.clone()).ttl(LONG);
    let AcquireOutcome::Acquired(lease) = request.acquire().await.unwrap() else {
        panic!("nobody else asked")
    };
    let token = store.get(&lock).await.unwrap().unwrap();
    let theirs = Batch::new().put(&lock, Expect::Is(token), "another holder", LONG);
    assert!(matches!(store.commit(&theirs).await.unwrap(), Commit::Applied(_)));
    let idem = engine(&store, LONG);
    let guarded = Edit::of(&edited).guarded_by(&lease);
    let ended = idem.edit(&id, guarded, |there| increment(&edited, there)).await;
    assert!(matches!(ended, Err(Error::Function(edit::Error::LeaseLost))), "{ended:?}");
    assert_eq!(idem.edit(&id, Edit::of(&edited), |there| increment(&edited, there)).await.unwrap(), 1);
}
