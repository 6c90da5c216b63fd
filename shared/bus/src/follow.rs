//! Layer 4 without its HTTP: a job's events, from where a client left off, then as they come.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use onetap_store::{BoxStream, Error, Position, Record, Store};
use tokio::time::{Instant, timeout_at};

use crate::Job;
use crate::event::Place;
use crate::publish::{PAGE, read_all};

/// A subscription that breaks as soon as it stands must not be renewed in a tight circle.
const PAUSE: Duration = Duration::from_millis(100);

/// Where a client left off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// The position of the last event it has seen, if any.
    pub after: Option<Position>,
    /// It wants nothing with this sequence number or a lower one.
    pub last_seq: Option<u64>,
}

/// Reads a job's events in the order of its log, each once.
///
/// It watches first, then reads, and reads again on every ring: whatever commits after the subscription stands rings,
/// whatever committed before is read.
pub struct Follower {
    store: Arc<dyn Store>,
    job: Job,
    resume: Resume,
    rings: Option<BoxStream<'static, Result<(), Error>>>,
    /// It has rung since the last read.
    stale: bool,
    unseen: VecDeque<Record>,
    finished: bool,
    gap: bool,
    grace: Duration,
    /// When the grace ends. It begins when the job has ended and all that is known of it was told.
    over_at: Option<Instant>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Follower { job, unseen, finished, gap, .. } = self;
        write!(f, "Follower({job:?}, unseen: {}, finished: {finished}, gap: {gap})", unseen.len())
    }
}

impl Follower {
    /// Begins to follow `job`. When this returns, what is there has been read.
    ///
    /// All of the job's log is read, also what the client has seen: a job has sixty numbers at most, and only the
    /// whole log says whether the client's last event is still among them and whether the job has ended.
    pub async fn start(store: Arc<dyn Store>, job: Job, resume: Resume) -> Result<Follower, Error> {
        let rings = Some(store.watch(&job.channel()?).await?);
        let records = read_all(&*store, &job).await?;
        let is_there = |after: &Position| records.iter().any(|record| record.position == *after);
        // A last event that is not there says nothing about what else was missed: all that is left is sent.
        let seen = resume.after.filter(is_there);
        let mut follower = Follower {
            store,
            job,
            resume: Resume { after: None, ..resume },
            rings,
            stale: false,
            unseen: VecDeque::new(),
            finished: false,
            gap: seen != resume.after,
            grace: Duration::ZERO,
            over_at: None,
        };
        follower.take(records);
        follower.unseen.retain(|record| Some(record.position) > seen);
        Ok(follower)
    }

    /// Waits for `grace` after the job's last event for events that it overtook: a standard queue keeps no order.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Follower {
        Follower { grace, ..self }
    }

    /// Whether the event that the client saw last is not in the log any more: something may be missing in between.
    pub fn has_gap(&self) -> bool {
        self.gap
    }

    /// Whether the job has ended and nothing is known that the client has not seen. [`Follower::has_more`] also waits for
    /// what may have been overtaken.
    pub fn is_over(&self) -> bool {
        self.finished && self.unseen.is_empty()
    }

    /// The next event, waiting for it; `None` when the job has ended, all was told and the grace is over. An error ends
    /// it too: follow anew from the last event that was told.
    ///
    /// May be dropped while it waits, and called again.
    pub async fn next(&mut self) -> Result<Option<Record>, Error> {
        Ok(if self.has_more().await? { self.unseen.pop_front() } else { None })
    }

    /// Waits like [`Follower::next`], and says whether that has something to tell.
    pub async fn has_more(&mut self) -> Result<bool, Error> {
        while self.unseen.is_empty() {
            if self.stale {
                let page = self.store.read(&self.job.log()?, self.resume.after, PAGE).await?;
                self.stale = page.len() == PAGE;
                self.take(page);
            } else if !self.finished {
                self.ring().await?;
            } else {
                let now = Instant::now();
                let over_at = *self.over_at.get_or_insert_with(|| now.checked_add(self.grace).unwrap_or(now));
                if now >= over_at {
                    return Ok(false);
                }
                if let Ok(rang) = timeout_at(over_at, self.ring()).await {
                    rang?;
                }
            }
        }
        Ok(true)
    }

    /// Returns when the job's channel has rung, or may have.
    async fn ring(&mut self) -> Result<(), Error> {
        match &mut self.rings {
            Some(rings) => {
                let mut rang = rings.next().await;
                // What rang meanwhile is answered by the same read.
                while matches!(rang, Some(Ok(()))) {
                    let Some(more) = rings.next().now_or_never() else {
                        break;
                    };
                    rang = more;
                }
                if !matches!(rang, Some(Ok(()))) {
                    self.rings = None;
                }
            }
            None => {
                tokio::time::sleep(PAUSE).await;
                self.rings = Some(self.store.watch(&self.job.channel()?).await?);
            }
        }
        self.stale = self.rings.is_some();
        Ok(())
    }

    fn take(&mut self, records: Vec<Record>) {
        self.resume.after = records.last().map(|record| record.position).or(self.resume.after);
        self.finished |=
            records.iter().any(|record| Place::of(&record.text).is_some_and(|place| place.is_final()));
        self.unseen.extend(records);
        let last_seq = self.resume.last_seq;
        self.unseen.retain(|record| is_wanted(record, last_seq));
    }
}

/// Whether the client has not asked to be spared this one.
fn is_wanted(record: &Record, last_seq: Option<u64>) -> bool {
    Place::of(&record.text).is_none_or(|place| last_seq.is_none_or(|last| place.seq > last))
}
