//! The idempotency key in a request's headers.

use http::HeaderMap;
use http::header::AsHeaderName;

use crate::MAX_KEY;

/// Why the headers of a request name no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// They name two different ones.
    Differ,
    /// A key is 1 to [`MAX_KEY`] visible ASCII characters.
    Invalid,
}

/// The idempotency key in the headers of these names, without spaces around it, as the layers read it: for a handler that makes
/// its [`call`](crate::Idempotency::call) itself.
///
/// ```
/// use http::HeaderMap;
/// use onetap_idem::http::{HEADERS, KeyError, key};
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(key(&headers, HEADERS), Ok(None));
/// headers.insert("idempotency-key", "order-42".parse().unwrap());
/// assert_eq!(key(&headers, HEADERS), Ok(Some("order-42")));
/// headers.insert("x-idempotency-key", "order-43".parse().unwrap());
/// assert_eq!(key(&headers, HEADERS), Err(KeyError::Differ));
/// ```
pub fn key<N: AsHeaderName>(
    headers: &HeaderMap,
    names: impl IntoIterator<Item = N>,
) -> Result<Option<&str>, KeyError> {
    let mut given = names.into_iter().flat_map(|name| headers.get_all(name));
    let Some(first) = given.next() else { return Ok(None) };
    if given.any(|other| other != first) {
        return Err(KeyError::Differ);
    }
    match first.to_str().map(str::trim) {
        Ok(key) if (1..=MAX_KEY).contains(&key.len()) => Ok(Some(key)),
        _ => Err(KeyError::Invalid),
    }
}
