//! The webhook as it is, but for two things: it trusts the certificate in the file `BENCH_ROOT`, and `BENCH_WARM_UP` says when
//! its connections are opened.

use std::convert::Infallible;
use std::sync::Arc;

use lambda_http::{Error, run, service_fn};
use onetap_config::Variables;
use onetap_http::Client;
use onetap_store::{Observed, Upstash};
use tokio_rustls::rustls::RootCertStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    onetap_telemetry::init();
    let mut roots = RootCertStore::empty();
    roots.add(std::fs::read(std::env::var("BENCH_ROOT")?)?.into())?;
    let variables = Variables::from_env();
    let url = variables.required("UPSTASH_REDIS_REST_URL")?;
    let store = Upstash::new(&url, variables.required("UPSTASH_REDIS_REST_TOKEN")?)?;
    let store = store.timeout(variables.millis("STORE_TIMEOUT_MS", 500)?);
    let store = store.http_client(Client::with_roots(roots.roots.clone()));
    let http = Client::with_roots(roots.roots);
    let weather = onetap_weather::Config::from_variables(&variables)?.open(&http);
    let store = Arc::new(Observed::new(Arc::new(store)));
    let webhook = webhook::on(store, Arc::new(weather), &http, webhook::Config::from_variables(&variables)?)?;
    let answer = service_fn(async |request| Ok::<_, Infallible>(webhook.handle(request).await));
    match std::env::var("BENCH_WARM_UP")?.as_str() {
        "warmed up before the first poll" => {
            webhook.warm_up().await;
            run(answer).await
        }
        "warmed up beside the first poll" => tokio::join!(webhook.warm_up(), run(answer)).1,
        _ => run(answer).await,
    }
}
