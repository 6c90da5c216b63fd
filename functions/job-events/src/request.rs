//! Reads and authorises a request.

use std::borrow::Cow;
use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode};
use onetap_bus::{Job, Resume};
use onetap_config::Secret;
use onetap_store::Position;
use percent_encoding::percent_decode_str;

use crate::token::remaining_ttl;

/// An authorised request.
pub(crate) struct Call {
    pub(crate) job: Job,
    pub(crate) target: Target,
}

pub(crate) enum Target {
    /// The job's events from there on, for at most the rest of the token's lifetime.
    Events(Resume, Duration),
    /// The job's latest state.
    State,
}

/// Why a request is refused. The message quotes nothing of the request.
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: Cow<'static, str>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { status, message: message.into() }
    }
}

fn bad(message: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, message)
}

impl Call {
    pub(crate) fn read<B>(request: &Request<B>, secrets: &[Secret]) -> Result<Call, Refusal> {
        let segments: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let (id, events) = match segments[..] {
            ["jobs", id] => (id, false),
            ["jobs", id, "events"] => (id, true),
            _ => return Err(Refusal::new(StatusCode::NOT_FOUND, "there is nothing at this path")),
        };
        if request.method() != Method::GET {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered"));
        }
        let query = Query(request.uri().query().unwrap_or_default());
        let domain = query.get("domain")?.unwrap_or_default();
        // Checked before the token: that a name is malformed is no secret.
        let job = Job::new(domain, decoded(id)?).map_err(|malformed| bad(malformed.to_string()))?;
        let token_ttl = query.get("token")?.and_then(|token| remaining_ttl(secrets, &job, &token));
        let Some(token_ttl) = token_ttl else {
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "the token is missing, wrong or expired"));
        };
        let target = match events {
            true => Target::Events(resume(request.headers(), &query)?, token_ttl),
            false => Target::State,
        };
        Ok(Call { job, target })
    }
}

/// Where the client stopped: the header that `EventSource` sends when it reconnects goes before the parameter, with
/// which the page began.
fn resume(headers: &HeaderMap, query: &Query<'_>) -> Result<Resume, Refusal> {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?").to_owned());
    let last_event_id = match header.filter(|id| !id.is_empty()) {
        Some(id) => Some(id),
        None => query.get("lastEventId")?.filter(|id| !id.is_empty()),
    };
    let after = last_event_id.map(|id| id.parse::<Position>()).transpose();
    let last_seq = query.get("last_seq")?.map(|seq| seq.parse::<u64>()).transpose();
    Ok(Resume {
        after: after.map_err(|_| bad("Last-Event-ID is not the id of an event"))?,
        last_seq: last_seq.map_err(|_| bad("last_seq is not a whole number"))?,
    })
}

/// `name=value&…`, percent-encoded.
struct Query<'a>(&'a str);

impl Query<'_> {
    fn get(&self, name: &str) -> Result<Option<String>, Refusal> {
        let mut values = self.0.split('&').filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then_some(value)
        });
        match (values.next(), values.next()) {
            (value, None) => value.map(decoded).transpose(),
            // Two values could be checked by one reader and used by another.
            (_, Some(_)) => Err(bad("a parameter is there twice")),
        }
    }
}

fn decoded(text: &str) -> Result<String, Refusal> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| bad("the address is not UTF-8"))?;
    Ok(text.into_owned())
}
