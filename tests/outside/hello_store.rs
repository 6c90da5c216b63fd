use lambda_http::{Body, Error, Request, RequestExt, Response, run, service_fn};
use onetap::{Config, Idempotency, open};

async fn greeting() -> Result<String, Error> {
    Ok("hello".to_owned())
}

async fn hello(idem: &Idempotency, request: Request) -> Result<Response<Body>, Error> {
    let id = request.lambda_context().request_id;
    let answer = idem.execute(&id, greeting).await.map_err(|error| error.to_string())?;
    Ok(Response::new(answer.into()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let idem = Idempotency::new(open(&Config::from_env()?)?);
    run(service_fn(|request| hello(&idem, request))).await
}
