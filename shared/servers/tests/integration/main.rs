//! The test servers themselves.

mod dynamo;
mod faults;
mod gateway;
mod official_clients;
mod redis;
mod support;
