//! The OpenAPI document against the function itself, by schemathesis: no undocumented status, media type, header or
//! body, and no failure of the server.

use crate::support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use edit_last_transaction::{EditLastTransaction, OPENAPI};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use support::{TOKEN, config, memory};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

/// Not `positive_data_acceptance`: no schema says which days exist, which letters are a currency, that a number must be
/// written without an exponent, or that two headers must agree.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,missing_required_header,unsupported_method,\
    allow_header_conformance,use_after_free,ensure_resource_availability,ignored_auth";

/// Serves the function on a loopback port, for as long as the test's runtime lives.
async fn serve(function: EditLastTransaction) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let function = Arc::new(function);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let function = Arc::clone(&function);
            let answer = service_fn(move |request: Request<Incoming>| {
                let function = Arc::clone(&function);
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                    let answer = function.handle(Request::from_parts(parts, body)).await;
                    Ok::<Response<String>, Infallible>(answer)
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    address
}

/// Runs schemathesis on the document with this name in `folder`.
async fn finds_nothing(address: SocketAddr, folder: &Path, document: &str, checks: &str) {
    let tools = std::env::var("ONETAP_TOOLS").expect("ONETAP_TOOLS, which .cargo/config.toml sets");
    let schemathesis = Path::new(&tools).join("venv/bin/schemathesis");
    assert!(schemathesis.exists(), "schemathesis not found: run scripts/test, which installs it");
    let output = Command::new(schemathesis)
        .args(["run", document, "--url", &format!("http://{address}/"), "--checks", checks])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}"), "--max-examples", "30", "--seed", "5"])
        .args(["--no-shrink", "--continue-on-failure", "--suppress-health-check", "all", "--warnings", "off"])
        .args(["--generation-database", "none", "--no-color"])
        .current_dir(folder)
        .kill_on_drop(true)
        .output();
    let output = timeout(Duration::from_secs(600), output).await.expect("schemathesis ends in time").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("No issues found"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs schemathesis"]
async fn schemathesis_finds_nothing_that_is_not_documented() {
    let address = serve(EditLastTransaction::new(memory(), config())).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("openapi.json"), OPENAPI).unwrap();
    let checks = format!("{CHECKS},negative_data_rejection");
    finds_nothing(address, folder.path(), "openapi.json", &checks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs schemathesis"]
async fn schemathesis_finds_nothing_where_its_requests_meet_each_other() {
    let address = serve(EditLastTransaction::new(memory(), config())).await;
    let folder = tempfile::tempdir().unwrap();
    // Of all possible users, two: so that what one request puts there the next one reads, edits and deletes.
    let mut document: Value = serde_json::from_str(OPENAPI).unwrap();
    document["components"]["parameters"]["UserId"]["schema"] = json!({"enum": ["U1", "U2"]});
    std::fs::write(folder.path().join("two-users.json"), document.to_string()).unwrap();
    finds_nothing(address, folder.path(), "two-users.json", CHECKS).await;
}
