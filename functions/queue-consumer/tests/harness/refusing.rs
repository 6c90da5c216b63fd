//! An SQS that answers a batch with failed entries, and refuses one that is too large.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

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
    _server: JoinSet<()>,
}

struct State {
    moto: Arc<Moto>,
    refuse: Refuse,
    refused: Mutex<HashSet<String>>,
}

impl Refusing {
    pub async fn start(moto: Arc<Moto>, refuse: Refuse) -> Refusing {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State { moto, refuse, refused: Mutex::default() });
        let mut server = JoinSet::new();
        let served = state.clone();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = served.clone();
                let service = service_fn(move |request| answer(state.clone(), request));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Refusing { url, state, _server: server }
    }

    /// The bodies that were refused.
    pub fn refused(&self) -> HashSet<String> {
        self.state.refused.lock().unwrap().clone()
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.headers()["x-amz-target"], "AmazonSQS.SendMessageBatch");
    let mut input: Value = serde_json::from_slice(&request.collect().await.unwrap().to_bytes()).unwrap();
    let entries = input["Entries"].as_array().unwrap().clone();
    let response = Response::builder().header("content-type", "application/x-amz-json-1.0");
    // moto counts characters, SQS bytes.
    let bytes: usize = entries.iter().map(|entry| entry["MessageBody"].as_str().unwrap().len()).sum();
    if entries.len() > 10 || bytes > MAX_BATCH_BYTES {
        let error = json!({"__type": "com.amazonaws.sqs#BatchRequestTooLong", "message": "too long"});
        return Ok(response.status(400).body(Full::new(error.to_string().into())).unwrap());
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
    Ok(response.body(Full::new(output.to_string().into())).unwrap())
}

impl State {
    fn refuses(&self, n: usize, entry: &Value) -> bool {
        let body = entry["MessageBody"].as_str().unwrap().to_owned();
        let first_time = (self.refuse != Refuse::SomeOnce || n.is_multiple_of(3))
            && self.refused.lock().unwrap().insert(body);
        first_time || self.refuse != Refuse::SomeOnce
    }
}
