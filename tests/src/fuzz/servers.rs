//! What others answer to us: any bytes for an answer are an answer or an error, in time, and no error quotes them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetap_config::Secret;
use onetap_store::{
    Batch, Channel, Commit, Config, Credentials, DynamoDb, Error, Expect, Keep, Key, Log, Redis, Store,
    Upstash, Write, open,
};
use onetap_weather::{Cwa, Moment, OpenMeteo, Provider, places};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::{files, now};

/// Time limit of a store call. A broken answer fails at once; a contended call is repeated until then.
const CALL_TIMEOUT: Duration = Duration::from_millis(150);
/// Stands in every seed and must be in no error: errors are logged, and answers hold personal data.
const WORDS: &str = "planted-answer-words";

/// A server that answers every request with the bytes of the moment, and the clients that it answers.
struct Server {
    answer: Arc<Mutex<Vec<u8>>>,
    stores: [Arc<dyn Store>; 3],
    weather: [Arc<dyn Provider>; 2],
}

thread_local! {
    static SERVER: Server = now(Server::start());
}

impl Server {
    async fn start() -> Server {
        let answer = Arc::new(Mutex::new(Vec::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(listener, Arc::clone(&answer)));
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let redis = format!("redis://{}", plain.local_addr().unwrap());
        tokio::spawn(serve_redis(plain, Arc::clone(&answer)));
        let dynamo = DynamoDb::new("onetap", "us-east-1", Credentials::new("key", "secret")).endpoint(&url);
        let http = onetap_http::Client::new();
        Server {
            answer,
            stores: [
                Arc::new(Upstash::new(&url, "token").unwrap().timeout(CALL_TIMEOUT)),
                Arc::new(dynamo.timeout(CALL_TIMEOUT)),
                Arc::new(Redis::new(redis).unwrap().timeout(CALL_TIMEOUT)),
            ],
            weather: [
                Arc::new(Cwa::new(http.clone(), &url, Secret::new("key"))),
                Arc::new(OpenMeteo::new(http, &url)),
            ],
        }
    }
}

async fn serve(listener: TcpListener, answer: Arc<Mutex<Vec<u8>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.lock().unwrap().clone();
        tokio::spawn(exchange(stream, answer));
    }
}

/// Reads a request to its end, writes the answer, closes.
async fn exchange(mut stream: TcpStream, answer: Vec<u8>) {
    let mut request = Vec::new();
    let mut part = [0; 4096];
    loop {
        let head = request.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
            let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            let length: usize = length.and_then(|digits| digits.parse().ok()).unwrap_or_default();
            if request.len() >= head + length {
                break;
            }
        }
        match stream.read(&mut part).await {
            Ok(read @ 1..) => request.extend_from_slice(&part[..read]),
            _ => return,
        }
    }
    // A client that has seen enough may have gone.
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

/// The same for the Redis protocol: every command that is read is answered with all of the bytes.
async fn serve_redis(listener: TcpListener, answer: Arc<Mutex<Vec<u8>>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let answer = answer.lock().unwrap().clone();
        tokio::spawn(async move {
            let mut part = [0; 4096];
            while let Ok(1..) = stream.read(&mut part).await {
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The first byte chooses a status, or that the rest is a whole answer, head and all.
fn answer_of(bytes: &[u8]) -> Vec<u8> {
    let (first, rest) = bytes.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
    let status = match first % 9 {
        0..=2 => 200,
        3 | 4 => 400,
        5 => 401,
        6 => 429,
        7 => 500,
        _ => return rest.to_vec(),
    };
    let length = rest.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), rest].concat()
}

/// Every call of a store, answered with these bytes.
async fn call_all(store: &Arc<dyn Store>) {
    let (key, log) = (Key::new("k").unwrap(), Log::new("l").unwrap());
    let channel = Channel::new("c").unwrap();
    let put = Batch::new().put(&key, Expect::Absent, "v", Duration::from_secs(60));
    let both = put
        .clone()
        .append(&log, "record", Keep::about(10))
        .append(&log, "another", Keep::about(10))
        .append_to_existing(&Log::new("n").unwrap(), "a third")
        .clear(&Log::new("m").unwrap())
        .put_if_newer(&Key::new("s").unwrap(), 7, r#"{"seq":7}"#, Duration::from_secs(60))
        .publish(&channel, "text");
    check(store.get(&key).await);
    check_commit(&put, store.commit(&put).await);
    check_commit(&both, store.commit(&both).await);
    let batches = [put, both];
    let answers = store.commit_each(&batches).await;
    assert_eq!(answers.len(), batches.len());
    batches.iter().zip(answers).for_each(|(batch, answer)| check_commit(batch, answer));
    check(store.read(&log, None, 10).await);
    check(store.watch(&channel).await.map(drop));
}

fn check<T>(answer: Result<T, Error>) {
    if let Err(error) = answer {
        let said = format!("{error} {error:?}");
        assert!(!said.contains(WORDS), "an error quotes the answer: {said}");
    }
}

/// What was applied has a position for each append, and a refusal names a key that the batch expects something of.
fn check_commit(batch: &Batch, answer: Result<Commit, Error>) {
    match &answer {
        Ok(Commit::Applied(positions)) => {
            let appends = batch.writes().iter().filter(|write| matches!(write, Write::Append { .. })).count();
            assert_eq!(positions.len(), appends);
        }
        Ok(Commit::Refused(refusal)) => {
            assert!(refusal.iter().next().is_some());
            let expects = |key: &Key, write: &Write| match write {
                Write::Append { log, keep: None, .. } => *key == Key::from(log),
                _ => write.expectation().is_some_and(|(expected, _)| expected == key),
            };
            assert!(refusal.iter().all(|(key, _)| batch.writes().iter().any(|write| expects(key, write))));
        }
        Err(_) => {}
    }
    check(answer);
}

/// Upstash's client takes any bytes for an answer.
pub fn rest_answer(bytes: &[u8]) {
    SERVER.with(|server| {
        *server.answer.lock().unwrap() = answer_of(bytes);
        now(call_all(&server.stores[0]));
    });
}

pub(super) fn rest_answers() -> Vec<Vec<u8>> {
    with_first([
        (0, r#"{"result":null}"#.to_owned()),
        (0, format!(r#"{{"result":"{WORDS}"}}"#)),
        (0, format!(r#"{{"result":[1,"1-1","{WORDS}"]}}"#)),
        (0, r#"{"result":[1]}"#.to_owned()),
        (0, r#"{"result":[3,"1-1"]}"#.to_owned()),
        (0, format!(r#"{{"result":[0,1,"{WORDS}"]}}"#)),
        (0, format!(r#"{{"result":[2,3,"{WORDS}"]}}"#)),
        (0, format!(r#"{{"result":[2,3,"{{\"a\":\"{WORDS}\",\"seq\":7}}"]}}"#)),
        (0, format!(r#"{{"result":[["1-1",["data","{WORDS}"]],["1-2",["data","x"]]]}}"#)),
        (0, r#"[{"result":[1]},{"result":[1,"5-0"]}]"#.to_owned()),
        (0, r#"[{"result":[1]},{"result":[2,3,"7"]}]"#.to_owned()),
        (0, r#"{"result":[1,"1-1"]}"#.to_owned()),
        (0, r#"{"result":[0,1,null,3,"x"]}"#.to_owned()),
        (0, r#"[{"result":[1,"5-0"]},{"error":"ERR max requests limit exceeded"}]"#.to_owned()),
        (3, format!(r#"{{"error":"ERR {WORDS}"}}"#)),
        (3, format!(r#"{{"error":"NOSCRIPT {WORDS}"}}"#)),
        (3, format!(r#"{{"error":"ERR Dynamic keys are not allowed {WORDS}"}}"#)),
        (3, format!(r#"{{"error":"ERR max daily request limit exceeded {WORDS}"}}"#)),
        (3, format!(r#"{{"error":"WRONGTYPE {WORDS}"}}"#)),
        (3, format!(r#"{{"error":"READONLY {WORDS}"}}"#)),
        (5, format!(r#"{{"error":"WRONGPASS {WORDS}"}}"#)),
        (7, format!("<html>{WORDS}</html>")),
        (0, format!("data: subscribe,c,1\n\ndata: message,c,{WORDS}\n\n")),
        (8, format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\n{WORDS}")),
        (8, format!("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{WORDS}")),
    ])
}

/// So does the client of the Redis protocol.
pub fn redis_answer(bytes: &[u8]) {
    SERVER.with(|server| {
        *server.answer.lock().unwrap() = bytes.to_vec();
        now(call_all(&server.stores[2]));
    });
}

pub(super) fn redis_answers() -> Vec<Vec<u8>> {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let words = bulk(WORDS);
    [
        "$-1\r\n".to_owned(),
        "+OK\r\n".to_owned(),
        ":1\r\n".to_owned(),
        words.clone(),
        "*1\r\n:1\r\n".to_owned(),
        format!("*2\r\n:1\r\n{}", bulk("1-1")),
        format!("*2\r\n:1\r\n{}*1\r\n:1\r\n", bulk("1-1")),
        format!("*3\r\n:0\r\n:1\r\n{words}"),
        format!("*1\r\n*2\r\n{}*2\r\n{}{words}", bulk("1-1"), bulk("data")),
        format!("-ERR {WORDS}\r\n"),
        format!("-READONLY {WORDS}\r\n"),
        format!("-NOSCRIPT {WORDS}\r\n"),
        format!("-NOREPLICAS {WORDS}\r\n"),
        "$9223372036854775807\r\nx".to_owned(),
        "*2147483647\r\n".to_owned(),
        "*1\r\n".repeat(64),
        "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned(),
    ]
    .map(String::into_bytes)
    .into()
}

/// Any text for a store's address is refused by its variable's name and without its words, or opens a store.
pub fn store_address(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for (store, variable) in [
        ("upstash", "UPSTASH_REDIS_REST_URL"),
        ("upstash", "KV_REST_API_URL"),
        ("redis", "REDIS_URL"),
        ("dynamodb", "AWS_ENDPOINT_URL_DYNAMODB"),
    ] {
        let lookup = |name: &str| match name {
            "STORE" => Some(store.to_owned()),
            "DYNAMODB_TABLE" => Some("onetap".to_owned()),
            "AWS_REGION" => Some("us-east-1".to_owned()),
            "UPSTASH_REDIS_REST_TOKEN" | "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => {
                Some("x".to_owned())
            }
            _ => (name == variable).then(|| text.clone().into_owned()),
        };
        let opened = Config::from_lookup(lookup).and_then(|config| open(&config).map(drop));
        if let Err(error) = opened {
            let said = format!("{error} {error:?}");
            assert!(!said.contains(WORDS), "an error quotes the address: {said}");
            // An empty variable is unset, and then the first of two names is asked for.
            let unset = text.trim().is_empty() && error.variable() == "UPSTASH_REDIS_REST_URL";
            assert!(unset || error.variable() == variable, "{variable} is wrong, and {said}");
        }
    }
}

pub(super) fn store_addresses() -> Vec<Vec<u8>> {
    [
        "https://eu1-planted-answer-words-12345.upstash.io".to_owned(),
        "http://127.0.0.1:8080/path".to_owned(),
        format!("redis://default:{WORDS}@localhost:6379/0"),
        format!("rediss://:{WORDS}@[::1]:6380"),
        "https://host:99999".to_owned(),
        "https://host:port".to_owned(),
        "https://[::1".to_owned(),
        "redis://host:99999".to_owned(),
        String::new(),
    ]
    .map(String::into_bytes)
    .into()
}

/// DynamoDB's client does too.
pub fn dynamodb_answer(bytes: &[u8]) {
    SERVER.with(|server| {
        *server.answer.lock().unwrap() = answer_of(bytes);
        now(call_all(&server.stores[1]));
    });
}

pub(super) fn dynamodb_answers() -> Vec<Vec<u8>> {
    let item = format!(
        r#"{{"pk":{{"S":"k"}},"sk":{{"S":"-"}},"v":{{"S":"{WORDS}"}},"x":{{"N":"32503680000000"}}}}"#
    );
    let record = format!(
        r#"{{"pk":{{"S":"l"}},"sk":{{"S":"00000000000000000001-00000000000000000001"}},"v":{{"S":"{WORDS}"}}}}"#
    );
    let kind = |name: &str, more: &str| {
        format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{name}","message":"{WORDS}"{more}}}"#)
    };
    with_first([
        (0, "{}".to_owned()),
        (0, format!(r#"{{"Item":{item}}}"#)),
        (0, format!(r#"{{"Items":[{record},{item}],"Count":2}}"#)),
        (0, format!(r#"{{"Responses":{{"onetap":[{item}]}},"UnprocessedKeys":{{}}}}"#)),
        (3, kind("ConditionalCheckFailedException", &format!(r#","Item":{item}"#))),
        (
            3,
            kind(
                "TransactionCanceledException",
                &format!(
                    r#","CancellationReasons":[{{"Code":"ConditionalCheckFailed","Item":{item}}},{{"Code":"None"}},{{"Code":"None"}},{{"Code":"None"}}]"#
                ),
            ),
        ),
        (3, kind("TransactionConflictException", "")),
        (3, kind("ResourceNotFoundException", "")),
        (3, kind("ValidationException", "")),
        (5, kind("UnrecognizedClientException", "")),
        (7, format!("<html>{WORDS}</html>")),
    ])
}

/// A forecast of any answer has a text, or there is none.
pub fn weather_answer(bytes: &[u8]) {
    let place = places::by_name("臺北市信義區").unwrap();
    SERVER.with(|server| {
        *server.answer.lock().unwrap() = answer_of(bytes);
        for provider in &server.weather {
            let answer = now(provider.forecast(place, Instant::now() + Duration::from_secs(5)));
            if let Ok(forecast) = answer {
                assert!(!forecast.text(Moment::now()).is_empty());
            }
        }
    });
}

pub(super) fn weather_answers() -> Vec<Vec<u8>> {
    let bodies = files("shared/weather/tests/fixtures", ".json");
    let all: Vec<(u8, String)> =
        bodies.into_iter().map(|body| (0, String::from_utf8_lossy(&body).into_owned())).collect();
    with_first(all)
}

fn with_first(all: impl IntoIterator<Item = (u8, String)>) -> Vec<Vec<u8>> {
    all.into_iter().map(|(first, body)| [&[first][..], body.as_bytes()].concat()).collect()
}
