//! The checks of any store: whether it answers, how quickly, and whether it keeps its promises.

use std::sync::Arc;
use std::time::Duration;

use onetap_config::Variables;
use onetap_store::lease::unique_token;
use onetap_store::{Backend, Config, open};
use onetap_store::{Batch, Commit, ErrorKind, Expect, Key, Store};
use tokio::time::Instant;

use crate::{Finding, Report, Status, dynamodb, limited, promises, redis};

pub(crate) const OF: &str = "store";
pub(crate) const REACHABLE: &str = "reachable";
pub(crate) const CREDENTIALS: &str = "credentials";
pub(crate) const CLOCK: &str = "clock";
const WRITE: &str = "write";
const LATENCY: &str = "latency";

/// Time limit for one request, far above what is acceptable: what is slow is measured, not cut off.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const ROUND_TRIPS: usize = 30;
/// Time limit for all round trips. Those that were made by then are counted.
const LATENCY_TIMEOUT: Duration = Duration::from_secs(8);

/// Bytes of a server's memory that must be left before promises are checked. They write far less; the functions go on
/// writing meanwhile.
const MIN_MEMORY_LEFT: u64 = 64 << 20;

/// Checks without which those of the store's behaviour show nothing of their own.
const BASIC: [&str; 9] = [
    REACHABLE,
    CREDENTIALS,
    CLOCK,
    redis::VERSION,
    redis::CLUSTER,
    redis::ROLE,
    dynamodb::TABLE,
    dynamodb::KEYS,
    dynamodb::RIGHTS_CHECK,
];

/// What is asked of a backend beside the calls of a [`Store`].
pub(crate) enum Service {
    /// Upstash or a Redis server.
    Redis(redis::Server),
    /// A table.
    DynamoDb(dynamodb::Table),
}

impl Service {
    /// Whether these credentials may read what is under this name.
    async fn may_read(&self, name: &str) -> bool {
        match self {
            Service::Redis(server) => server.may_read(name).await,
            Service::DynamoDb(table) => table.may_read(name).await,
        }
    }

    /// What to do where these credentials may not write.
    fn rights_remedy(&self) -> &'static str {
        match self {
            Service::Redis(server) => server.rights_remedy(),
            Service::DynamoDb(_) => {
                "Use credentials that may also write to the table (dynamodb:PutItem, dynamodb:DeleteItem)."
            }
        }
    }

    /// How many bytes the server may still take, if it has a limit and INFO contains it.
    async fn memory_left(&self) -> Option<u64> {
        match self {
            Service::Redis(server) => server.memory_left().await,
            Service::DynamoDb(_) => None,
        }
    }

    /// Removes what is under these names.
    pub(crate) async fn remove(&self, names: &[String]) -> Result<(), String> {
        match self {
            Service::Redis(server) => server.remove(names).await,
            Service::DynamoDb(table) => table.remove(names).await,
        }
    }
}

/// The store of `variables`, which `functions` use. What is not checked at the `end` is left out.
pub(crate) async fn examine(
    variables: &Variables<'_>,
    functions: &[&'static str],
    end: Instant,
    report: &mut Report,
) {
    // More time altogether is more time for each request.
    let timeout = REQUEST_TIMEOUT.max((end - Instant::now()) / 8);
    let opened = Config::from_variables(variables).and_then(|config| {
        let config = config.timeout(timeout);
        open(&config).map(|store| (config.backend(), store))
    });
    let Ok((backend, store)) = opened else {
        skip_all(report, "needs store variables");
        return;
    };
    let service = match backend {
        Backend::Upstash => redis::Server::upstash(variables).map(Service::Redis),
        Backend::Redis => redis::Server::redis(variables).map(Service::Redis),
        Backend::DynamoDb => dynamodb::Table::new(variables).map(Service::DynamoDb),
        Backend::Memory => {
            skip_all(report, "STORE=memory: there is nothing to check, and Lambda refuses it");
            return;
        }
        _ => {
            skip_all(report, "the doctor has no checks for this backend");
            return;
        }
    };
    // The variables were read above, by the store itself.
    let Ok(service) = service else {
        skip_all(report, "needs store variables");
        return;
    };
    match &service {
        Service::Redis(server) => redis::examine(server, report).await,
        Service::DynamoDb(table) => dynamodb::examine(table, functions, report).await,
    }
    behaviour(store, variables, &service, end, report).await;
}

fn skip_all(report: &mut Report, why: &str) {
    for check in [REACHABLE, CREDENTIALS, CLOCK, WRITE, LATENCY, promises::CHECK] {
        report.add(Finding::skipped(OF, check, why));
    }
}

async fn behaviour(
    store: Arc<dyn Store>,
    variables: &Variables<'_>,
    service: &Service,
    end: Instant,
    report: &mut Report,
) {
    let written = match report.first_wrong(&BASIC) {
        Some(needed) => Finding::needs(OF, WRITE, needed),
        None => {
            let name = format!("test:{}", unique_token());
            let written = limited(OF, WRITE, 2 * REQUEST_TIMEOUT, write(&*store, service, &name)).await;
            if written.status != Status::Ok {
                // It may be there, for a minute.
                let _ = tokio::time::timeout(REQUEST_TIMEOUT, service.remove(&[name])).await;
            }
            written
        }
    };
    report.add(written.clone());
    if let Service::Redis(server) = service {
        let needed = (written.status != Status::Ok).then_some(&written);
        redis::scripts(server, needed, report).await;
    }
    if written.status != Status::Ok {
        report.skip(OF, &[LATENCY, promises::CHECK], &written);
        return;
    }
    let timeout = variables.millis("STORE_TIMEOUT_MS", 500).unwrap_or(onetap_store::DEFAULT_TIMEOUT);
    let (latency, p50) = latency(&*store, timeout).await;
    report.add(latency.clone());
    // Where memory is full, what they write could take the place of something of the user's.
    let needed = report.findings().iter().find(|it| match it.check {
        redis::PUBLISH => it.status != Status::Ok,
        redis::EVICTION => it.status == Status::Warning,
        _ => false,
    });
    if let Some(needed) = needed.cloned().or((latency.status != Status::Ok).then_some(latency)) {
        return report.skip(OF, &[promises::CHECK], &needed);
    }
    report.add(match service.memory_left().await {
        Some(left) if left < MIN_MEMORY_LEFT => {
            let why = format!(
                "only {} MB of the server's memory are left, and what is checked here needs some; run the doctor where \
                 {} MB are left",
                left >> 20,
                MIN_MEMORY_LEFT >> 20
            );
            Finding::skipped(OF, promises::CHECK, why)
        }
        _ => promises::examine(store, service, p50, end).await,
    });
}

/// Writes a value under this name and removes it.
async fn write(store: &dyn Store, service: &Service, name: &str) -> Finding {
    let value = unique_token();
    let Ok(key) = Key::new(name) else { return Finding::skipped(OF, WRITE, "no name") };
    let put = Batch::new().put(&key, Expect::Absent, value.clone(), Duration::from_secs(60));
    let delete = Batch::new().delete(&key, value);
    for batch in [put, delete] {
        match store.commit(&batch).await {
            Ok(Commit::Applied(_)) => {}
            Ok(Commit::Refused(_)) => {
                let seen = "a value was not there after it was written";
                return Finding::wrong(OF, WRITE, seen, "Check that no other program removes keys.");
            }
            // They may be limited to the functions' own names. On DynamoDB each function has a check of its rights.
            Err(error) if error.kind() == ErrorKind::Rejected && !service.may_read(name).await => {
                let why = "these credentials may not use names that begin with `test:`";
                return Finding::skipped(OF, WRITE, why);
            }
            Err(error) if error.kind() == ErrorKind::Rejected => {
                return Finding::wrong(OF, WRITE, error.to_string(), service.rights_remedy());
            }
            Err(error) => {
                let remedy = "Look at the service's status page, its memory, and what is left of its plan.";
                return Finding::wrong(OF, WRITE, error.to_string(), remedy);
            }
        }
    }
    Finding::ok(OF, WRITE, "a value was written and removed")
}

/// The time of round trips, which are reads of a key that is not there, and its median.
async fn latency(store: &dyn Store, timeout: Duration) -> (Finding, Duration) {
    let Ok(key) = Key::new(format!("test:{}", unique_token())) else {
        return (Finding::skipped(OF, LATENCY, "no name"), Duration::ZERO);
    };
    let mut times = Vec::new();
    let end = Instant::now() + LATENCY_TIMEOUT;
    while times.len() < ROUND_TRIPS && Instant::now() < end {
        let start = Instant::now();
        if let Err(error) = store.get(&key).await {
            let remedy = "Look at the service's status page and the network between, and run this again.";
            return (Finding::wrong(OF, LATENCY, error.to_string(), remedy), Duration::ZERO);
        }
        times.push(start.elapsed());
    }
    times.sort();
    (judge(&times, timeout), percentile(&times, 50))
}

fn percentile(sorted: &[Duration], n: usize) -> Duration {
    sorted.get((sorted.len() * n).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}

fn judge(times: &[Duration], timeout: Duration) -> Finding {
    let (p50, p95) = (percentile(times, 50), percentile(times, 95));
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    let seen = format!(
        "p50 {}, p95 {} of {} round trips; the time limit is {} ms",
        millis(p50),
        millis(p95),
        times.len(),
        timeout.as_millis()
    );
    if p95 <= timeout / 2 {
        return Finding::ok(OF, LATENCY, seen);
    }
    let remedy = "Move the store into the region of the functions, or raise STORE_TIMEOUT_MS (if this is not the \
                  functions' region, run the doctor there).";
    if p95 > timeout {
        Finding::wrong(OF, LATENCY, seen, remedy)
    } else {
        Finding::warning(OF, LATENCY, seen, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_judged_against_half_of_the_time_limit() {
        let millis =
            |times: &[u64]| times.iter().map(|time| Duration::from_millis(*time)).collect::<Vec<_>>();
        let status = |times: &[u64]| judge(&millis(times), Duration::from_millis(500)).status;
        assert_eq!(status(&[10; 30]), Status::Ok);
        let one_slow: Vec<u64> = [10; 29].into_iter().chain([400]).collect();
        assert_eq!(status(&one_slow), Status::Ok);
        assert_eq!(status(&[251; 30]), Status::Warning);
        assert_eq!(status(&[501; 30]), Status::Wrong);
        let seen = judge(&millis(&[1, 2, 3, 4]), Duration::from_millis(500)).seen;
        assert!(seen.starts_with("p50 2.0 ms, p95 4.0 ms of 4 round trips"), "{seen}");
    }
}
