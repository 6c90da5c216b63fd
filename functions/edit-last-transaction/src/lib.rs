#![doc = include_str!("../README.md")]

mod answer;
mod config;
mod month;
mod request;
mod transactions;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use http::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, StatusCode};
use onetap_config::{ConfigError, Variables};
use onetap_idem::{Idempotency, Returned};
use onetap_ledger::{Attempt, Book, Change, ChangeError, Entry, Moment, Patch, Step, etag, key_kind, texts};
use onetap_store::{Batch, Edit, Store, Values, open_with_kinds, warm_up};
use tokio::time::Instant;

pub use answer::{Answer, LambdaAnswer};
pub use config::Config;
pub use transactions::MAX_ANSWER_BYTES;

use answer::{
    Success, empty, failed, failed_once, not_allowed, problem, refusal, replayed, unauthorized, whole,
};
use request::{Place, call, deadline, idempotency_key, if_match, is_authorized, path};

/// The OpenAPI 3.1 document that is served at `/openapi.json`.
pub const OPENAPI: &str = include_str!("../openapi.json");

/// No body is larger, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// The function.
pub struct EditLastTransaction {
    store: Arc<dyn Store>,
    idem: Idempotency,
    config: Config,
    clock: fn() -> Moment,
}

impl fmt::Debug for EditLastTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditLastTransaction").field("config", &self.config).finish_non_exhaustive()
    }
}

impl EditLastTransaction {
    /// The function over `store`.
    pub fn new(store: Arc<dyn Store>, config: Config) -> EditLastTransaction {
        let idem = Idempotency::with_config(Arc::clone(&store), config.idem.clone());
        EditLastTransaction { store, idem, config, clock: Moment::now }
    }

    /// The same with another clock in place of the system's, for a test whose result would depend on the hour.
    #[must_use]
    pub fn with_clock(mut self, clock: fn() -> Moment) -> EditLastTransaction {
        self.clock = clock;
        self
    }

    /// The function that these variables describe.
    pub fn from_variables(variables: &Variables<'_>) -> Result<EditLastTransaction, ConfigError> {
        let store = open_with_kinds(&onetap_store::Config::from_variables(variables)?, key_kind)?;
        Ok(EditLastTransaction::new(store, Config::from_variables(variables)?))
    }

    /// Opens the connection to the store while the function starts. Never fails.
    pub async fn warm_up(&self) {
        warm_up("store", self.store.connect()).await;
    }

    /// One invocation of Lambda.
    pub async fn invoke(&self, request: lambda_http::Request) -> Result<LambdaAnswer, Infallible> {
        Ok(LambdaAnswer(self.handle(request).await))
    }

    /// Answers a request, whatever it is.
    pub async fn handle<B: AsRef<[u8]>>(&self, request: Request<B>) -> Answer {
        let mut answer = self.answer(&request).await;
        let headers = answer.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        tracing::info!(status = answer.status().as_u16(), "answered");
        onetap_telemetry::flush();
        answer
    }

    async fn answer<B: AsRef<[u8]>>(&self, request: &Request<B>) -> Answer {
        let place = Place::of(path(request));
        let user_id = match place {
            Place::LastTransaction(user_id) | Place::Transactions(user_id) => user_id,
            Place::OpenApi if request.method() == Method::GET => {
                return whole(StatusCode::OK, OPENAPI.to_owned());
            }
            Place::OpenApi => return not_allowed("GET"),
            Place::Nowhere => return refusal(StatusCode::NOT_FOUND, "找不到這個路徑"),
        };
        if !is_authorized(request.headers(), &self.config.tokens) {
            return unauthorized();
        }
        let Some(book) = Book::new(user_id, self.config.ledger) else {
            return refusal(StatusCode::BAD_REQUEST, "user_id 必須是 1 到 64 個英數字、_ 或 -");
        };
        let body = request.body().as_ref();
        if body.len() > MAX_BODY {
            return failed(&ChangeError::TooLarge, book.life());
        }
        if let Place::Transactions(_) = place {
            return match *request.method() {
                Method::GET => self.month(request, &book).await,
                _ => not_allowed("GET"),
            };
        }
        match *request.method() {
            Method::GET => self.read(&book, deadline(request)).await,
            Method::PUT => match Entry::from_body(body) {
                Ok(entry) => self.change(request, &book, Change::Put(entry), recorded).await,
                Err(invalid) => failed(&ChangeError::Invalid(invalid), book.life()),
            },
            Method::PATCH => match Patch::from_body(body) {
                Ok(patch) => self.change(request, &book, Change::Edit(patch), edited).await,
                Err(invalid) => failed(&ChangeError::Invalid(invalid), book.life()),
            },
            Method::DELETE => {
                let attempt = self.attempt(Change::Delete, request);
                match self.make(attempt, &book, deadline(request)).await {
                    Ok(_) => empty(StatusCode::NO_CONTENT),
                    Err(failure) => failed(&failure, book.life()),
                }
            }
            _ => not_allowed("GET, PUT, PATCH, DELETE"),
        }
    }

    async fn read(&self, book: &Book, deadline: Option<Instant>) -> Answer {
        let read = |there: &Values| Ok((Batch::new(), there.get(book.last_transaction()).map(str::to_owned)));
        let edit = Edit::of(book.last_transaction()).deadline(deadline);
        match edit.apply(&*self.store, read).await.map_err(ChangeError::from) {
            Ok(Some(stored)) if Entry::read(&stored).is_some() => {
                Success { status: 200, etag: Some(etag(&stored)), body: stored }.into()
            }
            Ok(Some(_)) => failed(&ChangeError::Broken, book.life()),
            Ok(None) => failed(&ChangeError::Missing, book.life()),
            Err(failure) => failed(&failure, book.life()),
        }
    }

    fn attempt<B>(&self, change: Change, request: &Request<B>) -> Attempt {
        Attempt::new(change, if_match(request.headers())).at((self.clock)())
    }

    /// Makes the change, however often it is asked for.
    async fn make(
        &self,
        mut attempt: Attempt,
        book: &Book,
        deadline: Option<Instant>,
    ) -> Result<Step, ChangeError> {
        let edit = attempt.edit(book).deadline(deadline);
        Ok(edit.apply(&*self.store, |there| attempt.write(book, there)).await?)
    }

    /// Makes the change, and once for its key if it has one: then the write and the answer are committed together, so that no
    /// crash leaves one without the other. Errors are not recorded: the next request with the key runs again.
    async fn change<B: AsRef<[u8]>>(
        &self,
        request: &Request<B>,
        book: &Book,
        change: Change,
        success: fn(&Step) -> Success,
    ) -> Answer {
        let mut attempt = self.attempt(change, request);
        let key = match idempotency_key(request.headers()) {
            Ok(Some(key)) => key,
            Ok(None) => {
                return match self.make(attempt, book, deadline(request)).await {
                    Ok(step) => success(&step).into(),
                    Err(failure) => failed(&failure, book.life()),
                };
            }
            Err(wrong) => return problem(StatusCode::BAD_REQUEST, wrong, None),
        };
        let changed = call(&self.idem, key, request).edit(attempt.edit(book), |there| {
            let (writes, step) = attempt.write(book, there)?;
            Ok((writes, success(&step)))
        });
        match changed.await {
            Ok(Returned::Executed(success)) => success.into(),
            Ok(Returned::Replayed(success)) => replayed(success.into()),
            Err(error) => failed_once(error, book.life()),
        }
    }
}

/// The entry, as it will be read.
fn recorded(step: &Step) -> Success {
    let status = if step.created() { 201 } else { 200 };
    Success { status, etag: step.etag(), body: step.entry().map(Entry::to_json).unwrap_or_default() }
}

/// The whole entry, in the words of seed 002. It is put in as it is: parsing it would cost amounts their digits.
fn edited(step: &Step) -> Success {
    let entry = step.entry().map(Entry::to_json).unwrap_or_default();
    let body = format!(r#"{{"success":true,"message":"{}","updated_tx":{entry}}}"#, texts::EDITED);
    Success { status: 200, etag: step.etag(), body }
}
