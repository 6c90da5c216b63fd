//! An HTTP function behind a server of its own.

use std::error::Error;
use std::{fmt, io};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use hyper::{Request, Response};

use crate::fault::Body;
use crate::http::{Handler, HttpServer};

/// A function's `handle` behind HTTP/1.1, on a free loopback port and a runtime of its own. Answers are streamed; a
/// client that leaves drops its answer. Everything stops when this value is dropped.
#[derive(Debug)]
pub struct HttpFunction<F>(HttpServer<Handle<F>>);

struct Handle<F>(F);

impl<F> fmt::Debug for Handle<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl<F, Answer, B> Handler for Handle<F>
where
    F: Fn(Request<Bytes>) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Response<B>> + Send,
    B: HttpBody<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + 'static,
{
    async fn answer(&self, request: Request<Bytes>) -> Response<Body> {
        (self.0)(request).await.map(|body| body.map_err(io::Error::other).boxed_unsync())
    }
}

impl<F, Answer, B> HttpFunction<F>
where
    F: Fn(Request<Bytes>) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Response<B>> + Send,
    B: HttpBody<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + 'static,
{
    /// Serves `handle`.
    pub fn start(handle: F) -> HttpFunction<F> {
        HttpFunction(HttpServer::start(Handle(handle)))
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// How many requests it received so far.
    pub fn requests(&self) -> usize {
        self.0.requests()
    }
}
