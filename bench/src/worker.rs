//! Our contestant: makes calls through the API, over bare sockets and through the `redis` crate, in one process and one thread, as on Lambda.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::bare::{Connection, Script, id};
use crate::multiplexed::{self, Commands};
use crate::orders::{Answer, Call, Counted, Measure, Measured, Order, Side};
use crate::ours::{Ours, given};
use crate::recorder::{Exchange, Recorder, counted};
use crate::stats::quantile;
use crate::{Error, Result};

/// A store's variables, as a function would get them.
pub type Variables = HashMap<String, String>;

/// Ids of what is used again lie above all others.
const LASTING: u64 = 900_000_000_000;
/// Added to the id of a ledger of many months, so that the ledger of one month is another.
const MANY_MONTHS: u64 = 1_000_000;

/// The worker: stores by name, each opened when it is first asked for.
#[derive(Debug)]
pub struct Worker {
    variables: HashMap<String, Variables>,
    stores: HashMap<String, Arc<Ours>>,
    scripts: HashMap<(String, Call), Script>,
    connections: HashMap<String, Vec<Connection>>,
    next: u64,
}

impl Worker {
    /// A worker on these stores.
    pub fn new(variables: HashMap<String, Variables>) -> Worker {
        // New ids in every process, as long as none makes a million calls a second.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let next = u64::try_from(now.as_micros()).unwrap_or_default() % (LASTING / 2);
        Worker {
            variables,
            stores: HashMap::new(),
            scripts: HashMap::new(),
            connections: HashMap::new(),
            next,
        }
    }

    /// Does as it is told.
    pub async fn obey(&mut self, order: &Order) -> Answer {
        let answer = match order {
            Order::Measure(measure) => self.measure(measure).await.map(Answer::Measured),
            Order::Count { call, store } => self.count(*call, store).await.map(Answer::Counted),
        };
        answer.unwrap_or_else(|error| Answer::Failed(error.to_string()))
    }

    async fn measure(&mut self, order: &Measure) -> Result<Vec<Measured>> {
        let mut sides: Vec<Tally> = order.sides.iter().map(|_| Tally::default()).collect();
        // A server closes what was idle for long (Amazon's local edition after half a minute).
        self.connections.clear();
        // One unmeasured block of each side: both are warm.
        for block in 0..=order.blocks {
            for (side, tally) in order.sides.iter().zip(&mut sides) {
                let mut block_tally = Tally::default();
                self.block(order, *side, &mut block_tally).await?;
                if block > 0 || order.blocks == 0 {
                    tally.add(block_tally);
                }
            }
        }
        Ok(sides.into_iter().map(Tally::measured).collect())
    }

    /// So many calls, spread over so many callers.
    async fn block(&mut self, order: &Measure, side: Side, tally: &mut Tally) -> Result<()> {
        let call = order.call;
        let ours = self.store(&order.store)?;
        let each = order.calls.div_ceil(order.callers);
        let mut plans = Vec::new();
        for caller in 0..order.callers {
            let ids: Vec<String> = (0..each).map(|_| self.id_for(call, caller)).collect();
            let prepared = if lasts(call) { 1 } else { ids.len() };
            for id in &ids[..prepared] {
                ours.prepare(call, id).await?;
            }
            plans.push(ids);
        }
        match side {
            Side::Ours => {
                let callers = plans.into_iter().map(|ids| {
                    let ours = Arc::clone(&ours);
                    let given = ids.iter().map(|id| given(call, id)).collect::<Result<Vec<_>>>()?;
                    Ok(async move {
                        let mut took = Vec::with_capacity(ids.len());
                        for (n, (id, given)) in ids.iter().zip(given).enumerate() {
                            let start = Instant::now();
                            ours.make(call, id, n, given).await?;
                            took.push(start.elapsed());
                        }
                        Ok::<_, Error>(took)
                    })
                });
                tally.time(callers.collect::<Result<Vec<_>>>()?.into_iter()).await
            }
            Side::Bare => {
                let script = self.script(call, &order.store).await?;
                let mut connections = self.connections.remove(&order.store).unwrap_or_default();
                while connections.len() < order.callers {
                    connections.push(Connection::open(&self.address(&order.store)?).await?);
                }
                let rest = connections.split_off(order.callers);
                let callers = plans.into_iter().zip(connections).map(|(ids, mut connection)| {
                    let mut script = script.clone();
                    async move {
                        let mut took = Vec::with_capacity(ids.len());
                        for id in &ids {
                            let start = Instant::now();
                            connection.say(&mut script, id).await?;
                            took.push(start.elapsed());
                        }
                        Ok::<_, Error>((took, connection))
                    }
                });
                let used = tally.time_with(callers).await?;
                self.connections.insert(order.store.clone(), used.into_iter().chain(rest).collect());
                Ok(())
            }
            Side::Multiplexed => {
                let some = self.id_for(call, 0);
                let commands = Commands::new(self.script(call, &order.store).await?, &some)?;
                let connection = multiplexed::connect(&self.address(&order.store)?).await?;
                let callers = plans.into_iter().map(|ids| {
                    let (mut commands, mut connection) = (commands.clone(), connection.clone());
                    async move {
                        let mut took = Vec::with_capacity(ids.len());
                        for id in &ids {
                            let start = Instant::now();
                            commands.make(&mut connection, id).await?;
                            took.push(start.elapsed());
                        }
                        Ok::<_, Error>(took)
                    }
                });
                tally.time(callers).await
            }
        }
    }

    async fn count(&mut self, call: Call, store: &str) -> Result<Counted> {
        let id = self.id_for(call, 0);
        Ok(counted(&self.record(call, store, &id).await?))
    }

    /// What the call sends, and what it is answered.
    async fn record(&mut self, call: Call, store: &str, id: &str) -> Result<Vec<Exchange>> {
        let recorder = Recorder::start(&self.address(store)?)?;
        let variables = self.variables(store)?.clone();
        let place = place_of(store, &variables)?;
        let address = self.address(store)?;
        let through = recorder.address();
        let ours = Ours::open(|name| {
            let value = variables.get(name)?;
            Some(if name == place { value.replace(&address, &through) } else { value.clone() })
        })?;
        // The first call connects and brings the script along.
        let warm = if reads_log(call) { id.to_owned() } else { self.fresh() };
        ours.prepare(call, &warm).await?;
        ours.make(call, &warm, 0, given(call, &warm)?).await?;
        ours.prepare(call, id).await?;
        recorder.take();
        ours.make(call, id, 0, given(call, id)?).await?;
        Ok(recorder.take())
    }

    async fn script(&mut self, call: Call, store: &str) -> Result<Script> {
        let name = (store.to_owned(), call);
        if let Some(script) = self.scripts.get(&name) {
            return Ok(script.clone());
        }
        // Where a log is read in pages, the requests name positions that only this log has.
        let id = if reads_log(call) { self.id_for(call, 0) } else { self.fresh() };
        let script = Script::new(&self.record(call, store, &id).await?, &id)?;
        self.scripts.insert(name, script.clone());
        Ok(script)
    }

    fn id_for(&mut self, call: Call, caller: usize) -> String {
        match call {
            Call::PutAmongMonths => id(LASTING + MANY_MONTHS + caller as u64),
            call if lasts(call) => id(LASTING + caller as u64),
            _ => self.fresh(),
        }
    }

    fn fresh(&mut self) -> String {
        self.next += 1;
        id(self.next)
    }

    fn variables(&self, store: &str) -> Result<&Variables> {
        self.variables.get(store).ok_or_else(|| format!("no store {store}").into())
    }

    fn store(&mut self, name: &str) -> Result<Arc<Ours>> {
        if let Some(ours) = self.stores.get(name) {
            return Ok(Arc::clone(ours));
        }
        let variables = self.variables(name)?.clone();
        let ours = Arc::new(Ours::open(|variable| variables.get(variable).cloned())?);
        self.stores.insert(name.to_owned(), Arc::clone(&ours));
        Ok(ours)
    }

    /// Where the store's server listens, `host:port`.
    fn address(&self, store: &str) -> Result<String> {
        let variables = self.variables(store)?;
        let url = &variables[place_of(store, variables)?];
        let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        Ok(rest.trim_end_matches('/').to_owned())
    }
}

/// Whether all of a caller's calls are under one id.
fn lasts(call: Call) -> bool {
    matches!(call, Call::Get | Call::Replay | Call::Put | Call::PutAmongMonths | Call::BatchAgain)
        || reads_log(call)
}

/// Whether the call reads a log.
fn reads_log(call: Call) -> bool {
    matches!(
        call,
        Call::Month | Call::LargeMonth | Call::SmallStatement | Call::Statement | Call::LargeStatement
    )
}

/// The variable that says where the server is.
fn place_of(store: &str, variables: &Variables) -> Result<&'static str> {
    let places = ["REDIS_URL", "UPSTASH_REDIS_REST_URL", "AWS_ENDPOINT_URL_DYNAMODB"];
    let place = places.into_iter().find(|place| variables.contains_key(*place));
    place.ok_or_else(|| format!("the store {store} has no address").into())
}

#[derive(Default)]
struct Tally {
    took: Vec<f64>,
    elapsed: Duration,
    cpu: Duration,
}

impl Tally {
    async fn time<C>(&mut self, callers: impl Iterator<Item = C>) -> Result<()>
    where
        C: Future<Output = Result<Vec<Duration>>> + Send + 'static,
    {
        self.time_with(callers.map(|caller| async { Ok((caller.await?, ())) })).await.map(|_| ())
    }

    async fn time_with<C, R>(&mut self, callers: impl Iterator<Item = C>) -> Result<Vec<R>>
    where
        C: Future<Output = Result<(Vec<Duration>, R)>> + Send + 'static,
        R: Send + 'static,
    {
        let callers: Vec<C> = callers.collect();
        let (start, cpu) = (Instant::now(), cpu());
        let callers: Vec<_> = callers.into_iter().map(tokio::spawn).collect();
        let mut rest = Vec::new();
        let mut all = Vec::new();
        for caller in callers {
            let (took, one) = caller.await??;
            all.push(took);
            rest.push(one);
        }
        self.elapsed += start.elapsed();
        self.cpu += self::cpu().saturating_sub(cpu);
        self.took.extend(all.iter().flatten().map(|took| took.as_secs_f64() * 1e6));
        Ok(rest)
    }

    fn add(&mut self, other: Tally) {
        self.took.extend(other.took);
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
    }

    fn measured(mut self) -> Measured {
        let mut quantile = |part| quantile(&mut self.took, part);
        let (p50, p95, p99) = (quantile(0.5), quantile(0.95), quantile(0.99));
        let (elapsed, cpu) = (self.elapsed.as_secs_f64(), self.cpu.as_secs_f64());
        Measured { calls: self.took.len(), elapsed, cpu, p50, p95, p99 }
    }
}

/// The processor time of this process's threads so far, as the scheduler counts it.
fn cpu() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ledgers_of_one_month_and_of_many_and_months_of_many_entries_leave_each_other_alone() {
        let memory: Variables = [("STORE".to_owned(), "memory".to_owned())].into();
        let mut worker = Worker::new([("memory".to_owned(), memory)].into());
        for (call, months) in [(Call::Put, 1), (Call::PutAmongMonths, 36), (Call::SmallStatement, 1)] {
            let store = "memory".to_owned();
            let order = Measure { call, store, callers: 1, calls: 3, blocks: 1, sides: vec![Side::Ours] };
            assert_eq!(worker.measure(&order).await.unwrap()[0].calls, 3);
            let id = worker.id_for(call, 0);
            assert_eq!(worker.store("memory").unwrap().months(&id).await.unwrap(), months);
        }
    }
}
