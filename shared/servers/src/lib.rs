#![doc = include_str!("../README.md")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a server that cannot start fails its test on the spot and says why"
)]

pub mod broken;
pub mod dynamo;
pub mod environment;
pub mod fault;
pub mod heavy;
pub mod monitor;
pub mod proxy;
pub mod redis;
pub mod runtime;
pub mod stub;
pub mod tcp;
pub mod upstash;
pub mod warm_up;

mod background;
mod connections;
mod http;
mod process;

pub use self::broken::Broken;
pub use self::dynamo::{Dynamo, create_table, dynamodb_local};
pub use self::environment::{Backend, Environment};
pub use self::fault::Fault;
pub use self::heavy::{HeavyTest, heavy_test};
pub use self::monitor::Monitor;
pub use self::proxy::Proxy;
pub use self::redis::Redis;
pub use self::runtime::{Program, RuntimeApi};
pub use self::stub::HttpStub;
pub use self::tcp::TcpProxy;
pub use self::upstash::Upstash;
