//! A run on servers: clients in processes of their own, each with its own link, and two lanes of faults.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::arena::{Arena, Backend};
use super::client::Plan;
use super::history::History;
use super::journal::{Clock, Journal};
use super::link::{Link, Mode};
use super::process::{Member, Orders};
use super::run::{LEASE, Outcome, look, plan};
use super::schedule::{Kind, Lane, Planned};
use super::seed::Seed;

const PROCESSES: usize = 4;
/// How many clients work in a process.
const TASKS: u64 = 2;
/// In its first round each lane has half of the kinds, about equally long, so that a short run has all of them.
const FIRST_ROUND: [[Kind; 4]; 2] = [
    [Kind::Restarted, Kind::Skewed, Kind::RequestLost, Kind::Killed],
    [Kind::Delayed, Kind::Stopped, Kind::ReplyLost, Kind::Reset],
];

/// Runs clients on `backend` for `length`, with the faults that follow from `seed`.
pub async fn on_servers(backend: Backend, seed: u64, length: Duration) -> Outcome {
    let arena = Arena::start(backend).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut links = Vec::new();
    for _ in 0..PROCESSES {
        links.push(Arc::new(Link::to(arena.server()).await));
    }
    let arena = Arc::new(tokio::sync::Mutex::new(arena));
    let shared = Arc::new(Shared {
        seed: Seed::new(seed),
        plan: plan(Clock::Machine, length),
        folder: folder.path().to_owned(),
        arena: Arc::clone(&arena),
        links,
    });
    let lanes: Vec<_> =
        (0..2).map(|lane| tokio::spawn(lane_of_faults(lane, backend, shared.clone()))).collect();
    for lane in lanes {
        lane.await.expect("the faults come to their end");
    }
    for link in &shared.links {
        link.reset();
    }
    // What is still on its way lands now.
    sleep(Duration::from_millis(500)).await;
    let mut history = History::default();
    let mut files: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    files.sort_by_key(std::fs::DirEntry::path);
    for file in files {
        history.add(&std::fs::read_to_string(file.path()).expect("a journal can be read"));
    }
    look(&mut history, arena.lock().await.store(), Clock::Machine).await;
    Outcome::new(backend, seed, history)
}

/// What both lanes know.
struct Shared {
    seed: Seed,
    plan: Plan,
    folder: PathBuf,
    arena: Arc<tokio::sync::Mutex<Arena>>,
    links: Vec<Arc<Link>>,
}

/// A place for a client process, which may be taken by several in turn.
struct Place {
    n: usize,
    shared: Arc<Shared>,
    incarnation: u64,
    member: Member,
}

impl Place {
    async fn new(n: usize, shared: Arc<Shared>) -> Place {
        let member = Place::member(n, 0, 0, &shared).await;
        Place { n, shared, incarnation: 0, member }
    }

    async fn member(n: usize, incarnation: u64, skew: i64, shared: &Shared) -> Member {
        let mut seed = shared.seed.fork(n as u64).fork(incarnation);
        // Some give up before a late answer comes, some wait for it.
        let limit = if seed.percent(50) { LEASE / 3 } else { LEASE * 3 };
        let name = format!("client {n}.{incarnation}");
        let journal = shared.folder.join(format!("{n}.{incarnation:04}.jsonl"));
        let orders =
            Orders { name, seed: seed.next(), skew, tasks: TASKS, journal, plan: shared.plan.clone() };
        let variables = shared.arena.lock().await.variables(&shared.links[n], limit);
        Member::start(&orders, &variables)
    }

    async fn kill_and_replace(&mut self, skew: i64) {
        self.member.kill();
        self.incarnation += 1;
        self.member = Place::member(self.n, self.incarnation, skew, &self.shared).await;
    }
}

/// Clients, and one fault after the other that happens to one of them, until the run ends.
async fn lane_of_faults(lane: usize, backend: Backend, shared: Arc<Shared>) {
    let mut places = Vec::new();
    for n in (lane..PROCESSES).step_by(2) {
        places.push(Place::new(n, Arc::clone(&shared)).await);
    }
    let file = shared.folder.join(format!("faults.{lane}.jsonl"));
    let journal = Journal::in_file(&file, "faults", 0).expect("a journal");
    let mut kinds = Kind::on(backend);
    // Of a server there is one.
    kinds.retain(|kind| *kind != Kind::Restarted || lane == 0);
    let first = FIRST_ROUND[lane].into_iter().filter(|kind| kinds.contains(kind)).collect();
    let mut faults = Lane::new(shared.seed.fork(1000 + lane as u64), first, kinds, LEASE / 2);
    sleep(LEASE / 2).await;
    loop {
        let fault = faults.next_fault();
        sleep(fault.pause).await;
        // The longest takes three leases, and the last must find its client alive.
        if Clock::Machine.now() + 4 * 1_000_000 * LEASE.as_millis() as u64 / 1000 > shared.plan.end {
            break;
        }
        let from = Clock::Machine.now();
        let place = (fault.draw % places.len() as u64) as usize;
        inject(&shared, &mut places[place], fault).await;
        journal.fault(fault.kind.name(), from);
    }
    for place in &mut places {
        place.member.ended().await;
    }
}

/// Resets every connection; half the time nobody gets a new one for a moment, so that what is sent again finds no way.
async fn break_off(link: &Link, draw: &mut Seed) {
    if draw.percent(50) {
        link.set(Mode::Closed);
        link.reset();
        sleep(draw.up_to(Duration::from_millis(60))).await;
    } else {
        link.reset();
    }
    link.set(Mode::Open);
}

async fn inject(shared: &Shared, place: &mut Place, fault: Planned) {
    let mut draw = Seed::new(fault.draw);
    let link = Arc::clone(&shared.links[place.n]);
    let past_the_lease = LEASE + LEASE / 10 + draw.up_to(LEASE / 2);
    match fault.kind {
        Kind::RequestLost | Kind::ReplyLost => {
            let lost = fault.kind == Kind::RequestLost;
            link.set(if lost { Mode::LoseRequests } else { Mode::LoseAnswers });
            sleep(Duration::from_millis(50) + draw.up_to(LEASE)).await;
            break_off(&link, &mut draw).await;
        }
        Kind::Delayed => {
            link.set(Mode::HoldRequests);
            sleep(past_the_lease).await;
            link.set(Mode::Open);
        }
        Kind::Reset => {
            for _ in 0..5 {
                break_off(&link, &mut draw).await;
                sleep(draw.up_to(Duration::from_millis(40))).await;
            }
        }
        Kind::Killed => place.kill_and_replace(0).await,
        Kind::Stopped => {
            place.member.stop();
            sleep(past_the_lease).await;
            place.member.go_on();
        }
        Kind::Restarted => {
            let outage = LEASE / 4 + draw.up_to(LEASE / 2);
            shared.arena.lock().await.restart(&shared.links, outage).await;
        }
        Kind::Skewed => {
            let lease = i64::try_from(LEASE.as_millis()).unwrap_or(0) + 50;
            place.kill_and_replace(if draw.percent(50) { lease } else { -lease }).await;
            sleep(LEASE * 3).await;
            place.kill_and_replace(0).await;
        }
    }
}
