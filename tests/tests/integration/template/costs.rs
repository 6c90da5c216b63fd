//! The guide's table of costs, counted.

use onetap_servers::{Backend, Environment};
use onetap_tests::functions::Function;
use serde_json::Value;

use super::ORIGIN;
use super::document::Template;
use super::guide::guide;
use super::stories::{Stage, environment, invoke};

/// A row of the guide: what it is called there, whose scenario it is, and what has happened before.
const ROWS: [(&str, Function, &[&str], &str); 4] = [
    ("a tap: forecast of the saved place", Function::Webhook, &["follow", "set-home"], "tap-home"),
    ("a place name: forecast, kept among the recent", Function::Webhook, &["follow"], "place"),
    ("an edit over HTTP", Function::Edit, &["record"], "edit"),
    ("an event from the queue", Function::Consumer, &[], "one-event"),
];

/// US dollars for a million, as the guide quotes them: write units, read units, commands.
const PRICES: (f64, f64, f64) = (0.625, 0.125, 2.0);

/// The row of the guide's table that begins with this, by its cells.
fn row(name: &str) -> Vec<String> {
    let guide = guide();
    assert!(
        guide.contains(
            "$0.625 a million write units and $0.125 a million read units; $0.20 a hundred thousand"
        )
    );
    let line = guide.lines().find(|line| line.starts_with(&format!("| {name} |")));
    let line = line.unwrap_or_else(|| panic!("the guide has no row for {name}"));
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// DynamoDB's units for a call: writes of up to 1 KB, reads of up to 4 KB, all of them consistent. A transaction's count
/// twice.
fn units((operation, input): &(String, Value)) -> (usize, usize) {
    let length = |value: &Value| value.as_array().unwrap().len();
    match operation.as_str() {
        "PutItem" | "DeleteItem" => (1, 0),
        "TransactWriteItems" => (2 * length(&input["TransactItems"]), 0),
        "GetItem" | "Query" => (0, 1),
        "BatchGetItem" => {
            let tables = input["RequestItems"].as_object().unwrap().values();
            (0, tables.map(|table| length(&table["Keys"])).sum())
        }
        other => panic!("{other} has no price here"),
    }
}

#[tokio::test]
async fn the_guide_counts_dynamodbs_units_as_they_are() {
    let template = Template::read();
    for (name, function, before, scenario) in ROWS {
        let stage = Stage::set(&template).await;
        let calls = stage.calls_of(function, before, scenario).await;
        let (writes, reads) =
            calls.iter().map(units).fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        let row = row(name);
        assert_eq!(row[1..3], [writes.to_string(), reads.to_string()], "{name}: writes, reads");
        let price = writes as f64 * PRICES.0 + reads as f64 * PRICES.1;
        // Half a cent goes up on paper, and to the even neighbour in Rust.
        assert_eq!(row[4], format!("{:.2}", price + 1e-9), "{name}: dollars");
    }
}

#[tokio::test]
#[ignore = "needs redis-server"]
async fn the_guide_counts_upstashs_commands_as_they_are() {
    let template = Template::read();
    let stack = template.with(&[ORIGIN, ("WeatherProvider", "sample")]);
    for (name, function, before, scenario) in ROWS {
        let stage = Stage::set(&template).await;
        let mut servers = Environment::start(Backend::Upstash).await;
        let mut variables = environment(&stack, function);
        variables.extend(servers.variables().iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        variables.insert("LINE_API_BASE_URL".to_owned(), stage.line());
        for name in before {
            invoke(function, &variables, name).await;
        }
        let url = servers.redis().unwrap().url();
        let known = commands(&url).await;
        invoke(function, &variables, scenario).await;
        let commands = commands(&url).await - known;
        let row = row(name);
        assert_eq!(row[3], commands.to_string(), "{name}: commands");
        assert_eq!(row[5], format!("{:.2}", commands as f64 * PRICES.2), "{name}: dollars");
    }
}

/// The commands that Redis has run, inside scripts too, as Upstash counts them.
async fn commands(url: &str) -> u64 {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
    let counted = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        // What sets a connection up, and this question itself.
        let own = ["info", "client", "hello", "auth", "select", "ping", "script"];
        let own = own.iter().any(|own| name.starts_with(own));
        if own { None } else { rest.split(',').next()?.parse::<u64>().ok() }
    };
    stats.lines().filter_map(counted).sum()
}
