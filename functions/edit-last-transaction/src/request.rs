//! What the head of a request asks for.

use hmac::{Hmac, KeyInit, Mac};
use http::header::{AUTHORIZATION, IF_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use lambda_http::RequestExt;
use onetap_config::Secret;
use onetap_idem::http::{HEADERS, KeyError, key};
use onetap_idem::{Call, Idempotency, Invocation, digest};
use onetap_ledger::IfMatch;
use sha2::Sha256;
use tokio::time::Instant;

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// The description of all this.
    OpenApi,
    /// A user's last transaction. The id is not judged yet.
    LastTransaction(&'a str),
    /// The months of a user's ledger. The id is not judged yet.
    Transactions(&'a str),
    /// Nowhere: 404.
    Nowhere,
}

/// The path as it was sent. Lambda's own is kept beside the URI, into which an API's stage may have been put.
pub(crate) fn path<B>(request: &Request<B>) -> &str {
    match request.raw_http_path() {
        "" => request.uri().path(),
        raw => raw,
    }
}

/// The query as it was sent. Lambda's HTTP API delivers it as it is, a REST API's is encoded again.
pub(crate) fn query<B>(request: &Request<B>) -> &str {
    request.uri().query().unwrap_or_default()
}

/// When the answer must be ready, if Lambda has set a time limit.
pub(crate) fn deadline<B>(request: &Request<B>) -> Option<Instant> {
    Some(Invocation::of(request.lambda_context_ref()?).deadline)
}

impl Place<'_> {
    /// What `path` leads to. Nothing is decoded: an id needs no escapes, and one with escapes is invalid.
    pub(crate) fn of(path: &str) -> Place<'_> {
        match path.strip_prefix("/users/").and_then(|rest| rest.split_once('/')) {
            Some((id, "last-transaction")) => Place::LastTransaction(id),
            Some((id, "transactions")) => Place::Transactions(id),
            _ if path == "/openapi.json" => Place::OpenApi,
            _ => Place::Nowhere,
        }
    }
}

/// Whether the caller has one of the tokens. Constant-time comparison.
pub(crate) fn is_authorized(headers: &HeaderMap, tokens: &[Secret]) -> bool {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some((scheme, given)) = given.and_then(|value| value.split_once(' ')) else { return false };
    let given = given.trim_start();
    // Both are hashed under the same key, so that texts of any length are compared as tags of one length.
    let same = |token: &Secret| {
        let mac = |message: &str| {
            let mut mac = Hmac::<Sha256>::new_from_slice(token.reveal().as_bytes()).ok()?;
            mac.update(message.as_bytes());
            Some(mac)
        };
        let tag = mac(given).map(|mac| mac.finalize().into_bytes());
        mac(token.reveal()).zip(tag).is_some_and(|(mac, tag)| mac.verify_slice(&tag).is_ok())
    };
    // All are compared, whichever it is.
    let known = tokens.iter().fold(false, |known, token| same(token) | known);
    known && scheme.eq_ignore_ascii_case("bearer")
}

/// The condition, if there is one.
pub(crate) fn if_match(headers: &HeaderMap) -> Option<IfMatch> {
    headers.contains_key(IF_MATCH).then(|| IfMatch::parse(&list(headers, IF_MATCH)))
}

/// All headers of that name as one list.
pub(crate) fn list(headers: &HeaderMap, name: HeaderName) -> String {
    let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    values.collect::<Vec<_>>().join(",")
}

/// The idempotency key, if there is one; `Err` says what is wrong with it.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, &'static str> {
    key(headers, HEADERS).map_err(|error| match error {
        KeyError::Differ => "Idempotency-Key 有兩個不同的值",
        KeyError::Invalid => "Idempotency-Key 必須是 1 到 256 個可見的 ASCII 字元",
    })
}

/// The call of a key. It is the key's for this method and path; the condition and the body must not change under it. The bearer
/// token is not part of it: there is one client, and a retry with a rotated token must still count as a retry.
pub(crate) fn call<B: AsRef<[u8]>>(idem: &Idempotency, key: &str, request: &Request<B>) -> Call {
    let key = digest(&[request.method().as_str().as_bytes(), path(request).as_bytes(), key.as_bytes()]);
    let condition = request.headers().get(IF_MATCH).map(HeaderValue::as_bytes).unwrap_or_default();
    let call = idem.call(&key).fingerprint(digest(&[condition, request.body().as_ref()]));
    match request.lambda_context_ref() {
        Some(context) => call.invocation(context),
        None => call,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        let mut headers = HeaderMap::new();
        pairs.iter().map(pair).for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    }

    #[test]
    fn a_path_leads_to_one_place_or_nowhere() {
        assert_eq!(Place::of("/openapi.json"), Place::OpenApi);
        assert_eq!(Place::of("/users/U1/last-transaction"), Place::LastTransaction("U1"));
        assert_eq!(Place::of("/users/U1%2Fx/last-transaction"), Place::LastTransaction("U1%2Fx"));
        assert_eq!(Place::of("/users/U1/transactions"), Place::Transactions("U1"));
        assert_eq!(Place::of("/users//transactions"), Place::Transactions(""));
        for path in [
            "/",
            "",
            "/users/U1",
            "/users/U1/transactions/",
            "/users/a/b/transactions",
            "/users/transactions",
            "/users/U1/last-transaction/",
            "/users/a/b/last-transaction",
            "/users/last-transaction",
            "//users/U1/last-transaction",
            "/Users/U1/last-transaction",
            "/users/U1/last_transaction",
            "/users/../x/last-transaction",
        ] {
            assert_eq!(Place::of(path), Place::Nowhere, "{path}");
        }
    }

    #[test]
    fn one_of_the_tokens_opens_the_door_and_nothing_else() {
        let tokens = ["old-token", "new-token"].map(Secret::new);
        let opens = |value: &str| is_authorized(&headers(&[("authorization", value)]), &tokens);
        assert!(opens("Bearer old-token") && opens("Bearer new-token") && opens("bearer  new-token"));
        for wrong in [
            "Bearer",
            "Bearer ",
            "Bearer new-toke",
            "Bearer new-token2",
            "Bearer NEW-TOKEN",
            "Basic new-token",
            "new-token",
            "Bearer old-token,new-token",
            "Bearer 密碼",
            "Bearer new-token ",
        ] {
            assert!(!opens(wrong), "{wrong}");
        }
        assert!(!is_authorized(&HeaderMap::new(), &tokens));
        assert!(!is_authorized(&headers(&[("authorization", "Bearer ")]), &[]));
    }

    #[test]
    fn a_key_is_one_visible_text() {
        let key = |pairs: &[(&'static str, &str)]| {
            idempotency_key(&headers(pairs)).map(|key| key.map(str::to_owned))
        };
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&[("idempotency-key", " k-1 ")]), Ok(Some("k-1".to_owned())));
        assert_eq!(key(&[("idempotency-key", "k"), ("x-idempotency-key", "k")]), Ok(Some("k".to_owned())));
        let long = "k".repeat(257);
        for wrong in [
            vec![("idempotency-key", "a"), ("x-idempotency-key", "b")],
            vec![("idempotency-key", "a"), ("idempotency-key", "b")],
            vec![("idempotency-key", "")],
            vec![("x-idempotency-key", "鍵")],
            vec![("idempotency-key", &long)],
        ] {
            assert!(key(&wrong).is_err());
        }
    }
}
