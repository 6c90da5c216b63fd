//! The store's promises on every backend, and what each backend does in trouble.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod billed;
mod config;
mod dynamodb;
mod dynamodb_clear;
mod dynamodb_client;
mod dynamodb_join;
mod dynamodb_local;
mod dynamodb_request;
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
mod lost_replies;
mod memory;
mod observed;
mod oracle;
mod race;
mod redis;
mod redis_transport;
mod resent;
mod script;
mod skew;
mod sources;
mod sqs;
mod sqs_backends;
mod sqs_random;
mod sqs_suite;
mod sqs_time;
#[path = "../support/mod.rs"]
mod support;
mod transport;
mod upstash;
mod wire;
