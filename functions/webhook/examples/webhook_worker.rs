//! A process that handles deliveries: every line on standard input is the list of a delivery's events, signed and
//! delivered at once; every line on standard output a status. Configured as the function is, by the environment, but
//! with more time for a delivery than LINE gives: what a test shows must not depend on how quick its machine is.
#![allow(clippy::print_stdout, reason = "its answers go to standard output")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use lambda_http::Body;
use onetap_config::{Secret, Variables};
use onetap_line::signature::sign;
use onetap_store::open;
use tokio::io::{AsyncBufReadExt, BufReader};
use webhook::{Config, Times};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let variables = Variables::from_env();
    let minute = Duration::from_secs(60);
    let times = Times { delivery: 3 * minute, forecast: minute, reply: minute };
    let config = Config::from_variables(&variables)?.with_times(times);
    let (store, http) =
        (open(&onetap_store::Config::from_variables(&variables)?)?, onetap_http::Client::new());
    let weather = Arc::new(onetap_weather::Config::from_variables(&variables)?.open(&http));
    let webhook = Arc::new(webhook::on(store, weather, &http, config)?);
    let secret = Secret::new(std::env::var("LINE_CHANNEL_SECRET")?);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let body = format!(r#"{{"destination":"U0","events":{line}}}"#).into_bytes();
        let request = Request::post("/line/webhook").header("x-line-signature", sign(&secret, &body));
        let (webhook, request) = (Arc::clone(&webhook), request.body(Body::Binary(body))?);
        tokio::spawn(async move { println!("{}", webhook.handle(request).await.status().as_u16()) });
    }
    Ok(())
}
