//! A store that writes down every call.

use std::sync::Arc;

use onetap_store::testing::{self, Request, TestStore};
use onetap_store::{Error, Store};

use super::event::{Call, Change, Layer};
use super::journal::{CallId, Journal};

/// `store`, with what it was asked and what it answered written down in `journal`.
pub fn recorded(store: Arc<dyn Store>, journal: Arc<Journal>) -> Arc<dyn Store> {
    TestStore::scripted(store, move |call| record(Arc::clone(&journal), call))
}

async fn record(journal: Arc<Journal>, call: testing::Call) -> testing::Answer {
    let begin = |call| journal.call(Layer::Store, call);
    let call_ids: Vec<CallId> = match &call.request {
        Request::GetAll(keys) => keys.iter().map(|key| begin(Call::Get(key.as_str().to_owned()))).collect(),
        Request::Commit(_) | Request::CommitEach(_) => {
            call.batches().iter().map(|batch| begin(Call::Commit(Change::of(batch)))).collect()
        }
        Request::Read { log, after, limit } => {
            let (log, after) = (log.as_str().to_owned(), after.map(|after| after.to_string()));
            vec![begin(Call::Read { log, after, limit: *limit })]
        }
        Request::Watch(_) | Request::Connect => Vec::new(),
    };
    let answer = call.send().await;
    for (n, call_id) in call_ids.into_iter().enumerate() {
        let noted = match &answer {
            testing::Answer::Values(values) => {
                (&values.as_ref().map(|values| values[n].clone()).map_err(Error::clone)).into()
            }
            testing::Answer::Commits(commits) => (&commits[n]).into(),
            testing::Answer::Records(records) => records.into(),
            testing::Answer::Watched(_) | testing::Answer::Connected(_) => continue,
        };
        journal.answer(call_id, noted);
    }
    answer
}
