//! Each signature is compared with that of the official crate.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use http::Request;
use onetap_aws::{Credentials, Signer, timestamp};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// The last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// An access key: id, secret, and the token of a temporary one.
#[derive(Clone, Debug)]
struct Key {
    id: String,
    secret: String,
    token: Option<String>,
}

impl Key {
    fn ours(&self) -> Credentials {
        let credentials = Credentials::new(&*self.id, &*self.secret);
        match &self.token {
            Some(token) => credentials.session_token(&**token),
            None => credentials,
        }
    }

    fn official(&self) -> aws_credential_types::Credentials {
        let Key { id, secret, token } = self.clone();
        aws_credential_types::Credentials::new(id, secret, token, None, "test")
    }
}

/// A request, when it is signed, and by whom.
#[derive(Clone, Debug)]
struct Case {
    service: String,
    region: String,
    key: Key,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    time: SystemTime,
}

impl Case {
    fn request(&self) -> Request<Vec<u8>> {
        let request = Request::post(&self.url);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        request.body(self.body.clone()).unwrap()
    }

    fn signed(&self, signer: &Signer) -> Request<Vec<u8>> {
        let mut request = self.request();
        signer.sign(&mut request, self.time);
        request
    }

    fn signer(&self) -> Signer {
        Signer::new(&*self.service, &*self.region, self.key.ours())
    }

    /// The headers that the official crate adds.
    fn official(&self) -> Vec<(String, String)> {
        let headers = self.headers.iter().map(|(name, value)| (&**name, &**value));
        let body = SignableBody::Bytes(&self.body);
        let request = SignableRequest::new("POST", &*self.url, headers, body).unwrap();
        let identity = self.key.official().into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(self.time)
            .settings(SigningSettings::default());
        let (instructions, _) = sign(request, &params.build().unwrap().into()).unwrap().into_parts();
        instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

fn time() -> impl Strategy<Value = SystemTime> {
    (0..=LAST_SECOND, 0..1_000_000_000u32)
        .prop_map(|(seconds, nanos)| UNIX_EPOCH + Duration::new(seconds, nanos))
}

fn case() -> impl Strategy<Value = Case> {
    let key = ("[A-Z0-9]{1,20}", "[!-~]{0,80}", proptest::option::of("[!-~]{1,400}"));
    let key = key.prop_map(|(id, secret, token)| Key { id, secret, token });
    let url = prop_oneof![
        "https://[a-z][a-z0-9.-]{0,20}[a-z]/?",
        "http://[a-z]{1,9}(:80|:443|:4566)?/?",
        "https://[a-z]{1,9}(:80|:443|:4566)?/?",
        Just("http://[::1]:4566/".to_owned()),
    ];
    // Among them some that are not signed, and those of a call.
    let name = prop_oneof![
        "(x-amz-|x-)?[a-z]{2,12}",
        Just("content-type".to_owned()),
        Just("user-agent".to_owned()),
        Just("x-amz-target".to_owned()),
        Just("x-amzn-trace-id".to_owned()),
    ];
    // The signer's own.
    let name = name.prop_filter("its own", |name| !["host", "x-amz-date"].contains(&&**name));
    let headers = btree_map(name, "[ -~]{0,30}", 0..8).prop_map(|headers| headers.into_iter().collect());
    let service = prop_oneof![Just("sqs".to_owned()), Just("dynamodb".to_owned()), "[a-z]{1,10}"];
    (service, "[a-z]{2}-[a-z]{4,9}-[0-9]", key, url, headers, vec(any::<u8>(), 0..300), time()).prop_map(
        |(service, region, key, url, headers, body, time)| Case {
            service,
            region,
            key,
            url,
            headers,
            body,
            time,
        },
    )
}

proptest! {
    #[test]
    fn a_request_is_signed_as_the_official_crate_does(case in case()) {
        let signed = case.signed(&case.signer());
        for (name, value) in case.official() {
            let ours = signed.headers().get(&name).and_then(|value| value.to_str().ok());
            prop_assert_eq!(ours, Some(&*value), "{}", name);
        }
        let is_temporary = signed.headers().contains_key("x-amz-security-token");
        prop_assert_eq!(is_temporary, case.key.token.is_some());
        prop_assert_eq!(signed.body(), &case.body);
    }

    #[test]
    fn the_kept_signing_key_is_only_used_on_its_day(case in case(), seconds in vec(0..200_000u64, 1..8)) {
        let signer = case.signer();
        for seconds in seconds {
            let case = Case { time: case.time + Duration::from_secs(seconds), ..case.clone() };
            let [kept, fresh] = [&signer, &case.signer()].map(|signer| case.signed(signer));
            prop_assert_eq!(kept.headers(), fresh.headers());
        }
    }
}

#[test]
fn a_time_is_written_as_signatures_have_it() {
    for (seconds, text) in [
        (0, "19700101T000000Z"),
        (68_169_599, "19720228T235959Z"),
        (68_169_600, "19720229T000000Z"),
        (68_256_000, "19720301T000000Z"),
        (951_782_400, "20000229T000000Z"),
        (4_107_542_399, "21000228T235959Z"),
        (4_107_542_400, "21000301T000000Z"),
        (LAST_SECOND, "99991231T235959Z"),
    ] {
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), text);
    }
    assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), "19700101T000000Z", "a clock that is wrong");
}

#[test]
fn no_signer_and_no_signed_request_shows_a_credential() {
    let key = Key {
        id: "PLANTEDID".to_owned(),
        secret: "PLANTED-secret".to_owned(),
        token: Some("PLANTED-token".to_owned()),
    };
    let signer = Signer::new("sqs", "us-east-1", key.ours());
    let mut request = Request::post("https://sqs.us-east-1.amazonaws.com").body("").unwrap();
    signer.sign(&mut request, SystemTime::now());
    assert_eq!(request.headers()["x-amz-security-token"], "PLANTED-token");
    let shown = format!("{signer:?} {request:?} {:?}", key.ours());
    assert!(shown.contains("us-east-1") && !shown.contains("PLANTED"), "{shown}");
}
