//! A plain HTTP client, so that the tests see what goes over the wire.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::{Client, Error, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;

/// A client with a pool of connections and no second attempts: what fails is seen to fail.
pub(crate) fn client() -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http()
}

pub(crate) async fn send(request: Request<String>) -> Result<Response<Incoming>, Error> {
    client().request(request.map(|body| Full::new(Bytes::from(body)))).await
}

pub(crate) async fn text(answer: Response<Incoming>) -> Result<String, hyper::Error> {
    let body = answer.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.to_vec()).expect("a text"))
}
