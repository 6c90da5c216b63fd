//! `x-line-signature`: base64 of the HMAC-SHA256 of the raw body under the channel secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use onetap_config::Secret;
use sha2::Sha256;

/// Whether LINE sent a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// One of the secrets signed it.
    Genuine,
    /// There is no signature.
    Missing,
    /// The signature is not that of this body under any of the secrets.
    Wrong,
}

/// Checks the header `x-line-signature` of a request against its body: the raw bytes, before any parsing.
///
/// The comparison takes constant time. A header that is not base64, or not as long as a signature, is wrong.
pub fn verify(secrets: &[Secret], body: &[u8], header: Option<&str>) -> Verdict {
    let Some(header) = header else {
        return Verdict::Missing;
    };
    let Ok(signature) = STANDARD.decode(header) else {
        return Verdict::Wrong;
    };
    let signed = |secret: &Secret| mac(secret, body).is_some_and(|mac| mac.verify_slice(&signature).is_ok());
    if secrets.iter().any(signed) { Verdict::Genuine } else { Verdict::Wrong }
}

/// The header that LINE would send, for tests and the local runner.
pub fn sign(secret: &Secret, body: &[u8]) -> String {
    mac(secret, body).map(|mac| STANDARD.encode(mac.finalize().into_bytes())).unwrap_or_default()
}

/// Always `Some`: an HMAC key may have any length.
fn mac(secret: &Secret, body: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::new_from_slice(secret.reveal().as_bytes()).ok()?;
    mac.update(body);
    Some(mac)
}
