//! The client of the AWS SDK: the store's own, or one that the caller has configured.

use std::sync::OnceLock;

use aws_credential_types::Credentials as AwsCredentials;
use aws_runtime::invocation_id::InvocationIdInterceptor;
use aws_runtime::request_info::RequestInfoInterceptor;
use aws_runtime::service_clock_skew::ServiceClockSkewInterceptor;
use aws_runtime::user_agent::UserAgentInterceptor;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::StalledStreamProtectionConfig;
use aws_sdk_dynamodb::config::interceptors::{
    AfterDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextRef,
};
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, ConfigBag, Intercept, Region, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::interceptors::disable_interceptor;
use aws_smithy_types::config_bag::{FrozenLayer, Layer};

use super::connector::{Connector, is_answer};
use super::signer::Signer;
use crate::{Credentials, Secret};

/// Where the client is from.
pub(super) enum Origin {
    /// The store builds it.
    Own { region: String, credentials: Credentials },
    /// The caller has built it. The store uses a copy of it.
    Given(Client),
}

/// The client that the store sends with.
pub(super) struct Access {
    origin: Origin,
    pub(super) endpoint: Option<String>,
    /// Built at the first request, so that it does not delay the start of a function.
    client: OnceLock<Client>,
}

impl Access {
    pub(super) fn new(origin: Origin) -> Access {
        Access { origin, endpoint: None, client: OnceLock::new() }
    }

    pub(super) fn client(&self) -> &Client {
        self.client.get_or_init(|| {
            let mut config = match &self.origin {
                Origin::Own { region, credentials } => own(region, credentials),
                Origin::Given(client) => client.config().to_builder().interceptor(WholeAnswers),
            };
            if let Some(url) = &self.endpoint {
                config = config.endpoint_url(url);
            }
            // The store has its own retries: it knows which requests are repeatable.
            Client::from_conf(config.retry_config(RetryConfig::disabled()).build())
        })
    }

    /// Whether requests go through [`Connector`], which can open a connection ahead.
    pub(super) fn has_own_connector(&self) -> bool {
        matches!(self.origin, Origin::Own { .. })
    }
}

fn own(region: &str, credentials: &Credentials) -> Builder {
    let reveal = |secret: &Secret| secret.reveal().to_owned();
    let credentials = AwsCredentials::new(
        reveal(&credentials.access_key_id),
        reveal(&credentials.secret_access_key),
        credentials.session_token.as_ref().map(reveal),
        None,
        "environment",
    );
    Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region.to_owned()))
        .push_auth_scheme(Signer::new(region, credentials.clone()))
        .credentials_provider(credentials)
        .http_client(Connector::new())
        .interceptor(TurnedOff::new())
        // The store has its own deadline.
        .timeout_config(TimeoutConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
}

/// Turns off what the SDK does anew for every request, and is not needed here: it reports its version and features, the
/// number of the attempt and an id for all attempts, and measures by how much the clock is wrong. [`Connector`] names the
/// store to the service instead.
#[derive(Debug)]
struct TurnedOff(FrozenLayer);

impl TurnedOff {
    fn new() -> TurnedOff {
        let cause = "the store does not need it";
        let mut off = Layer::new("TurnedOff");
        off.store_put(disable_interceptor::<UserAgentInterceptor>(cause));
        off.store_put(disable_interceptor::<RequestInfoInterceptor>(cause));
        off.store_put(disable_interceptor::<InvocationIdInterceptor>(cause));
        off.store_put(disable_interceptor::<ServiceClockSkewInterceptor>(cause));
        TurnedOff(off.freeze())
    }
}

impl Intercept for TurnedOff {
    fn name(&self) -> &'static str {
        "TurnedOff"
    }

    fn read_before_execution(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        config.push_shared_layer(self.0.clone());
        Ok(())
    }
}

/// Checks the answers of a connector that is not ours, as [`Connector`] checks its own.
#[derive(Debug)]
struct WholeAnswers;

impl Intercept for WholeAnswers {
    fn name(&self) -> &'static str {
        "WholeAnswers"
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let response = context.response();
        match response.body().bytes() {
            Some(body) if response.status().is_success() && !is_answer(body) => {
                Err("an answer that is none of DynamoDB's".into())
            }
            _ => Ok(()),
        }
    }
}
