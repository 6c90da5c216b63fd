//! Everything that runs behind the port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use edit_last_transaction::EditLastTransaction;
use http::Uri;
use job_events::JobEvents;
use onetap_config::{ConfigError, Secret, Variables};
use onetap_line::testing::MessagingApi;
use onetap_store::config::Backend;
use onetap_store::{Batch, Commit, Error, Expect, Key, Store, Ttl};
use onetap_weather::places::by_name;
use onetap_weather::{Provider, Sample};
use queue_consumer::QueueConsumer;
use webhook::Webhook;
use webhook::plan::Saved;
use webhook::profile::{Profile, ProfileChange};

use crate::deliver::Deliveries;
use crate::fuse::Fuse;
use crate::line::Line;
use crate::mirror::Mirror;
use crate::queue::Jobs;
use crate::stopping::Stopping;
use crate::switch::Switch;
use crate::view::{Settings, StoreSetting, View, WeatherSetting};

/// The playground's two users. The same every time, so that a real store does not fill up with them.
pub(crate) const USERS: [&str; 2] =
    ["U000000000000000000000000000a11ce", "U00000000000000000000000000000b0b"];
/// Where they live and work: a button that needs a saved place works from the first tap.
const PLACES: [(Saved, &str); 2] = [(Saved::Home, "新北市永和區"), (Saved::Office, "臺北市信義區")];

/// The sample is as slow as a real provider, or nobody could tap twice before it has answered.
const DELAY: Duration = Duration::from_millis(600);

/// Where the weather comes from.
pub(crate) enum Weather {
    /// Made up, and as slow as one likes.
    Sample(Arc<Sample>),
    /// A real provider.
    Real,
}

/// Everything that runs.
pub(crate) struct Runner {
    pub(crate) address: SocketAddr,
    pub(crate) kind: &'static str,
    pub(crate) webhook: Webhook,
    pub(crate) edit: EditLastTransaction,
    pub(crate) gateway: JobEvents,
    pub(crate) line: Line,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) fuse: Arc<Fuse>,
    pub(crate) view: Arc<View>,
    pub(crate) switch: Arc<Switch>,
    pub(crate) weather: Weather,
    pub(crate) deliveries: Deliveries,
    pub(crate) http: onetap_http::Client,
    pub(crate) webhook_uri: Uri,
    pub(crate) line_secrets: Vec<Secret>,
    pub(crate) edit_token: Secret,
    pub(crate) job_secret: Secret,
    pub(crate) last_transaction: Duration,
    pub(crate) lock_ttl: Option<Duration>,
    pub(crate) stopping: Stopping,
}

impl Runner {
    /// Builds every function as its own variables describe it, all on one store; the consumer is for the queue.
    pub(crate) fn build(
        variables: &Variables<'_>,
        times: webhook::Times,
        address: SocketAddr,
        api: MessagingApi,
        stopping: Stopping,
    ) -> Result<(Runner, QueueConsumer), ConfigError> {
        let store_config = onetap_store::Config::from_variables(variables)?;
        let kind = kind(&store_config.backend);
        let http = onetap_http::Client::new();
        let (weather, provider) = match onetap_weather::Config::from_variables(variables)? {
            onetap_weather::Config::Sample => {
                let sample = Arc::new(Sample::new());
                sample.set_delay(DELAY);
                (Weather::Sample(Arc::clone(&sample)), sample as Arc<dyn Provider>)
            }
            real => (Weather::Real, real.open(&http)),
        };
        let delay_ms = match weather {
            Weather::Sample(_) => u64::try_from(DELAY.as_millis()).unwrap_or_default(),
            Weather::Real => 0,
        };
        let settings =
            Settings { store: StoreSetting { kind, down: false }, weather: WeatherSetting { delay_ms } };
        let view = Arc::new(View::new(settings));
        let mirror = Mirror::new(onetap_store::open(&store_config)?, Arc::clone(&view));
        let switch = Arc::new(Switch::new(Arc::new(mirror)));
        let store = || Arc::clone(&switch) as Arc<dyn Store>;

        let webhook_config = webhook::Config { times, ..webhook::Config::from_variables(variables)? };
        let edit_config = edit_last_transaction::Config::from_variables(variables)?;
        let gateway_config = job_events::Config::from_variables(variables)?;
        let bus_config = onetap_bus::Config::from_variables(variables, &store_config)?;
        let jobs = Arc::new(Jobs::new(Arc::clone(&view)));
        let (consumer, fuse) = jobs.consumer(store(), bus_config);
        let wrong = |_| ConfigError::new("--port", "makes no address");
        let runner = Runner {
            address,
            kind,
            line: Line::new(api, Arc::clone(&view)),
            line_secrets: webhook_config.line.secrets.clone(),
            edit_token: edit_config.tokens.first().cloned().unwrap_or_else(|| Secret::new("")),
            job_secret: gateway_config.secrets.first().cloned().unwrap_or_else(|| Secret::new("")),
            last_transaction: webhook_config.last_transaction,
            lock_ttl: webhook_config.lock.map(|lock| lock.ttl),
            webhook: Webhook::new(store(), provider, &http, webhook_config)?,
            edit: EditLastTransaction::new(store(), edit_config),
            gateway: JobEvents::new(store(), gateway_config),
            webhook_uri: format!("http://{address}/line/webhook").parse().map_err(wrong)?,
            deliveries: Deliveries::new(),
            http,
            jobs,
            fuse,
            view,
            switch,
            weather,
            stopping,
        };
        Ok((runner, consumer))
    }

    /// Gives the two users a home and an office, if they have no profile yet. It is the first call of the store, and
    /// shows whether there is one.
    pub(crate) async fn furnish(&self) -> Result<(), Error> {
        let profile = PLACES
            .iter()
            .filter_map(|(saved, name)| Some((*saved, by_name(name)?)))
            .fold(Profile::read(None), |profile, (saved, place)| {
                profile.with(&ProfileChange::Save(saved, place))
            });
        for user in USERS {
            let key = Key::new(format!("user:{user}:profile"))?;
            let batch = Batch::new().put(&key, Expect::Absent, profile.to_json(), Ttl::Forever);
            match self.switch.commit(&batch).await? {
                Commit::Applied(_) => {}
                // They were here before, and may have moved.
                Commit::Refused(_) => {}
            }
        }
        Ok(())
    }
}

fn kind(backend: &Backend) -> &'static str {
    match backend {
        Backend::Memory => "memory",
        Backend::Upstash { .. } => "upstash",
        Backend::Redis { .. } => "redis",
        Backend::DynamoDb { .. } => "dynamodb",
        _ => "other",
    }
}
