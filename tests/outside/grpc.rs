//! A gRPC service with the idempotency layer, and a client that calls it twice with one key.

use onetap::grpc::GrpcIdempotencyLayer;
use onetap::{Caller, Config, Idempotency, open};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Request;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

async fn call(client: &mut HealthClient<Channel>) -> Result<bool, tonic::Status> {
    let mut request = Request::new(HealthCheckRequest { service: String::new() });
    request.metadata_mut().insert("x-idem-key", "42".parse().expect("metadata"));
    Ok(client.check(request).await?.metadata().contains_key("idempotency-replayed"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let idem = Idempotency::new(open(&Config::from_env()?)?);
    let layer = GrpcIdempotencyLayer::unary(idem, Caller::anyone(), ["/grpc.health.v1.Health/Check"]);
    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let mut client = HealthClient::new(Endpoint::new(format!("http://{address}"))?.connect().await?);
    for _ in 0..2 {
        println!("{}", if call(&mut client).await? { "replayed" } else { "executed" });
    }
    Ok(())
}
