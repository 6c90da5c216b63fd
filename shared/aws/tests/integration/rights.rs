//! Keys and rights, on ministack, which checks the signature of every key that it has issued.

use onetap_aws::Credentials;
use onetap_aws::sqs::{CallError, QueueUrl, Receive, SendOutcome};
use serde_json::json;

use crate::emulator::{Emulator, drain};
use crate::support::{client_with, later, message};

/// A key of a new user, who may do `actions`: its id and its secret.
async fn key(cloud: &Emulator, user: &str, actions: &[&str]) -> (String, String) {
    cloud.iam(&format!("Action=CreateUser&UserName={user}")).await;
    let statement = json!({ "Effect": "Allow", "Action": actions, "Resource": "*" });
    let policy = json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string();
    // The characters of this JSON that a form would read otherwise.
    let policy = policy.replace('*', "%2A").replace(':', "%3A");
    let form = format!("Action=PutUserPolicy&UserName={user}&PolicyName=p&PolicyDocument={policy}");
    cloud.iam(&form).await;
    let answer = cloud.iam(&format!("Action=CreateAccessKey&UserName={user}")).await;
    let field = |name: &str| {
        let (_, rest) = answer.split_once(&format!("<{name}>")).expect(name);
        rest.split('<').next().unwrap().to_owned()
    };
    (field("AccessKeyId"), field("SecretAccessKey"))
}

async fn sent(cloud: &Emulator, queue: &QueueUrl, credentials: Credentials) -> [SendOutcome; 2] {
    let client = client_with(&cloud.url, credentials);
    let [together] = client.send_batch(queue, &[message("g", "b")], later()).await.try_into().unwrap();
    [client.send(queue, &message("g", "a"), later()).await, together]
}

#[tokio::test]
#[ignore = "needs ministack"]
async fn a_right_signature_is_accepted_and_a_wrong_key_sends_nothing() {
    let cloud = Emulator::ministack().await;
    let queue = cloud.create_fifo().await;
    // In AWS the first right covers both.
    let (id, secret) = key(&cloud, "sender", &["sqs:SendMessage", "sqs:SendMessageBatch"]).await;
    let (reader_id, reader_secret) = key(&cloud, "reader", &["sqs:ReceiveMessage"]).await;
    for (credentials, code) in [
        (Credentials::new(&*id, "wrong"), "SignatureDoesNotMatch"),
        (Credentials::new("AKIAIOSFODNN7EXAMPLE", &*secret), "InvalidClientTokenId"),
        (Credentials::new(&*id, &*secret).session_token("of another key"), "InvalidClientTokenId"),
        (Credentials::new(&*reader_id, &*reader_secret), "AccessDeniedException"),
    ] {
        let expected = SendOutcome::NotTaken(CallError::Unauthorized(code.to_owned()));
        assert_eq!(sent(&cloud, &queue, credentials).await, [expected.clone(), expected]);
    }
    assert!(drain(&cloud.client(), &queue).await.is_empty(), "nothing of that was taken");

    let credentials = Credentials::new(&*id, &*secret);
    for outcome in sent(&cloud, &queue, credentials.clone()).await {
        assert!(outcome.is_taken(), "{outcome:?}");
    }
    let sender = client_with(&cloud.url, credentials);
    let denied = sender.receive(&queue, Receive::up_to(1), later()).await;
    assert!(matches!(denied, Err(CallError::Unauthorized(_))), "{denied:?}");
    assert_eq!(drain(&cloud.client(), &queue).await.len(), 2);
}
