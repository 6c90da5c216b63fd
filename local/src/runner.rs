//! Builds the local playground: the four functions on one store, with a fake LINE and a fake SQS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use edit_last_transaction::EditLastTransaction;
use http::Uri;
use job_events::JobEvents;
use onetap_bot::Bot;
use onetap_config::{ConfigError, Secret, Variables};
use onetap_line::testing::MessagingApi;
use onetap_store::{Backend, Batch, Commit, Error, Key, Store, Values};
use onetap_weather::places::by_name;
use queue_consumer::QueueConsumer;
use tokio_util::sync::CancellationToken;
use webhook::profile::{PROFILE, Profile, ProfileChange};
use webhook::weather::Saved;

use crate::bot::{AnyWebhook, OwnBot};
use crate::crashing_store::CrashingStore;
use crate::deliver::Deliveries;
use crate::job_plan::JobPlan;
use crate::line::Line;
use crate::observed_store::ObservedStore;
use crate::outage_store::OutageStore;
use crate::queue::JobQueue;
use crate::view::{Settings, StoreSetting, View};
use crate::weather::Weather;

/// The playground's two users. Their ids never change, so that a real store does not fill up with users.
pub(crate) const USERS: [&str; 2] =
    ["U000000000000000000000000000a11ce", "U00000000000000000000000000000b0b"];
/// The saved places of both users, so that the buttons for a saved place work from the first tap.
const SAVED_PLACES: [(Saved, &str); 2] = [(Saved::Home, "新北市永和區"), (Saved::Office, "臺北市信義區")];

/// The state of the local playground: the functions, their store, and the fakes around them.
pub(crate) struct Runner {
    pub(crate) address: SocketAddr,
    pub(crate) backend: &'static str,
    pub(crate) webhook: Box<dyn AnyWebhook>,
    /// Whether that is the webhook of a bot of the caller's own.
    pub(crate) has_own_bot: bool,
    pub(crate) edit: EditLastTransaction,
    pub(crate) job_events: JobEvents,
    pub(crate) line: Line,
    pub(crate) queue: Arc<JobQueue>,
    /// The store of the queue consumer, which the playground can make crash.
    pub(crate) consumer_store: Arc<CrashingStore>,
    /// The events that the page shows.
    pub(crate) view: Arc<View>,
    /// The store of all functions, for which the playground can simulate an outage.
    pub(crate) store: Arc<OutageStore>,
    pub(crate) weather: Weather,
    pub(crate) deliveries: Deliveries,
    pub(crate) http: onetap_http::Client,
    pub(crate) webhook_uri: Uri,
    pub(crate) line_secrets: Vec<Secret>,
    pub(crate) line_token: Secret,
    pub(crate) edit_token: Secret,
    pub(crate) job_secret: Secret,
    pub(crate) last_transaction_ttl: Duration,
    pub(crate) lock_ttl: Option<Duration>,
    pub(crate) shutdown: CancellationToken,
}

impl Runner {
    /// Builds every function from its variables, all on one store. The consumer is returned for the queue to invoke.
    pub(crate) fn build(
        variables: &Variables<'_>,
        times: webhook::Times,
        address: SocketAddr,
        api: MessagingApi,
        own_bot: Option<OwnBot>,
        shutdown: CancellationToken,
    ) -> Result<(Runner, QueueConsumer), ConfigError> {
        let store_config = onetap_store::Config::from_variables(variables)?
            .poll_interval(job_events::poll_interval(variables)?);
        let backend = store_config.backend().name();
        let http = onetap_http::Client::new();
        let weather = Weather::open(&onetap_weather::Config::from_variables(variables)?, &http);
        let settings =
            Settings { store: StoreSetting { kind: backend, down: false }, weather: weather.setting() };
        let view = Arc::new(View::new(settings));
        let real_store = onetap_store::open_with_kinds(
            &store_config,
            own_bot.as_ref().map_or(key_kind as fn(&_) -> _, |own| own.key_kind),
        )
        .map_err(|error| explain(error, store_config.backend()))?;
        let observed = ObservedStore::new(real_store, Arc::clone(&view));
        let outage = Arc::new(OutageStore::new(Arc::new(observed)));
        let store = || Arc::clone(&outage) as Arc<dyn Store>;

        let webhook_config = webhook::Config::from_variables(variables)?.with_times(times);
        let has_own_bot = own_bot.is_some();
        let channel = webhook_config.bot.channels.first().map(|channel| channel.line.clone());
        let channel = channel.ok_or_else(|| ConfigError::not_set("LINE_CHANNEL_SECRET"))?;
        let last_transaction_ttl = webhook_config.ledger.last_transaction;
        let lock_ttl = webhook_config.bot.lock.as_ref().map(|lock| lock.ttl);
        let webhook = match own_bot {
            Some(own) => own.open(store(), variables, &http, webhook_config.bot)?,
            None => Box::new(webhook::on(store(), Arc::clone(&weather.forecasts), &http, webhook_config)?),
        };
        let edit_config = edit_last_transaction::Config::from_variables(variables)?;
        let job_events_config = job_events::Config::from_variables(variables)?;
        let bus_config = onetap_bus::Config::from_variables(variables)?;
        let queue = Arc::new(JobQueue::new(Arc::clone(&view), JobPlan::new(bus_config.stages.clone())));
        let (consumer, consumer_store) = queue.consumer(store(), bus_config);
        let invalid_port = |_| ConfigError::new("--port", "is not a valid port");
        let runner = Runner {
            address,
            backend,
            line: Line::new(api, Arc::clone(&view), webhook.busy_text()),
            line_secrets: channel.secrets.clone(),
            line_token: channel.token.clone(),
            edit_token: edit_config.tokens.first().cloned().unwrap_or_else(|| Secret::new("")),
            job_secret: job_events_config.secrets.first().cloned().unwrap_or_else(|| Secret::new("")),
            last_transaction_ttl,
            lock_ttl,
            webhook,
            has_own_bot,
            edit: EditLastTransaction::new(store(), edit_config),
            job_events: JobEvents::new(store(), job_events_config),
            webhook_uri: format!("http://{address}/line/webhook").parse().map_err(invalid_port)?,
            deliveries: Deliveries::new(),
            http,
            queue,
            consumer_store,
            view,
            store: outage,
            weather,
            shutdown,
        };
        Ok((runner, consumer))
    }

    /// Shows the weather's state on the page. Returns all settings.
    pub(crate) fn show_weather(&self) -> Settings {
        self.view.set(|settings| settings.weather = self.weather.setting())
    }

    /// Makes the first store call, which fails if the store cannot be reached. The bundle's bot has two users, each with a home and
    /// an office.
    pub(crate) async fn begin(&self) -> Result<(), Error> {
        match self.has_own_bot {
            true => self.store.get(&Key::new("user:onetap-local")?).await.map(drop),
            false => self.create_profiles().await,
        }
    }

    /// Gives each of the two users a home and an office, unless the user has a profile.
    async fn create_profiles(&self) -> Result<(), Error> {
        let profile = SAVED_PLACES
            .iter()
            .filter_map(|(saved, name)| Some((*saved, by_name(name)?)))
            .fold(Profile::default(), |profile, (saved, place)| {
                profile.with(&ProfileChange::Save(saved, place))
            });
        for user in USERS {
            let key = Key::new(format!("user:{user}:profile"))?;
            let known = Values::from_iter([(key.clone(), None)]);
            let batch = PROFILE.write(Batch::new(), &key, &known, &profile)?;
            match self.store.commit(&batch).await? {
                Commit::Applied(_) => {}
                // The profile of an earlier run stays, with what its user has changed since.
                Commit::Refused(_) => {}
            }
        }
        Ok(())
    }
}

fn key_kind(key: &Key) -> &'static str {
    match webhook::Assistant::key_kind(key) {
        "other" => onetap_bus::key_kind(key),
        kind => kind,
    }
}

/// Adds the command to run if DynamoDB is not compiled in. (If it is, `open` does not fail: the store connects later.)
fn explain(error: ConfigError, backend: Backend) -> ConfigError {
    match backend {
        Backend::DynamoDb => {
            ConfigError::new("STORE", "`dynamodb` is not in this build: type `cargo local-dynamodb`")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use onetap_store::Config;

    use super::*;

    #[test]
    fn a_build_without_dynamodb_says_what_to_type() {
        let set = [("STORE", "dynamodb"), ("DYNAMODB_TABLE", "onetap"), ("AWS_REGION", "us-east-1")];
        let credentials = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
        let lookup = |name: &str| {
            set.iter().chain(&credentials).find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
        };
        let backend = Config::from_lookup(lookup).unwrap().backend();
        let error = explain(ConfigError::new("STORE", "names a backend that this build leaves out"), backend);
        assert_eq!(error.to_string(), "STORE: `dynamodb` is not in this build: type `cargo local-dynamodb`");
        let aliases = include_str!("../../.cargo/config.toml");
        let alias = "local-dynamodb = \"run --package onetap-local --features dynamodb --\"\n";
        assert!(aliases.contains(alias), "{aliases}");
    }
}
