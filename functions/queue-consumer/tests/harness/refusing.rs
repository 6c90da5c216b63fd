//! An SQS that answers a batch with failed entries, and refuses one that is too large.

use std::any::Any;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use onetap_servers::HttpStub;
use serde_json::{Value, json};

use super::moto::Moto;

/// Limit of SQS for the messages of one call together.
const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// Which entries fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refuse {
    /// Every third of a batch, once.
    SomeOnce,
    /// All, each time.
    All,
    /// All, because of what they are.
    AsWrong,
}

/// Passes calls of SendMessageBatch on to moto, without the entries that it refuses.
pub struct Refusing {
    pub url: String,
    state: Arc<State>,
    _server: Box<dyn Any + Send>,
}

struct State {
    moto: Arc<Moto>,
    refuse: Refuse,
    refused: Mutex<HashSet<String>>,
}

impl Refusing {
    pub fn start(moto: Arc<Moto>, refuse: Refuse) -> Refusing {
        let state = Arc::new(State { moto, refuse, refused: Mutex::default() });
        let served = state.clone();
        let server = HttpStub::serving(move |request| answer(served.clone(), request));
        Refusing { url: server.url(), state, _server: Box::new(server) }
    }

    /// The bodies that were refused.
    pub fn refused(&self) -> HashSet<String> {
        self.state.refused.lock().unwrap().clone()
    }
}

async fn answer(state: Arc<State>, request: Request<Bytes>) -> Response<Full<Bytes>> {
    assert_eq!(request.headers()["x-amz-target"], "AmazonSQS.SendMessageBatch");
    let mut input: Value = serde_json::from_slice(request.body()).unwrap();
    let entries = input["Entries"].as_array().unwrap().clone();
    let response = Response::builder().header("content-type", "application/x-amz-json-1.0");
    // moto counts characters, SQS bytes.
    let bytes: usize = entries.iter().map(|entry| entry["MessageBody"].as_str().unwrap().len()).sum();
    if entries.len() > 10 || bytes > MAX_BATCH_BYTES {
        let error = json!({"__type": "com.amazonaws.sqs#BatchRequestTooLong", "message": "too long"});
        return response.status(400).body(Full::new(error.to_string().into())).unwrap();
    }
    let (failed, accepted): (Vec<_>, Vec<_>) =
        entries.into_iter().enumerate().partition(|(n, entry)| state.refuses(*n, entry));
    let failure = |(_, entry): (usize, Value)| {
        let wrong = state.refuse == Refuse::AsWrong;
        let code = if wrong { "InvalidMessageContents" } else { "InternalError" };
        json!({"Id": entry["Id"], "SenderFault": wrong, "Code": code, "Message": "made up"})
    };
    let failed: Vec<Value> = failed.into_iter().map(failure).collect();
    let accepted: Vec<Value> = accepted.into_iter().map(|(_, entry)| entry).collect();
    let mut output = json!({"Successful": []});
    if !accepted.is_empty() {
        input["Entries"] = accepted.into();
        output = state.moto.call("SendMessageBatch", input).await;
    }
    output["Failed"] = failed.into();
    response.body(Full::new(output.to_string().into())).unwrap()
}

impl State {
    fn refuses(&self, n: usize, entry: &Value) -> bool {
        let body = entry["MessageBody"].as_str().unwrap().to_owned();
        let first_time = (self.refuse != Refuse::SomeOnce || n.is_multiple_of(3))
            && self.refused.lock().unwrap().insert(body);
        first_time || self.refuse != Refuse::SomeOnce
    }
}
