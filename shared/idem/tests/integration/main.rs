//! Calls, layers and batches on every backend.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod examples;
mod grpc_layer;
mod http_layer;
mod idem;
mod idem_dynamodb;
mod idem_dynamodb_local;
mod idem_processes;
mod idem_redis;
mod idem_suite;
mod idem_upstash;
mod resent;
mod skew;
mod sqs;
mod sqs_backends;
mod sqs_random;
mod sqs_suite;
mod sqs_time;
#[path = "../../../store/tests/support/mod.rs"]
mod support;
