//! TLS as every client here has it, whatever it speaks inside: rustls with ring, and roots that are compiled in.

use rustls::pki_types::TrustAnchor;
use rustls::{ClientConfig, RootCertStore};

/// Mozilla's roots, compiled in: reading the system's costs several starts of a function.
pub fn bundled_roots() -> Vec<TrustAnchor<'static>> {
    webpki_roots::TLS_SERVER_ROOTS.to_vec()
}

/// A client that trusts `roots`. It brings its own provider, and neither reads nor sets the one of the process.
#[allow(clippy::expect_used, reason = "only a provider without any version of TLS fails, and ring has two")]
pub fn client_config(roots: Vec<TrustAnchor<'static>>) -> ClientConfig {
    ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("ring has TLS 1.2 and 1.3")
        .with_root_certificates(RootCertStore { roots })
        .with_no_client_auth()
}
