//! The OpenAPI document against the function itself, by schemathesis: no undocumented status, media type, header or
//! body, and no failure of the server.

use crate::support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use edit_last_transaction::{EditLastTransaction, OPENAPI};
use onetap_servers::HttpStub;
use serde_json::{Value, json};
use support::{TOKEN, config, memory};
use tokio::process::Command;
use tokio::time::timeout;

/// Not `positive_data_acceptance`: no schema says which days exist, which letters are a currency, that a number must be
/// written without an exponent, or that two headers must agree.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,missing_required_header,unsupported_method,\
    allow_header_conformance,use_after_free,ensure_resource_availability,ignored_auth";

fn serve(function: EditLastTransaction) -> HttpStub {
    let function = Arc::new(function);
    HttpStub::serving(move |request| {
        let function = Arc::clone(&function);
        async move { function.handle(request).await }
    })
}

/// Runs schemathesis on the document with this name in `folder`.
async fn finds_nothing(server: &HttpStub, folder: &Path, document: &str, checks: &str) {
    let tools = std::env::var("ONETAP_TOOLS").expect("ONETAP_TOOLS, which .cargo/config.toml sets");
    let schemathesis = Path::new(&tools).join("venv/bin/schemathesis");
    assert!(schemathesis.exists(), "schemathesis not found: run scripts/test, which installs it");
    let output = Command::new(schemathesis)
        .args(["run", document, "--url", &format!("{}/", server.url()), "--checks", checks])
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
    let server = serve(EditLastTransaction::new(memory(), config()));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("openapi.json"), OPENAPI).unwrap();
    let checks = format!("{CHECKS},negative_data_rejection");
    finds_nothing(&server, folder.path(), "openapi.json", &checks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs schemathesis"]
async fn schemathesis_finds_nothing_where_its_requests_meet_each_other() {
    let server = serve(EditLastTransaction::new(memory(), config()));
    let folder = tempfile::tempdir().unwrap();
    // Of all possible users, two: so that what one request puts there the next one reads, edits and deletes.
    let mut document: Value = serde_json::from_str(OPENAPI).unwrap();
    document["components"]["parameters"]["UserId"]["schema"] = json!({"enum": ["U1", "U2"]});
    std::fs::write(folder.path().join("two-users.json"), document.to_string()).unwrap();
    finds_nothing(&server, folder.path(), "two-users.json", CHECKS).await;
}
