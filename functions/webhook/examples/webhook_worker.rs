//! A process that handles deliveries: every line on standard input is the list of a delivery's events, signed and
//! delivered at once; every line on standard output a status. Configured as the function is, by the environment.
#![allow(clippy::print_stdout, reason = "its answers go to standard output")]

use std::error::Error;
use std::sync::Arc;

use http::Request;
use lambda_http::Body;
use onetap_line::signature::sign;
use onetap_store::config::{Secret, Variables};
use tokio::io::{AsyncBufReadExt, BufReader};
use webhook::Webhook;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let webhook = Arc::new(Webhook::from_variables(&Variables::from_env())?);
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
