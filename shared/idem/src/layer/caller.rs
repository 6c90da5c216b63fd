//! Who sent a request.

use std::fmt;
use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::request::Parts;

/// Who sent a request, for the layers: a key means the same request only to the same caller.
///
/// Two requests of one key from different callers are two runs, and neither gets the other's answer. So a caller has to be the
/// *same in every retry* and *different for every user*:
///
/// | | fits | does not fit |
/// |---|---|---|
/// | [`by`](Caller::by) | users: the subject of a verified token, an API key's id, a session's user | what a client can claim without proof |
/// | [`authorization`](Caller::authorization) | an `Authorization` header that stays the same: static tokens, basic authentication | tokens that are refreshed, SigV4 and DPoP, whose header changes with every request; cookies and other headers, which it does not read |
/// | [`anyone`](Caller::anyone) | one client, or keys that nobody else can guess or needs to | users who do not trust each other: two that use the same key for the same request share its answer |
///
/// Of a caller only a hash is stored.
///
/// ```
/// # use onetap_idem::{Caller, Idempotency};
/// # use onetap_idem::http::IdempotencyLayer;
/// /// Put into the request's extensions by the layer outside this one, which has verified the token.
/// #[derive(Clone)]
/// struct User {
///     id: String,
/// }
///
/// # fn layer(idem: Idempotency) -> IdempotencyLayer {
/// IdempotencyLayer::new(idem, Caller::by(|request| Some(request.extensions.get::<User>()?.id.clone())))
/// # }
/// ```
#[derive(Clone)]
pub struct Caller(Arc<Who>);

type Who = dyn Fn(&Parts) -> Option<String> + Send + Sync;

impl Caller {
    /// The caller that `who` finds in a request. The requests for which it finds none share their keys with each other.
    pub fn by(who: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Caller {
        Caller(Arc::new(who))
    }

    /// The value of the `Authorization` header, as it is: another value is another caller. The requests without one share
    /// their keys with each other.
    pub fn authorization() -> Caller {
        Caller::by(|request| {
            let value = request.headers.get(AUTHORIZATION)?;
            Some(value.as_bytes().iter().map(|byte| char::from(*byte)).collect())
        })
    }

    /// No distinction: a key is the same request whoever sends it.
    pub fn anyone() -> Caller {
        Caller::by(|_| None)
    }

    pub(super) fn of(&self, request: &Parts) -> String {
        (self.0)(request).unwrap_or_default()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}
