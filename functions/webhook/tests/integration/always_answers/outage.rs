//! A provider that is down for six hours of simulated time, and a thousand users.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use onetap_config::{Secret, Variables};
use onetap_line::testing::MessagingApi;
use onetap_store::Store;
use onetap_weather::{Error, Forecast, ForecastAges, Forecasts, Place, Provider, Sample, places};
use serde_json::Value;
use tokio::time::Instant;
use webhook::{Config, Webhook};

use super::{CLOCK, clock, pass};
use crate::support::{BUSY, PATIENT, SECRET, TOKEN, deliver, memory, text, user};

const USERS: usize = 1000;
const HOURS: i64 = 6;
/// Instances of the function, which share the store.
const INSTANCES: usize = 3;
/// Users ask for these: the largest townships, as in a real bot.
const TOWNSHIPS: usize = 100;

/// The sample's weather by the simulated clock, as long as it works.
#[derive(Debug)]
struct Weather {
    name: &'static str,
    works: AtomicBool,
    calls: AtomicUsize,
}

impl Weather {
    fn new(name: &'static str) -> Arc<Weather> {
        Arc::new(Weather { name, works: AtomicBool::new(true), calls: AtomicUsize::new(0) })
    }

    fn goes_down(&self) {
        self.works.store(false, Ordering::SeqCst);
        self.calls.store(0, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Provider for Weather {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn forecast(&self, place: &Place, _: Instant) -> Result<Forecast, Error> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let works = self.works.load(Ordering::SeqCst);
        if works { Ok(Sample::at(place, clock())) } else { Err(Error::Unavailable) }
    }
}

/// Instances of one bot.
struct Bot {
    line: MessagingApi,
    instances: Vec<Webhook>,
}

impl Bot {
    fn new(provider: &Arc<Weather>, fallback: Option<&Arc<Weather>>) -> Bot {
        let line = MessagingApi::start(Secret::new(TOKEN)).unwrap();
        let store: Arc<dyn Store> = memory();
        let instance = |_| {
            let url = line.url();
            let lookup = |name: &str| match name {
                "LINE_CHANNEL_SECRET" => Some(SECRET.to_owned()),
                "LINE_CHANNEL_ACCESS_TOKEN" => Some(TOKEN.to_owned()),
                "LINE_API_BASE_URL" => Some(url.clone()),
                _ => None,
            };
            let config = Config::from_variables(&Variables::from_lookup(lookup)).unwrap();
            let fallback = fallback.map(|fallback| fallback.clone() as Arc<dyn Provider>);
            let weather = Forecasts::new(provider.clone(), fallback, ForecastAges::default());
            let config = config.with_times(PATIENT);
            webhook::on(store.clone(), Arc::new(weather), &onetap_http::Client::new(), config)
                .unwrap()
                .with_clock(|| clock().unix() * 1000)
        };
        let instances = (0..INSTANCES).map(instance).collect();
        Bot { line, instances }
    }

    /// The `n`th delivery, of these events. All are answered, and nobody with an apology.
    async fn deliver(&self, n: usize, events: &[Value]) {
        assert_eq!(deliver(&self.instances[n % INSTANCES], events).await, 200);
        let replies = self.line.take_replies();
        assert_eq!(replies.len(), events.len(), "delivery {n}: every tap is answered");
        for reply in replies {
            assert_ne!(reply.text(), BUSY, "delivery {n}");
            assert!(reply.text().contains("更新"), "delivery {n}: {}", reply.text());
        }
    }

    /// Every user asks for a forecast twice within the hours: ten users a delivery.
    async fn hours(&self) {
        let users: Vec<String> = (0..USERS).map(|_| user()).collect();
        let deliveries = 2 * USERS / 10;
        for n in 0..deliveries {
            let asks = |m: usize| {
                let place = &places::all()[(n * 7 + m * m) % TOWNSHIPS];
                text(&users[(n * 10 + m) % USERS], &place.name())
            };
            self.deliver(n, &(0..10).map(asks).collect::<Vec<_>>()).await;
            pass(HOURS * 3600 / deliveries as i64);
        }
    }
}

#[tokio::test]
async fn a_thousand_users_are_answered_by_the_fallback_while_the_provider_is_down() {
    let (provider, fallback) = (Weather::new("first"), Weather::new("second"));
    provider.goes_down();
    Bot::new(&provider, Some(&fallback)).hours().await;
    let half_hours = 2 * HOURS as usize;
    assert!(fallback.calls() <= TOWNSHIPS * half_hours, "{} calls of the fallback", fallback.calls());
    // Five failures, and then one in half a minute, in each instance.
    let most = INSTANCES * (5 + HOURS as usize * 3600 / 30);
    assert!(provider.calls() <= most.min(fallback.calls()), "{} calls of the provider", provider.calls());
    assert!(fallback.calls() >= TOWNSHIPS, "{} calls: nobody was asked", fallback.calls());
}

#[tokio::test]
async fn a_thousand_users_are_answered_from_what_is_kept_while_every_provider_is_down() {
    let provider = Weather::new("only");
    let bot = Bot::new(&provider, None);
    let asks = |place: &Place| text(&user(), &place.name());
    for (n, places) in places::all()[..TOWNSHIPS].chunks(10).enumerate() {
        bot.deliver(n, &places.iter().map(asks).collect::<Vec<_>>()).await;
    }
    assert_eq!(provider.calls(), TOWNSHIPS);
    provider.goes_down();
    let down = CLOCK.get();
    bot.hours().await;
    assert_eq!(CLOCK.get() - down, HOURS * 3600);
    let most = INSTANCES * (5 + HOURS as usize * 3600 / 30);
    assert!((1..=most).contains(&provider.calls()), "{} calls of the provider", provider.calls());
}
