//! A job, and the names of its keys, logs and channel. They are the names that the Python programs use
//! (`docs/migrating.md`), so that both can run on one Redis.

use std::fmt;

use md5::{Digest, Md5};
use onetap_store::{Channel, Error, Key, Log, Store};

use crate::event::EventNumber;
use crate::{Malformed, Stages};

/// Records in one read of a log.
pub(crate) const PAGE_SIZE: usize = 100;
/// Markers that are read at once, to know whether a job has ended.
const MAX_FINAL_MARKERS: usize = 100;

/// Domains that would collide with other keys.
const RESERVED_DOMAINS: [&str; 5] = ["user", "processing", "idem", "published", "router"];

/// A job of a domain. `Debug` does not show the id, which may be personal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Job {
    domain: String,
    id: String,
}

/// What a key holds, for the store's metrics: `state` or `other`.
pub fn key_kind(key: &Key) -> &'static str {
    match key.as_str().split_once(':') {
        // These are never the domain of a job, and a job may be called `state`.
        Some(("user" | "processing" | "idem" | "published" | "router", _)) => "other",
        Some((_, rest)) if rest.starts_with("state:") => "state",
        _ => "other",
    }
}

impl Job {
    /// A job with these names, or what is wrong with them.
    pub fn new(domain: impl Into<String>, id: impl Into<String>) -> Result<Job, Malformed> {
        let job = Job { domain: domain.into(), id: id.into() };
        let problems: Vec<_> =
            [id_problem(&job.id), domain_problem(&job.domain)].into_iter().flatten().collect();
        if problems.is_empty() { Ok(job) } else { Err(Malformed::new(problems)) }
    }

    /// The domain. Every name of the job has it, except the markers.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The shard of the job, of `count`: the MD5 of the id as a big-endian number, modulo `count`.
    ///
    /// ```
    /// # fn main() -> Result<(), onetap_bus::Malformed> {
    /// assert_eq!(onetap_bus::Job::new("scan", "job-1")?.shard(4), 0);
    /// # Ok(()) }
    /// ```
    pub fn shard(&self, count: u64) -> u64 {
        let hash = u128::from_be_bytes(Md5::digest(self.id.as_bytes()).into());
        // The remainder of a division by a u64 fits a u64.
        u64::try_from(hash % u128::from(count.max(1))).unwrap_or_default()
    }

    /// The event with the job's highest sequence number, until its TTL ends.
    pub async fn state(&self, store: &dyn Store) -> Result<Option<String>, Error> {
        store.get(&self.state_key()?).await
    }

    /// Reads the job's log from its beginning until `found` returns something of an event.
    pub(crate) async fn find<T>(
        &self,
        store: &dyn Store,
        found: impl Fn(EventNumber) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let (log, mut after) = (self.log()?, None);
        loop {
            let page = store.read(&log, after, PAGE_SIZE).await?;
            let mut events = page.iter().filter_map(|record| EventNumber::of(&record.text));
            let first = events.find_map(&found);
            if first.is_some() || page.len() < PAGE_SIZE {
                return Ok(first);
            }
            after = page.last().map(|record| record.position);
        }
    }

    /// Whether there is a marker of an event that ends the job. It may be that of an earlier run, because markers can
    /// outlive the log, or of an event that was no end in the table of its time. If too many sequence numbers end a job,
    /// no marker is read.
    pub(crate) async fn may_have_ended(&self, store: &dyn Store, stages: &Stages) -> Result<bool, Error> {
        let seqs = stages.final_seqs().take(MAX_FINAL_MARKERS + 1);
        let markers: Vec<Key> = seqs.map(|seq| self.router(seq)).collect::<Result<_, _>>()?;
        Ok(markers.len() > MAX_FINAL_MARKERS || store.get_all(&markers).await?.iter().any(Option::is_some))
    }

    /// Whether the log has an event that ends the job.
    pub(crate) async fn has_ended(&self, store: &dyn Store, stages: &Stages) -> Result<bool, Error> {
        let end = |number: EventNumber| number.is_final(stages).then_some(());
        Ok(self.find(store, end).await?.is_some())
    }

    pub(crate) fn stream(&self, shards: u64) -> Result<Log, Error> {
        Log::new(format!("{}:events:{}", self.domain, self.shard(shards)))
    }

    pub(crate) fn log(&self) -> Result<Log, Error> {
        Log::new(format!("{}:job:{}", self.domain, self.id))
    }

    pub(crate) fn state_key(&self) -> Result<Key, Error> {
        Key::new(format!("{}:state:{}", self.domain, self.id))
    }

    pub(crate) fn channel(&self) -> Result<Channel, Error> {
        Channel::new(format!("{}:events:{}", self.domain, self.id))
    }

    /// The event's marker: it exists once the event is appended.
    pub(crate) fn published(&self, stage: &str, seq: u64) -> Result<Key, Error> {
        Key::new(format!("published:{}:{stage}:{seq}", self.id))
    }

    /// The router's marker: it exists once the event is published on the job's channel.
    pub(crate) fn router(&self, seq: u64) -> Result<Key, Error> {
        Key::new(format!("router:published:{}:{seq}", self.id))
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({}, {} bytes)", self.domain, self.id.len())
    }
}

pub(crate) fn id_problem(id: &str) -> Option<&'static str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._:-".contains(&b);
    let fits = (1..=128).contains(&id.len()) && id.bytes().all(plain);
    (!fits).then_some("job_id is not 1 to 128 of A-Z a-z 0-9 . _ : -")
}

pub(crate) fn domain_problem(domain: &str) -> Option<&'static str> {
    if RESERVED_DOMAINS.contains(&domain) {
        return Some("domain is reserved: user, processing, idem, published or router");
    }
    (!is_name(domain)).then_some("domain is not 1 to 32 of a-z 0-9 _ -")
}

/// Whether a domain or a stage may have this name: 1 to 32 of `a-z 0-9 _ -`.
pub(crate) fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    (1..=32).contains(&text.len()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_the_md5_as_a_big_endian_number_modulo_the_count() {
        let shard = |id: &str, count| Job::new("scan", id).unwrap().shard(count);
        // Python: int(hashlib.md5(b"job-1").hexdigest(), 16) % n
        assert_eq!([1, 2, 3, 4, 7, 10, 1000].map(|n| shard("job-1", n)), [0, 0, 2, 0, 4, 6, 996]);
        assert_eq!([1, 2, 3, 4, 5].map(|n| shard(&format!("job-{n}"), 4)), [0, 3, 2, 3, 2]);
        assert_eq!(shard("job-1", 0), 0, "no streams, no division by nothing");
    }

    #[test]
    fn a_job_has_the_names_of_the_seed() {
        let job = Job::new("scan", "job-1").unwrap();
        assert_eq!(job.stream(4).unwrap().as_str(), "scan:events:0");
        assert_eq!(job.log().unwrap().as_str(), "scan:job:job-1");
        assert_eq!(job.state_key().unwrap().as_str(), "scan:state:job-1");
        assert_eq!(job.channel().unwrap().as_str(), "scan:events:job-1");
        assert_eq!(job.published("vision", 10).unwrap().as_str(), "published:job-1:vision:10");
        assert_eq!(job.router(10).unwrap().as_str(), "router:published:job-1:10");
    }

    #[test]
    fn names_that_could_be_others_are_refused() {
        for domain in ["", "Scan", "scan:x", "scan{", "s can", &"x".repeat(33), "user", "processing", "idem"]
        {
            assert!(Job::new(domain, "job-1").is_err(), "{domain}");
        }
        for id in ["", "a{b}", "a\nb", "a b", "a/b", "é", &"x".repeat(129)] {
            assert!(Job::new("scan", id).is_err(), "{id}");
        }
        assert!(Job::new(["x"; 32].concat(), ["x"; 128].concat()).is_ok());
        assert!(Job::new("scan_2-b", "A9._:-").is_ok());
        assert_eq!(Job::new("router", "{").unwrap_err().problems().len(), 2, "each wrong thing is named");
    }

    #[test]
    fn debug_shows_no_id() {
        assert_eq!(format!("{:?}", Job::new("scan", "somebody").unwrap()), "Job(scan, 8 bytes)");
    }

    #[test]
    fn only_a_state_has_a_kind_of_its_own() {
        for (name, kind) in [
            ("scan:state:job:1", "state"),
            ("user:state:pending", "other"),
            ("published:state:vision:10", "other"),
            ("router:published:state:10", "other"),
            ("idem:state:3f2a", "other"),
            ("scan:job:state", "other"),
            ("state", "other"),
        ] {
            assert_eq!(key_kind(&Key::new(name).unwrap()), kind, "{name}");
        }
    }
}
