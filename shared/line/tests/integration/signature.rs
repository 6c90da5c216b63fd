//! Who sent a body.

use onetap_config::Secret;
use onetap_line::Verdict;
use onetap_line::signature::{sign, verify};
use proptest::prelude::*;

const BODY: &[u8] = br#"{"destination":"U0","events":[]}"#;
/// Made with another implementation.
const SIGNATURE: &str = "7bzucrfMAvMR2kIyf3o9W4tLB+uY7HzuzEraQd4pkbE=";

fn secret() -> Secret {
    Secret::new("8c570fa6dd201bb328f1c1eac23a96d8")
}

#[test]
fn a_signature_made_elsewhere_is_genuine_and_ours_are_the_same() {
    assert_eq!(verify(&[secret()], BODY, Some(SIGNATURE)), Verdict::Genuine);
    assert_eq!(sign(&secret(), BODY), SIGNATURE);
    let (chinese, words) = (Secret::new("密鑰"), "天氣🌧️".as_bytes());
    assert_eq!(sign(&chinese, words), "JbupxLXTIAO7EQokwg98ePP+hY/OX0TnzztVwrlRv8s=");
}

#[test]
fn while_a_secret_is_rotated_either_signs() {
    let secrets = [Secret::new("old"), secret()];
    for signer in &secrets {
        assert_eq!(verify(&secrets, BODY, Some(&sign(signer, BODY))), Verdict::Genuine);
    }
    assert_eq!(verify(&secrets, BODY, Some(&sign(&Secret::new("third"), BODY))), Verdict::Wrong);
    assert_eq!(verify(&[], BODY, Some(SIGNATURE)), Verdict::Wrong);
}

#[test]
fn every_other_header_is_wrong_and_none_is_missing() {
    assert_eq!(verify(&[secret()], BODY, None), Verdict::Missing);
    let hex: String = "0f".repeat(32);
    let spaced = format!(" {SIGNATURE}");
    let twice = format!("{SIGNATURE}{SIGNATURE}");
    let lower = SIGNATURE.to_lowercase();
    let unpadded = SIGNATURE.trim_end_matches('=');
    for header in ["", "=", "AAAA", "簽章", &hex, &spaced, &twice, &lower, unpadded, &SIGNATURE[..20]] {
        assert_eq!(verify(&[secret()], BODY, Some(header)), Verdict::Wrong, "{header}");
    }
    assert_eq!(verify(&[secret()], &BODY[1..], Some(SIGNATURE)), Verdict::Wrong);
    assert_eq!(verify(&[secret()], &[BODY, b"\n"].concat(), Some(SIGNATURE)), Verdict::Wrong);
}

proptest! {
    #[test]
    fn only_the_body_that_was_signed_verifies(
        key in ".{1,80}",
        body in prop::collection::vec(any::<u8>(), 0..300),
        at: prop::sample::Index,
        flip in 1u8..,
    ) {
        let secret = Secret::new(key);
        let header = sign(&secret, &body);
        prop_assert_eq!(verify(std::slice::from_ref(&secret), &body, Some(&header)), Verdict::Genuine);
        let mut other = body.clone();
        if other.is_empty() { other.push(flip) } else { let at = at.index(other.len()); other[at] ^= flip }
        prop_assert_eq!(verify(&[secret], &other, Some(&header)), Verdict::Wrong);
    }

    #[test]
    fn no_header_panics(header: String, body in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(verify(&[secret()], &body, Some(&header)), Verdict::Wrong);
    }
}
