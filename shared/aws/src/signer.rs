//! Signature Version 4 of `POST /`, with a signing key that is kept.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderName, HeaderValue, Request, Uri, header};
use sha2::{Digest, Sha256};

use crate::Credentials;

static X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
static X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Signs requests to one service in one region, with Signature Version 4.
///
/// The services whose protocol is JSON (`X-Amz-Target`) take every call as `POST /`: there is no path and no query to make
/// canonical. The signing key is the same for a whole day, and is kept.
pub struct Signer {
    service: String,
    region: String,
    credentials: Credentials,
    /// The day (`YYYYMMDD`) of the signing key, and the key.
    kept_key: Mutex<Option<(String, Hmac<Sha256>)>>,
}

impl Signer {
    /// Signs for `service` (`sqs`, `dynamodb`) in `region`.
    pub fn new(service: impl Into<String>, region: impl Into<String>, credentials: Credentials) -> Signer {
        let (service, region) = (service.into(), region.into());
        Signer { service, region, credentials, kept_key: Mutex::new(None) }
    }

    /// Adds the headers of the signature, `Host` included. AWS accepts a signature for some minutes around its `time`.
    ///
    /// The request has to be a `POST` to the path `/` without a query, with one value for each header: AWS refuses the signature of
    /// any other.
    pub fn sign<B: AsRef<[u8]>>(&self, request: &mut Request<B>, time: SystemTime) {
        let time = timestamp(time);
        let host = host(request.uri());
        let headers = request.headers_mut();
        headers.insert(header::HOST, value(&host));
        headers.insert(&X_AMZ_DATE, value(&time));
        if let Some(token) = &self.credentials.session_token {
            headers.insert(&X_AMZ_SECURITY_TOKEN, secret(token.reveal()));
        }
        let headers = request.headers().iter();
        let headers =
            headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
        let authorization = self.authorization(headers, request.body().as_ref(), &time);
        request.headers_mut().insert(header::AUTHORIZATION, secret(&authorization));
    }

    /// The header `Authorization`, for a request that is not an [`http::Request`].
    ///
    /// `headers` are those that the request will have, with lower-case names: `host`, `x-amz-date` with `time`
    /// (a [`timestamp`]), and `x-amz-security-token` where the credentials are temporary.
    pub fn authorization(&self, mut headers: Vec<(&str, &str)>, body: &[u8], time: &str) -> String {
        headers.retain(|(name, _)| is_signed(name));
        headers.sort_unstable();
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let mut canonical = String::from("POST\n/\n\n");
        for (name, value) in headers {
            canonical.extend([name, ":"]);
            // Spaces at the ends do not count, and several count as one.
            let mut words = value.split(' ').filter(|word| !word.is_empty());
            canonical.extend(words.next());
            words.for_each(|word| canonical.extend([" ", word]));
            canonical.push('\n');
        }
        canonical.extend(["\n", &names, "\n", &hex(&Sha256::digest(body))]);

        let day = time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let canonical = hex(&Sha256::digest(canonical));
        let mut mac = self.key(day);
        mac.update(format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}").as_bytes());
        let signature = hex(&mac.finalize().into_bytes());
        let key_id = self.credentials.access_key_id.reveal();
        format!("AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signature}")
    }

    /// The signing key of this day.
    fn key(&self, day: &str) -> Hmac<Sha256> {
        let mut kept = self.kept_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = kept.as_ref().filter(|(of, _)| of == day) {
            return key.clone();
        }
        let mut key = mac(format!("AWS4{}", self.credentials.secret_access_key.reveal()).as_bytes());
        for part in [day, &*self.region, &*self.service, "aws4_request"] {
            key.update(part.as_bytes());
            key = mac(&key.finalize().into_bytes());
        }
        *kept = Some((day.to_owned(), key.clone()));
        key
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("service", &self.service)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// A time as signatures have it: `YYYYMMDDTHHMMSSZ`.
pub fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that a leap day is the last day of its year. Days count from March 1 of the year 0, in eras of
    // 400 years, which all have the same length.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month < 3);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Proxies may change the headers that are not signed.
fn is_signed(header: &str) -> bool {
    !matches!(header, "authorization" | "user-agent" | "x-amzn-trace-id" | "transfer-encoding")
}

/// Host and port as the header `Host` has them: without the port of the scheme, and without a user name.
fn host(uri: &Uri) -> String {
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    match uri.port_u16().filter(|port| *port != default_port) {
        Some(port) => format!("{}:{port}", uri.host().unwrap_or_default()),
        None => uri.host().unwrap_or_default().to_owned(),
    }
}

/// Text as a header. What no header can carry becomes an empty one, which AWS refuses.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The same, hidden from `Debug`.
fn secret(text: &str) -> HeaderValue {
    let mut value = value(text);
    value.set_sensitive(true);
    value
}

#[allow(clippy::expect_used, reason = "no key is refused")]
fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("an HMAC key may have any length")
}

fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(b"0123456789abcdef"[usize::from(n)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
