//! The first tap after a cold start, with TLS and a round trip of 30 ms between the webhook and everything else: its connections
//! opened while it starts, or not; against a tap of the same process once it is warm. And a tap whose forecast is kept, against
//! one that fetches it.

use std::path::Path;
use std::time::Duration;

use onetap_config::Secret;
use onetap_line::testing::MessagingApi;
use onetap_servers::{Fault, HttpStub};
use onetap_store::{Batch, Expect, Key, Ttl};
use onetap_weather::{Moment, places};

use super::{Bench, example};
use crate::Result;
use crate::distant::{Distance, Identity};
use crate::programs::{ACCESS_TOKEN, Numbers, Program, function, tap};
use crate::report::{Row, Target, Unit};
use crate::runtime_api::Function;
use crate::slow::Share;

const SECTION: &str = "first tap";
const ROOT: &str = "target/bench/root.der";
const WEATHER: &str = "shared/weather/tests/fixtures/open-meteo.json";
/// From the webhook to everything.
const ROUND_TRIP: Duration = Duration::from_millis(30);
/// From another continent to LINE.
const ROUND_TRIP_TO_FAR_LINE: Duration = Duration::from_millis(100);

/// When the connections are opened, and whether `main.rs` does it so.
const WAYS: [(&str, bool); 3] = [
    ("not warmed up", false),
    ("warmed up before the first poll", false),
    ("warmed up beside the first poll", true),
];

/// A condition of the cold starts: its name, the way to LINE, and whether the function has a seventh of a core once it polls.
const CONDITIONS: [(&str, Duration, bool); 3] = [
    ("full speed", ROUND_TRIP, false),
    ("a seventh of a core", ROUND_TRIP, true),
    ("LINE 100 ms away", ROUND_TRIP_TO_FAR_LINE, false),
];

/// What was seen of a cold start, in milliseconds.
struct Seen {
    /// From exec to the first poll.
    poll: f64,
    /// From the first tap's event to its answer.
    first: f64,
    /// From another tap's event to its answer.
    warm: f64,
    /// The same of a tap that finds the forecast of the one before it, in the process.
    in_process: f64,
    /// The same of a tap that finds the forecast of another process, in the store.
    in_store: f64,
}

/// One of the times that were seen.
type Figure = fn(&Seen) -> f64;

/// Where a kept forecast is, and what its tap took.
const KEPT: [(&str, Figure); 2] =
    [("in the process", |seen| seen.in_process), ("in the store", |seen| seen.in_store)];

/// Starts the webhook in turns, under every condition that can be had.
pub fn run(bench: &mut Bench) -> Result<()> {
    let name = |way: &str, condition: &str| format!("webhook, {way}, {condition}: exec to first answer");
    let kept = |place: &str, condition: &str| format!("webhook, a forecast kept {place}, {condition}: a tap");
    let wanted = |condition: &str| {
        let kept = KEPT.iter().map(|(place, _)| kept(place, condition));
        let mut names = WAYS.iter().map(|(way, _)| name(way, condition)).chain(kept);
        names.any(|name| bench.wants(SECTION, &name))
    };
    let wanted: Vec<_> = CONDITIONS.iter().filter(|(condition, ..)| wanted(condition)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let line = MessagingApi::start(Secret::new(ACCESS_TOKEN))?;
    let weather = HttpStub::always(Fault::Status(200, forecast_of_today()?));
    let identity = Identity::new()?;
    std::fs::write(ROOT, &identity.certificate)?;
    let distance = Distance::new(identity)?;
    let mut store = bench.variables("upstash")?;
    for (_, url) in store.iter_mut().filter(|(name, _)| name == "UPSTASH_REDIS_REST_URL") {
        *url = distance.to(url, ROUND_TRIP)?;
    }
    let weather_url = distance.to(&weather.url(), ROUND_TRIP)?;
    let mut users = Users::new(bench)?;
    let mut rows = Vec::new();
    for (condition, way_to_line, is_slow) in wanted {
        let share = is_slow.then(Share::new).flatten();
        if *is_slow && share.is_none() {
            bench.say("no control group can be had: the rows with a seventh of a core are left out");
            continue;
        }
        let mut program =
            function("webhook", Path::new(""), &store, &distance.to(&line.url(), *way_to_line)?)?;
        program.path = example("distant_webhook");
        program.variables.retain(|(name, _)| name != "WEATHER_PROVIDER");
        let own =
            [("WEATHER_PROVIDER", "open-meteo"), ("OPEN_METEO_BASE_URL", &weather_url), ("BENCH_ROOT", ROOT)];
        program.variables.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let start = |way: &str, users: &mut Users| {
            let mut program = program.clone();
            program.variables.push(("BENCH_WARM_UP".to_owned(), way.to_owned()));
            cold_start(&program, share.as_ref(), users)
        };
        // Not measured: it leaves a forecast in the store for the next one.
        start(WAYS[0].0, &mut users)?;
        let mut seen: [Vec<Seen>; WAYS.len()] = Default::default();
        for round in 0..bench.options.either(5, 15) {
            bench.say(&format!("first taps, {condition}: round {}", round + 1));
            for ((way, _), seen) in WAYS.iter().zip(&mut seen) {
                seen.push(start(way, &mut users)?);
            }
        }
        for ((way, deployed), seen) in WAYS.iter().zip(seen) {
            let name = name(way, condition);
            let against_warm = |figure: Figure| seen.iter().map(|s| (figure(s), s.warm)).collect::<Vec<_>>();
            let whole = against_warm(|seen| seen.poll + seen.first);
            let row = Row::compared(SECTION, name, Unit::Millis, "a warm tap", &whole);
            let row = row.detail("from its event", Unit::Millis, &against_warm(|seen| seen.first));
            rows.push(if *deployed { row.target(Target::RatioAtMost(1.3)) } else { row });
            if *deployed {
                for (place, tap) in KEPT {
                    let (name, both) = (kept(place, condition), against_warm(tap));
                    rows.push(Row::compared(SECTION, name, Unit::Millis, "one that fetches", &both));
                }
            }
        }
    }
    rows.retain(|row| bench.wants(SECTION, &row.name));
    bench.rows.extend(rows);
    Ok(())
}

/// What the weather provider answers: the fixture, with the dates of today and tomorrow. A forecast of the past is not kept.
fn forecast_of_today() -> Result<String> {
    let today = Moment::now();
    let [today, tomorrow] = [today, today.plus_hours(24)].map(|day| day.date().to_string());
    let fixture = std::fs::read_to_string(WEATHER)?;
    Ok(fixture.replace("2026-03-02", &tomorrow).replace("2026-03-01", &today))
}

/// Starts the webhook, in the control group if there is one, and taps. It gets its event after its first poll, so that it can be
/// slowed down in between.
fn cold_start(program: &Program, share: Option<&Share>, users: &mut Users) -> Result<Seen> {
    let Program { path, variables, good, .. } = program;
    share.map_or(Ok(()), Share::full_speed)?;
    let processes = share.map_or_else(|| "/dev/null".into(), Share::processes);
    let mut function = Function::start_in_group(path, &processes, variables, good)?;
    let poll = function.first_poll()?;
    share.map_or(Ok(()), Share::slow_down)?;
    let first = function.invoke(&[users.tap()?])?;
    let warm = function.invoke(&[users.tap()?])?;
    let in_process = function.invoke(&[users.neighbours_tap()?])?;
    let in_store = function.invoke(&[users.tap_after_another_process()?])?;
    let [poll, first, warm, in_process, in_store] =
        [poll, first, warm, in_process, in_store].map(|time| time.as_secs_f64() * 1e3);
    users.end_process();
    Ok(Seen { poll, first, warm, in_process, in_store })
}

/// Users, each with a home in another township: no tap finds a forecast that another has fetched. And two neighbours of each.
struct Users {
    next: u64,
    last: u64,
    /// Whose forecast the process before has fetched.
    before: u64,
}

impl Users {
    fn new(bench: &Bench) -> Result<Users> {
        let first = Numbers::FirstTap.first();
        let places = places::all();
        let variables = bench.variables("upstash")?;
        let lookup = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, v)| v.clone());
        let store = onetap_store::open(&onetap_store::Config::from_lookup(lookup)?)?;
        for (number, place) in (first..).zip(places.iter().cycle().take(3 * places.len())) {
            let key = Key::new(format!("user:U{number:032x}:profile"))?;
            let profile = serde_json::json!({ "home": place.name() }).to_string();
            let _ = bench.block_on(store.commit(&Batch::new().put(
                &key,
                Expect::Absent,
                profile,
                Ttl::Forever,
            )))?;
        }
        Ok(Users { next: first, last: first + places.len() as u64, before: first })
    }

    /// A tap of the next of them.
    fn tap(&mut self) -> Result<Vec<u8>> {
        self.next += 1;
        if self.next > self.last {
            return Err("more taps than townships".into());
        }
        tap(self.next - 1)
    }

    /// A tap of somebody in the township of the last one.
    fn neighbours_tap(&self) -> Result<Vec<u8>> {
        tap(self.next - 1 + places::all().len() as u64)
    }

    /// A tap of somebody in a township whose forecast the process before has fetched.
    fn tap_after_another_process(&self) -> Result<Vec<u8>> {
        tap(self.before + 2 * places::all().len() as u64)
    }

    fn end_process(&mut self) {
        self.before = self.next - 1;
    }
}
