//! The signature of a request, Signature Version 4, with a signing key that is kept.
//!
//! The SDK derives the signing key for every request, although it is the same for a whole day, and builds the canonical
//! request from copies. Together that is two fifths of a call. A request of DynamoDB is always `POST /`, so that there is
//! little to make canonical. Tests compare each signature with the SDK's own.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use aws_credential_types::Credentials;
use aws_runtime::auth::sigv4::{SCHEME_ID, SigV4Signer};
use aws_sdk_dynamodb::config::http::HttpRequest;
use aws_sdk_dynamodb::config::{ConfigBag, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::auth::{AuthScheme, AuthSchemeEndpointConfig, AuthSchemeId, Sign};
use aws_smithy_runtime_api::client::identity::{Identity, SharedIdentityResolver};
use aws_smithy_runtime_api::client::runtime_components::GetIdentityResolver;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Signs with credentials that do not change, by this machine's clock.
pub(super) struct Signer {
    region: String,
    credentials: Credentials,
    /// The day (`YYYYMMDD`) of the signing key, and the key.
    kept_key: Mutex<Option<(String, Hmac<Sha256>)>>,
}

impl Signer {
    pub(super) fn new(region: &str, credentials: Credentials) -> Signer {
        Signer { region: region.to_owned(), credentials, kept_key: Mutex::new(None) }
    }

    /// Adds the headers of the signature. `time` is `YYYYMMDDTHHMMSSZ`.
    fn sign(&self, request: &mut HttpRequest, host: String, time: String) -> Result<(), BoxError> {
        let day = time.get(..8).unwrap_or_default().to_owned();
        let headers = request.headers_mut();
        headers.try_insert("host", host)?;
        headers.try_insert("x-amz-date", time.clone())?;
        if let Some(token) = self.credentials.session_token() {
            headers.try_insert("x-amz-security-token", token.to_owned())?;
        }

        let mut headers: Vec<_> = request.headers().iter().filter(|(name, _)| is_signed(name)).collect();
        headers.sort_unstable();
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let mut canonical = format!("{}\n/\n\n", request.method());
        for (name, value) in headers {
            canonical.extend([name, ":", value, "\n"]);
        }
        let body = hex(&Sha256::digest(request.body().bytes().unwrap_or_default()));
        canonical.extend(["\n", &names, "\n", &body]);

        let scope = format!("{day}/{}/dynamodb/aws4_request", self.region);
        let canonical = hex(&Sha256::digest(canonical));
        let mut mac = self.key(day)?;
        mac.update(format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical}").as_bytes());
        let signature = hex(&mac.finalize().into_bytes());
        let key_id = self.credentials.access_key_id();
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        request.headers_mut().try_insert("authorization", authorization)?;
        Ok(())
    }

    /// The signing key of this day.
    fn key(&self, day: String) -> Result<Hmac<Sha256>, BoxError> {
        let mut kept = self.kept_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = kept.as_ref().filter(|(of, _)| *of == day) {
            return Ok(key.clone());
        }
        let mut key = Hmac::<Sha256>::new_from_slice(
            format!("AWS4{}", self.credentials.secret_access_key()).as_bytes(),
        )?;
        for part in [&*day, &*self.region, "dynamodb", "aws4_request"] {
            key.update(part.as_bytes());
            key = Hmac::new_from_slice(&key.finalize().into_bytes())?;
        }
        *kept = Some((day, key.clone()));
        Ok(key)
    }
}

/// Proxies may change the others.
fn is_signed(header: &str) -> bool {
    !matches!(header, "authorization" | "user-agent" | "x-amzn-trace-id" | "transfer-encoding")
}

/// The host of a URI, as the header `Host` has it. `None` if the URI has a path.
fn host(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once("://")?;
    let authority = rest.strip_suffix('/')?;
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let is_plain = !authority.contains(['/', '?', '#', '@']);
    is_plain.then(|| authority.strip_suffix(default_port).unwrap_or(authority))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(b"0123456789abcdef"[usize::from(n)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

impl Sign for Signer {
    fn sign_http_request(
        &self,
        request: &mut HttpRequest,
        identity: &Identity,
        endpoint: AuthSchemeEndpointConfig<'_>,
        components: &RuntimeComponents,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        // An address with a path: the SDK knows how to make it canonical.
        let Some(host) = host(request.uri()).map(str::to_owned) else {
            return SigV4Signer::new().sign_http_request(request, identity, endpoint, components, config);
        };
        let now = components.time_source().unwrap_or_default().now();
        let seconds = i64::try_from(now.duration_since(UNIX_EPOCH)?.as_secs())?;
        let time = DateTime::from_secs(seconds).fmt(Format::DateTime)?.replace(['-', ':'], "");
        self.sign(request, host, time)
    }
}

impl AuthScheme for Signer {
    fn scheme_id(&self) -> AuthSchemeId {
        SCHEME_ID
    }

    fn identity_resolver(&self, resolvers: &dyn GetIdentityResolver) -> Option<SharedIdentityResolver> {
        resolvers.identity_resolver(self.scheme_id())
    }

    fn signer(&self) -> &dyn Sign {
        self
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use aws_smithy_types::body::SdkBody;

    use super::*;

    fn signer() -> Signer {
        Signer::new("us-east-1", Credentials::new("id", "secret", None, None, "test"))
    }

    fn signature(signer: &Signer, time: &str) -> String {
        let mut request = HttpRequest::new(SdkBody::from("{}"));
        signer.sign(&mut request, "localhost".to_owned(), time.to_owned()).unwrap();
        request.headers().get("authorization").unwrap().to_owned()
    }

    #[test]
    fn the_kept_signing_key_is_only_used_on_its_day() {
        let signer = signer();
        for time in ["20261118T235958Z", "20261118T235959Z", "20261119T000000Z", "20261118T235959Z"] {
            assert_eq!(signature(&signer, time), signature(&self::signer(), time), "at {time}");
        }
    }

    #[test]
    fn only_an_address_without_a_path_is_a_host() {
        assert_eq!(
            host("https://dynamodb.eu-west-1.amazonaws.com/"),
            Some("dynamodb.eu-west-1.amazonaws.com")
        );
        for uri in ["http://[::1]:80/", "http://[::1]/"] {
            assert_eq!(host(uri), Some("[::1]"));
        }
        assert_eq!(host("https://localhost:443/"), Some("localhost"));
        assert_eq!(host("https://localhost:80/"), Some("localhost:80"));
        for uri in
            ["http://localhost/path", "http://localhost/path/", "http://localhost/?query/", "localhost"]
        {
            assert_eq!(host(uri), None, "{uri}");
        }
    }
}
