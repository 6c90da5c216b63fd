//! The token that grants access to a job: `{expiry}.{hex HMAC-SHA256 of "domain:job_id:expiry"}`.
//!
//! A domain has no colon and an expiry is digits, so that the signed text has one reading only.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use onetap_bus::Job;
use onetap_config::Secret;
use sha2::Sha256;

/// A token that grants access to `job` until `expiry`, in Unix seconds.
pub fn token(secret: &Secret, job: &Job, expiry: u64) -> String {
    let mut token = format!("{expiry}.");
    if let Some(mac) = signed(secret, job, expiry) {
        for byte in mac.finalize().into_bytes() {
            let _ = write!(token, "{byte:02x}");
        }
    }
    token
}

/// The rest of the lifetime of `token`; `None` if it does not grant access to `job`. Any of the secrets may have signed
/// it. The comparison takes constant time.
pub(crate) fn remaining_ttl(secrets: &[Secret], job: &Job, token: &str) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (expiry, signature) = token.split_once('.')?;
    // Compared below with the text that is signed: `+1` and `01` are other texts.
    let seconds: u64 = expiry.parse().ok()?;
    let left = Duration::from_secs(seconds).checked_sub(now).filter(|left| !left.is_zero())?;
    let signature = unhex(signature)?;
    let signed_it =
        |secret| signed(secret, job, seconds).is_some_and(|mac| mac.verify_slice(&signature).is_ok());
    (seconds.to_string() == expiry && secrets.iter().any(signed_it)).then_some(left)
}

fn signed(secret: &Secret, job: &Job, expiry: u64) -> Option<Hmac<Sha256>> {
    // HMAC takes keys of any length. If it did not, no token would be valid.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).ok()?;
    mac.update(format!("{}:{}:{expiry}", job.domain(), job.id()).as_bytes());
    Some(mac)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok());
    if rest.is_empty() { bytes.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: u64 = 32_503_680_000;

    fn job(domain: &str, id: &str) -> Job {
        Job::new(domain, id).unwrap()
    }

    fn opens(secret: &Secret, job: &Job, token: &str) -> bool {
        remaining_ttl(std::slice::from_ref(secret), job, token).is_some()
    }

    #[test]
    fn a_token_is_what_other_programs_make_of_it() {
        // printf 'scan:job-1:32503680000' | openssl dgst -sha256 -hmac secret
        let known = "32503680000.1a0e83be3b9fdb2868ba7f35b5d92d5213985dd93a5489561d72ab05bce6c20c";
        assert_eq!(token(&Secret::new("secret"), &job("scan", "job-1"), FAR), known);
    }

    #[test]
    fn a_token_opens_its_own_job_until_it_expires() {
        let secret = Secret::new("secret");
        let good = token(&secret, &job("scan", "a:b"), FAR);
        assert!(opens(&secret, &job("scan", "a:b"), &good));
        assert!(opens(&secret, &job("scan", "a:b"), &good.to_uppercase()), "hex is hex");
        assert!(!opens(&secret, &job("scan", "a"), &good));
        assert!(!opens(&secret, &job("other", "a:b"), &good));
        assert!(!opens(&Secret::new("another"), &job("scan", "a:b"), &good));
        assert!(!opens(&secret, &job("scan", "a:b"), &token(&secret, &job("scan", "a:b"), 1_700_000_000)));
    }

    #[test]
    fn a_token_of_any_of_the_secrets_opens_its_job() {
        let [old, new, other] = ["old", "new", "other"].map(Secret::new);
        let job = job("scan", "job-1");
        let open =
            |secret| remaining_ttl(&[new.clone(), old.clone()], &job, &token(secret, &job, FAR)).is_some();
        assert_eq!([&old, &new, &other].map(open), [true, true, false]);
        assert!(remaining_ttl(&[], &job, &token(&old, &job, FAR)).is_none());
    }

    #[test]
    fn what_is_no_token_opens_nothing() {
        let (secret, job) = (Secret::new("secret"), job("scan", "job-1"));
        let good = token(&secret, &job, FAR);
        let (_, signature) = good.split_once('.').unwrap();
        let [later, plus, zero] =
            ["32503680001", "+32503680000", "032503680000"].map(|e| format!("{e}.{signature}"));
        let [short, long, odd] =
            [&good[..good.len() - 2], &format!("{good}00"), &good[..good.len() - 1]].map(str::to_owned);
        for wrong in [
            later,
            plus,
            zero,
            short,
            long,
            odd,
            format!("{FAR}."),
            FAR.to_string(),
            String::new(),
            ".".into(),
            good.replace('.', ".é"),
        ] {
            assert!(!opens(&secret, &job, &wrong), "{wrong}");
        }
    }
}
