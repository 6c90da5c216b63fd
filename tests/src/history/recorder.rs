//! A store that writes down every call.

use std::sync::Arc;

use async_trait::async_trait;
use onetap_store::{Batch, Commit, Error, Key, Log, Position, Record, Store, forward};

use super::event::{Call, Change, Layer};
use super::journal::{CallId, Journal};

/// Another store, and a journal of what it was asked and what it answered.
#[derive(Debug)]
pub struct Recorder {
    store: Arc<dyn Store>,
    journal: Arc<Journal>,
}

impl Recorder {
    /// `store`, written down in `journal`.
    pub fn new(store: Arc<dyn Store>, journal: Arc<Journal>) -> Recorder {
        Recorder { store, journal }
    }

    fn begin(&self, batch: &Batch) -> CallId {
        self.journal.call(Layer::Store, Call::Commit(Change::of(batch)))
    }
}

#[async_trait]
impl Store for Recorder {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        let begin = |key: &Key| self.journal.call(Layer::Store, Call::Get(key.as_str().to_owned()));
        let call_ids: Vec<CallId> = keys.iter().map(begin).collect();
        let answer = self.store.get_all(keys).await;
        for (n, call_id) in call_ids.into_iter().enumerate() {
            let value = answer.as_ref().map(|values| values[n].clone()).map_err(Error::clone);
            self.journal.answer(call_id, (&value).into());
        }
        answer
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        let call_id = self.begin(batch);
        let answer = self.store.commit(batch).await;
        self.journal.answer(call_id, (&answer).into());
        answer
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        let call_ids: Vec<CallId> = batches.iter().map(|batch| self.begin(batch)).collect();
        let answers = self.store.commit_each(batches).await;
        for (call_id, answer) in call_ids.into_iter().zip(&answers) {
            self.journal.answer(call_id, answer.into());
        }
        answers
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        let (name, position) = (log.as_str().to_owned(), after.map(|after| after.to_string()));
        let call_id = self.journal.call(Layer::Store, Call::Read { log: name, after: position, limit });
        let answer = self.store.read(log, after, limit).await;
        self.journal.answer(call_id, (&answer).into());
        answer
    }

    forward!(store: watch, connect, max_value);
}
