//! A store whose calls follow a script.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, slice};

use async_trait::async_trait;

use super::Fault;
use crate::{
    Batch, BoxFuture, BoxStream, Channel, Commit, Error, Key, Log, Position, Record, Store, forward,
};

/// What a call of a store asks for.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the calls of the trait, with their arguments")]
pub enum Request {
    GetAll(Vec<Key>),
    Commit(Batch),
    CommitEach(Vec<Batch>),
    Read { log: Log, after: Option<Position>, limit: usize },
    Watch(Channel),
    Connect,
}

impl Request {
    /// The batches to commit; none of a read.
    pub fn batches(&self) -> &[Batch] {
        match self {
            Request::Commit(batch) => slice::from_ref(batch),
            Request::CommitEach(batches) => batches,
            _ => &[],
        }
    }
}

/// The answer to a call: of its request's kind.
#[allow(missing_docs, reason = "the results of the trait's calls")]
pub enum Answer {
    Values(Result<Vec<Option<String>>, Error>),
    /// One for each batch; of a commit, one.
    Commits(Vec<Result<Commit, Error>>),
    Records(Result<Vec<Record>, Error>),
    Watched(Result<BoxStream<'static, Result<(), Error>>, Error>),
    Connected(Result<(), Error>),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("errors", &self.errors().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl Answer {
    /// The errors in this answer: at most one, or one for each batch.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        let (one, each) = match self {
            Answer::Values(answer) => (answer.as_ref().err(), &[][..]),
            Answer::Commits(answers) => (None, &answers[..]),
            Answer::Records(answer) => (answer.as_ref().err(), &[][..]),
            Answer::Watched(answer) => (answer.as_ref().err(), &[][..]),
            Answer::Connected(answer) => (answer.as_ref().err(), &[][..]),
        };
        one.into_iter().chain(each.iter().filter_map(|answer| answer.as_ref().err()))
    }
}

/// A call that arrived at a [`TestStore`]. The script sends it on: once, never, later, or twice.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it asks for.
    pub request: Request,
    /// Its number, from 1. Reads and commits count together; `watch` and `connect` each have numbers of their own.
    pub number: usize,
    /// The store below.
    pub store: Arc<dyn Store>,
}

impl Call {
    /// The batches that it commits; none if it reads.
    pub fn batches(&self) -> &[Batch] {
        self.request.batches()
    }

    /// Sends it to the store below.
    pub async fn send(&self) -> Answer {
        let store = &self.store;
        match &self.request {
            Request::GetAll(keys) => Answer::Values(store.get_all(keys).await),
            Request::Commit(batch) => Answer::Commits(vec![store.commit(batch).await]),
            Request::CommitEach(batches) => Answer::Commits(store.commit_each(batches).await),
            Request::Read { log, after, limit } => Answer::Records(store.read(log, *after, *limit).await),
            Request::Watch(channel) => Answer::Watched(store.watch(channel).await),
            Request::Connect => Answer::Connected(store.connect().await),
        }
    }

    /// The answer that it failed, each of its batches alike.
    pub fn fail(&self, error: &Error) -> Answer {
        let error = error.clone();
        match &self.request {
            Request::GetAll(_) => Answer::Values(Err(error)),
            Request::Commit(_) => Answer::Commits(vec![Err(error)]),
            Request::CommitEach(batches) => Answer::Commits(vec![Err(error); batches.len()]),
            Request::Read { .. } => Answer::Records(Err(error)),
            Request::Watch(_) => Answer::Watched(Err(error)),
            Request::Connect => Answer::Connected(Err(error)),
        }
    }
}

type Script = dyn Fn(Call) -> BoxFuture<'static, Answer> + Send + Sync;

/// A store in front of another one. A script, which is an async function of each call, decides what becomes of the call: it
/// can look at it, act before and after it is sent, hold it, and change or lose its answer.
///
/// ```
/// use std::sync::Arc;
/// use onetap_store::testing::TestStore;
/// use onetap_store::{Batch, Expect, Key, Memory, Store, Ttl};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), onetap_store::Error> {
///
/// // Another writer is always faster.
/// let key = Key::new("key")?;
/// let other = Batch::new().put(&key, Expect::Absent, "other", Ttl::Forever);
/// let store = TestStore::scripted(Arc::new(Memory::new()), move |call| {
///     let other = other.clone();
///     async move {
///         if !call.batches().is_empty() {
///             let _ = call.store.commit(&other).await;
///         }
///         call.send().await
///     }
/// });
/// let mine = Batch::new().put(&key, Expect::Absent, "mine", Ttl::Forever);
/// let _ = store.commit(&mine).await?;
/// assert_eq!(store.get(&key).await?.as_deref(), Some("other"));
/// assert_eq!(store.calls(), 2);
/// # Ok(())
/// # }
/// ```
pub struct TestStore {
    store: Arc<dyn Store>,
    script: Box<Script>,
    calls: AtomicUsize,
    watches: AtomicUsize,
    connects: AtomicUsize,
    /// Recorded requests; `None` if they are not recorded.
    requests: Option<Mutex<Vec<Request>>>,
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStore")
            .field("store", &self.store)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl TestStore {
    /// `store` behind `script`.
    pub fn scripted<A: Future<Output = Answer> + Send + 'static>(
        store: Arc<dyn Store>,
        script: impl Fn(Call) -> A + Send + Sync + 'static,
    ) -> Arc<TestStore> {
        Arc::new(TestStore::of(store, script))
    }

    fn of<A: Future<Output = Answer> + Send + 'static>(
        store: Arc<dyn Store>,
        script: impl Fn(Call) -> A + Send + Sync + 'static,
    ) -> TestStore {
        TestStore {
            store,
            script: Box::new(move |call| Box::pin(script(call))),
            calls: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            connects: AtomicUsize::new(0),
            requests: None,
        }
    }

    /// `store` as it is, to look at what was asked of it.
    pub fn recording(store: Arc<dyn Store>) -> Arc<TestStore> {
        let passing = TestStore::of(store, |call| async move { call.send().await });
        Arc::new(TestStore { requests: Some(Mutex::default()), ..passing })
    }

    /// What a recording store was asked since the last look.
    pub fn requests(&self) -> Vec<Request> {
        let recorded = self
            .requests
            .as_ref()
            .map(|requests| std::mem::take(&mut *requests.lock().unwrap_or_else(PoisonError::into_inner)));
        recorded.unwrap_or_default()
    }

    /// The store below.
    pub fn below(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// `store` with the fault that `plan` has for each number of a read or a commit. `watch` and `connect` have none.
    pub fn faulty(
        store: Arc<dyn Store>,
        plan: impl Fn(usize) -> Fault + Send + Sync + 'static,
    ) -> Arc<TestStore> {
        TestStore::scripted(store, move |call| {
            let fault = match call.request {
                Request::Watch(_) | Request::Connect => Fault::Pass,
                _ => plan(call.number),
            };
            fault.inject(call)
        })
    }

    /// `store` with these faults for its first reads and commits, and none for the others.
    pub fn first(store: Arc<dyn Store>, faults: Vec<Fault>) -> Arc<TestStore> {
        TestStore::faulty(store, move |call| faults.get(call - 1).cloned().unwrap_or(Fault::Pass))
    }

    /// `store` as it is, to count its calls.
    pub fn counting(store: Arc<dyn Store>) -> Arc<TestStore> {
        TestStore::faulty(store, |_| Fault::Pass)
    }

    /// How many reads and commits were made: on Redis and Upstash each is one round trip.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// How many subscriptions were asked for.
    pub fn watches(&self) -> usize {
        self.watches.load(Ordering::SeqCst)
    }

    async fn run(&self, request: Request) -> Answer {
        if let Some(requests) = &self.requests {
            requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        }
        let count = match &request {
            Request::Watch(_) => &self.watches,
            Request::Connect => &self.connects,
            _ => &self.calls,
        };
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        (self.script)(Call { request, number, store: Arc::clone(&self.store) }).await
    }
}

#[async_trait]
impl Store for TestStore {
    async fn get_all(&self, keys: &[Key]) -> Result<Vec<Option<String>>, Error> {
        match self.run(Request::GetAll(keys.to_vec())).await {
            Answer::Values(answer) => answer,
            _ => Err(other_kind()),
        }
    }

    async fn commit(&self, batch: &Batch) -> Result<Commit, Error> {
        match self.run(Request::Commit(batch.clone())).await {
            Answer::Commits(answers) => answers.into_iter().next().unwrap_or_else(|| Err(other_kind())),
            _ => Err(other_kind()),
        }
    }

    async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
        match self.run(Request::CommitEach(batches.to_vec())).await {
            Answer::Commits(answers) => answers,
            _ => vec![Err(other_kind()); batches.len()],
        }
    }

    async fn read(&self, log: &Log, after: Option<Position>, limit: usize) -> Result<Vec<Record>, Error> {
        match self.run(Request::Read { log: log.clone(), after, limit }).await {
            Answer::Records(answer) => answer,
            _ => Err(other_kind()),
        }
    }

    async fn watch(&self, channel: &Channel) -> Result<BoxStream<'static, Result<(), Error>>, Error> {
        match self.run(Request::Watch(channel.clone())).await {
            Answer::Watched(answer) => answer,
            _ => Err(other_kind()),
        }
    }

    async fn connect(&self) -> Result<(), Error> {
        match self.run(Request::Connect).await {
            Answer::Connected(answer) => answer,
            _ => Err(other_kind()),
        }
    }

    forward!(store: capabilities, max_value);
}

fn other_kind() -> Error {
    Error::rejected("the script's answer is of another kind than the request")
}
