//! What the store's own client of the AWS SDK sends to DynamoDB.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials as AwsCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use onetap_servers::{Fault, HttpStub};
use onetap_store::testing::conformance::Names;
use onetap_store::{Credentials, DynamoDb, Store};

use crate::support;

const REGION: &str = "eu-central-1";
const PATIENT: Duration = Duration::from_millis(support::PATIENT);

/// A request as it came, with its whole address.
struct Received {
    uri: String,
    head: http::request::Parts,
    body: Vec<u8>,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The header `Authorization` that the SDK would give to this request, at the time that it names.
    fn signed_by_the_sdk(&self, credentials: &AwsCredentials) -> String {
        let added = ["authorization", "host", "user-agent", "x-amz-date", "x-amz-security-token"];
        let names = self.head.headers.keys().map(|name| name.as_str());
        let headers =
            names.filter(|name| !added.contains(name)).map(|name| (name, self.header(name).unwrap()));
        let body = SignableBody::Bytes(&self.body);
        let request = SignableRequest::new("POST", &*self.uri, headers, body).unwrap();
        let identity = credentials.clone().into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(REGION)
            .name("dynamodb")
            .time(time(self.header("x-amz-date").unwrap()))
            .settings(SigningSettings::default());
        let (instructions, _) = sign(request, &params.build().unwrap().into()).unwrap().into_parts();
        let (_, authorization) = instructions.headers().find(|(name, _)| *name == "authorization").unwrap();
        authorization.to_owned()
    }
}

/// The time that `YYYYMMDDTHHMMSSZ` means.
fn time(text: &str) -> SystemTime {
    let part = |range| text.get(range).unwrap();
    let [year, month, day] = [part(0..4), part(4..6), part(6..8)];
    let [hour, minute, second] = [part(9..11), part(11..13), part(13..15)];
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    DateTime::from_str(&text, Format::DateTime).unwrap().try_into().unwrap()
}

/// What arrives if the store reads two keys, one after the other, with these credentials.
async fn two_reads(path: &str, token: Option<&str>) -> ([Received; 2], AwsCredentials) {
    let server = HttpStub::always(Fault::ok("{}"));
    let url = format!("{}{path}", server.url());
    let credentials = Credentials::new("AKIDEXAMPLE", "secret/key+");
    let credentials =
        token.into_iter().fold(credentials, |credentials, token| credentials.session_token(token));
    let store = DynamoDb::new("onetap", REGION, credentials).endpoint(url).timeout(PATIENT);
    let names = Names::new();
    let store: Arc<dyn Store> = Arc::new(store);
    for key in ["鍵", "k"] {
        assert_eq!(store.get(&names.key(key)).await.unwrap(), None);
    }
    let received = server.received().into_iter().map(|request| {
        let (head, body) = request.into_parts();
        Received { uri: format!("{}{}", server.url(), head.uri), head, body: body.to_vec() }
    });
    let both = received.collect::<Vec<_>>().try_into().ok().expect("two requests");
    let token = token.map(str::to_owned);
    (both, AwsCredentials::new("AKIDEXAMPLE", "secret/key+", token, None, "test"))
}

#[tokio::test]
async fn the_store_signs_a_request_as_the_sdk_does() {
    for token in [None, Some("session/token+of==a-function")] {
        // The second address has a path, as a proxy's may.
        for path in ["", "/a/path"] {
            let (requests, credentials) = two_reads(path, token).await;
            for request in requests {
                assert_eq!(request.header("x-amz-security-token"), token);
                let expected = request.signed_by_the_sdk(&credentials);
                assert_eq!(request.header("authorization"), Some(&*expected), "{}", request.uri);
            }
        }
    }
}

#[tokio::test]
async fn a_request_names_the_store_and_reports_nothing_else() {
    let ([request, _], _) = two_reads("", None).await;
    let mut names: Vec<&str> = request.head.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "authorization",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-amz-date",
        "x-amz-target",
    ];
    assert_eq!(names, expected);
    assert_eq!(request.header("user-agent"), Some(concat!("onetap-store/", env!("CARGO_PKG_VERSION"))));
}
