//! The signature of a request, Signature Version 4, with a signing key that is kept.
//!
//! The SDK derives the signing key for every request, although it is the same for a whole day, and builds the canonical
//! request from copies. Together that is two fifths of a call. A request of DynamoDB is always `POST /`, which
//! [`onetap_aws::Signer`] signs. Tests compare each signature with the SDK's own.

use std::fmt;

use aws_credential_types::Credentials;
use aws_runtime::auth::sigv4::{SCHEME_ID, SigV4Signer};
use aws_sdk_dynamodb::config::http::HttpRequest;
use aws_sdk_dynamodb::config::{ConfigBag, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::auth::{AuthScheme, AuthSchemeEndpointConfig, AuthSchemeId, Sign};
use aws_smithy_runtime_api::client::identity::{Identity, SharedIdentityResolver};
use aws_smithy_runtime_api::client::runtime_components::GetIdentityResolver;
use onetap_aws::timestamp;

/// Signs with credentials that do not change, by this machine's clock.
pub(super) struct Signer {
    signer: onetap_aws::Signer,
    session_token: Option<String>,
}

impl Signer {
    pub(super) fn new(region: &str, credentials: Credentials) -> Signer {
        let session_token = credentials.session_token().map(str::to_owned);
        let credentials =
            onetap_aws::Credentials::new(credentials.access_key_id(), credentials.secret_access_key());
        Signer { signer: onetap_aws::Signer::new("dynamodb", region, credentials), session_token }
    }

    /// Adds the headers of the signature. `time` is `YYYYMMDDTHHMMSSZ`.
    fn sign(&self, request: &mut HttpRequest, host: String, time: String) -> Result<(), BoxError> {
        let headers = request.headers_mut();
        headers.try_insert("host", host)?;
        headers.try_insert("x-amz-date", time.clone())?;
        if let Some(token) = &self.session_token {
            headers.try_insert("x-amz-security-token", token.clone())?;
        }
        let headers = request.headers().iter().collect();
        let body = request.body().bytes().unwrap_or_default();
        let authorization = self.signer.authorization(headers, body, &time);
        request.headers_mut().try_insert("authorization", authorization)?;
        Ok(())
    }
}

/// The host of a URI, as the header `Host` has it. `None` if the URI has a path.
fn host(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once("://")?;
    let authority = rest.strip_suffix('/')?;
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let is_plain = !authority.contains(['/', '?', '#', '@']);
    is_plain.then(|| authority.strip_suffix(default_port).unwrap_or(authority))
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
        self.sign(request, host, timestamp(now))
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
