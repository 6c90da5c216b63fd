//! The client `docs/job-events.js`, in Chromium, in Node with the package `eventsource`, and in Node with its own
//! `EventSource`, against the gateway. A scenario is a function of `follower/scenarios.mjs`; its promise is the name here.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onetap_servers::heavy_test;

use crate::server::Server;

/// The client's size in the repository must stay below this.
const MAX_BYTES: usize = 2048;

/// The gateway's longest stream and its grace, in milliseconds.
const LONG: (u64, u64) = (25_000, 100);
const SHORT: (u64, u64) = (300, 100);
const WITH_GRACE: (u64, u64) = (25_000, 3000);

async fn play(scenario: &'static str, client: &'static str, (max, grace): (u64, u64)) {
    let _heavy = heavy_test();
    let [max, grace] = [max, grace].map(Duration::from_millis);
    let server = Server::start(max, grace).await;
    let mut node = Command::new("node");
    if client == "node" {
        node.arg("--experimental-eventsource");
    }
    node.arg("--no-warnings")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/follower/run.mjs"))
        .args([client, &server.port.to_string(), scenario])
        .env("ONETAP_TOOLS", std::env::var_os("ONETAP_TOOLS").expect("cargo sets ONETAP_TOOLS"));
    let run = tokio::task::spawn_blocking(move || node.output()).await.unwrap().expect("node can be run");
    assert!(run.status.success(), "{scenario} in {client}:\n{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn the_client_is_smaller_than_two_kilobytes() {
    let client = include_str!("../../../../docs/job-events.js");
    assert!(client.len() < MAX_BYTES, "{} bytes", client.len());
}

macro_rules! scenarios {
    ($($promise:ident: $scenario:literal $times:ident,)*) => {$(
        mod $promise {
            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs chromium and playwright-core"]
            async fn in_chromium() {
                super::play($scenario, "chromium", super::$times).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs node and eventsource"]
            async fn in_node_with_a_package() {
                super::play($scenario, "package", super::$times).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            #[ignore = "needs node"]
            async fn in_node() {
                super::play($scenario, "node", super::$times).await;
            }
        }
    )*};
}

scenarios! {
    a_job_is_followed_to_its_end_with_each_event_once_in_order: "whole" LONG,
    a_job_that_was_seen_whole_ends_without_an_event: "seen" LONG,
    without_an_event_source_nothing_is_begun: "no_event_source" LONG,
    streams_that_end_or_break_are_resumed: "broken" SHORT,
    a_token_that_expires_in_a_stream_is_renewed: "expires" LONG,
    a_token_that_is_refused_is_renewed: "refused_token" LONG,
    a_token_that_cannot_be_had_is_asked_for_again: "no_token" LONG,
    a_store_that_is_down_is_outlived: "store_down" LONG,
    refusals_are_outlived_after_growing_pauses: "refused" LONG,
    a_gap_is_told_once: "gap" LONG,
    a_gap_with_nothing_after_it_is_told_once: "empty_gap" LONG,
    an_event_that_the_last_one_overtook_is_told: "overtaken" WITH_GRACE,
    closing_stops_everything: "closed" WITH_GRACE,
}
