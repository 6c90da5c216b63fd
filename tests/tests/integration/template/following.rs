//! The guide's rows about clients that follow a job, counted.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use onetap_bus::{Bus, Config, Event, Follower, Job, Published, Resume, Stages};
use onetap_servers::{Backend, Environment, Proxy};
use onetap_store::{Position, Record, Store};
use onetap_tests::functions::Function;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::ORIGIN;
use super::costs::{
    PRICES, counted_on_dynamodb, counted_on_upstash, stated_for_dynamodb, stated_for_upstash,
};
use super::document::{Template, number};
use super::guide::guide;

const BEGINS: &str = "a client that begins to follow a job";
const WAITS: &str = "an event, for each client; on DynamoDB half a second of waiting";
const RETURNS: &str = "a client that comes back, every 25 seconds";
pub const ROWS: [&str; 3] = [BEGINS, WAITS, RETURNS];

/// Time limit for a wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn job(id: &str) -> Job {
    Job::new("scan", id).unwrap()
}

async fn publish(bus: &Bus, id: &str, seq: u64) {
    let event = Event::new(bus.stages(), &job(id), "vision", seq, &"seen").unwrap();
    assert!(matches!(bus.publish(&event).await, Ok(Published::New(_))));
}

/// A client that follows `job-1` until it is dropped: the events that it receives.
struct Client(UnboundedReceiver<Record>);

impl Client {
    /// Begins after the client's last event, if it has one.
    fn of(store: Arc<dyn Store>, after: Option<Position>) -> Client {
        let (sender, events) = unbounded_channel();
        tokio::spawn(async move {
            let resume = Resume { after, last_seq: None };
            let mut follower = Follower::start(store, Stages::default(), job("job-1"), resume).await.unwrap();
            loop {
                tokio::select! {
                    event = follower.next() => sender.send(event.unwrap().unwrap()).unwrap(),
                    () = sender.closed() => return,
                }
            }
        });
        Client(events)
    }

    async fn next(&mut self) -> Position {
        timeout(PATIENCE, self.0.recv()).await.unwrap().unwrap().position
    }
}

/// Waits until `count` is `expected`. Whatever comes later shows in the next wait.
async fn reaches<T: Debug + PartialEq>(what: &str, expected: T, mut count: impl AsyncFnMut() -> T) {
    let reached = async {
        while count().await != expected {
            sleep(Duration::from_millis(10)).await;
        }
    };
    if timeout(PATIENCE, reached).await.is_err() {
        panic!("{what}: {:?}, not {expected:?}", count().await);
    }
}

/// US dollars, as the guide quotes them: a GB-second of Lambda on each processor, and a million of its requests.
const GB_SECOND: [(&str, f64); 2] = [("arm64", 0.000_013_333_4), ("x86-64", 0.000_016_666_7)];
const REQUESTS: f64 = 0.20;

#[test]
fn the_guide_sums_what_a_thousand_waiting_clients_cost_in_lambda_and_in_the_store() {
    const CLIENTS: f64 = 1000.0;
    const HOUR: f64 = 3600.0;
    let stack = Template::read().with(&[ORIGIN]);
    let gateway = stack.function(Function::Gateway);
    let memory = number(&gateway["MemorySize"]);
    let stream: f64 = stack.variable(Function::Gateway, "SSE_MAX_SECONDS").parse().unwrap();
    // The second between two streams is left out.
    let streams = CLIENTS * HOUR / stream;
    let polls = CLIENTS * HOUR * 2.0;
    let millions = |count: f64, each: &str| count * each.parse::<f64>().unwrap() / 1e6;
    let commands = millions(streams, &stated_for_upstash(RETURNS)[1]);
    let units =
        millions(streams, &stated_for_dynamodb(RETURNS)[2]) + millions(polls, &stated_for_dynamodb(WAITS)[2]);
    let (upstash, dynamodb) = (commands * PRICES.2, units * PRICES.1);
    let requests = streams / 1e6 * REQUESTS;
    let [arm, intel] = GB_SECOND
        .map(|(processor, price)| (processor, price, memory as f64 / 1024.0 * HOUR * CLIENTS * price));
    let rows = [
        format!("| Lambda, {memory} MB on {}, ${:.10} a GB-second | {:.2} |", arm.0, arm.1, arm.2),
        format!("| the same on {}, ${:.10} a GB-second | {:.2} |", intel.0, intel.1, intel.2),
        format!("| Lambda's requests, ${REQUESTS:.2} a million | {requests:.2} |"),
        format!(
            "| the store: {units:.1} million read units on DynamoDB, or {commands:.2} million commands on Upstash | \
             {dynamodb:.2} or {upstash:.2} |"
        ),
        format!(
            "| **together, on {}** | **{:.2} on DynamoDB, {:.2} on Upstash** |",
            arm.0,
            arm.2 + requests + dynamodb,
            arm.2 + requests + upstash
        ),
    ];
    let guide = guide();
    for row in rows {
        assert!(guide.contains(&format!("\n{row}\n")), "the guide does not say: {row}");
    }
    assert!(guide.contains(&format!("every {stream} seconds")));
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_guide_counts_what_a_client_of_a_stream_costs_on_upstash() {
    let mut servers = Environment::start(Backend::Upstash).await;
    let (store, bus) = (servers.store(), Bus::new(servers.store(), Config::default()));
    publish(&bus, "job-1", 10).await;
    let mut count = async || {
        let commands = servers.redis().unwrap().commands().await;
        (servers.gateway().unwrap().requests(), commands)
    };
    let before = count().await;
    publish(&bus, "job-2", 10).await;
    let mut sum = count().await;
    let published = (sum.0 - before.0, sum.1 - before.1);

    let add = |sum: (usize, u64), name: &str| {
        let stated = stated_for_upstash(name);
        let (requests, commands) = (stated[0].parse().unwrap(), stated[1].parse().unwrap());
        assert_eq!(stated, counted_on_upstash(requests, commands), "{name}");
        (sum.0 + requests, sum.1 + commands)
    };
    let mut client = Client::of(store.clone(), None);
    client.next().await;
    sum = add(sum, BEGINS);
    reaches(BEGINS, sum, &mut count).await;
    publish(&bus, "job-1", 11).await;
    let last = client.next().await;
    sum = add((sum.0 + published.0, sum.1 + published.1), WAITS);
    reaches(WAITS, sum, &mut count).await;
    drop(client);
    let _client = Client::of(store, Some(last));
    sum = add(sum, RETURNS);
    reaches(RETURNS, sum, &mut count).await;
    sleep(Duration::from_millis(200)).await;
    reaches(RETURNS, sum, &mut count).await;
}

#[tokio::test]
async fn the_guide_counts_what_a_client_of_a_stream_costs_on_dynamodb() {
    let servers = Environment::start(Backend::DynamoDb).await;
    let url = servers.lookup("AWS_ENDPOINT_URL_DYNAMODB").unwrap();
    let proxy = Proxy::start(&url).await;
    let bus = Bus::new(servers.store(), Config::default());
    publish(&bus, "job-1", 10).await;

    let servers = servers.with("SSE_POLL_MS", "3600000");
    let store = servers.store_with("AWS_ENDPOINT_URL_DYNAMODB", proxy.url());
    let mut client = Client::of(store.clone(), None);
    let last = client.next().await;
    let requests: usize = stated_for_dynamodb(BEGINS)[0].parse().unwrap();
    reaches(BEGINS, requests, async || proxy.calls().len()).await;
    assert_eq!(counted_on_dynamodb(&proxy.calls(), &url).await, stated_for_dynamodb(BEGINS), "{BEGINS}");
    drop(client);
    let _client = Client::of(store, Some(last));
    let returned: usize = stated_for_dynamodb(RETURNS)[0].parse().unwrap();
    reaches(RETURNS, requests + returned, async || proxy.calls().len()).await;
    let calls = proxy.calls().split_off(requests);
    assert_eq!(counted_on_dynamodb(&calls, &url).await, stated_for_dynamodb(RETURNS), "{RETURNS}");

    // A client that polls often: each poll is one call, the same as the last one above.
    let servers = servers.with("SSE_POLL_MS", "20");
    let _client = Client::of(servers.store_with("AWS_ENDPOINT_URL_DYNAMODB", proxy.url()), Some(last));
    let before = requests + 2 * returned;
    timeout(PATIENCE, async {
        while proxy.calls().len() < before + 5 {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    for poll in proxy.calls().drain(before..) {
        assert_eq!(poll.0, "Query");
        assert_eq!(counted_on_dynamodb(&[poll], &url).await, stated_for_dynamodb(WAITS), "{WAITS}");
    }
}
