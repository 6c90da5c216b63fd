//! Follows a job: reads its events from where a client stopped, then live. `job-events` sends them to browsers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use onetap_store::{BoxStream, Error, Position, Record, Store};
use tokio::time::{Instant, timeout_at};

use crate::event::EventNumber;
use crate::job::PAGE_SIZE;
use crate::{Job, Stages};

/// Delay before a broken subscription is renewed, so that one that always breaks does not spin.
const RESUBSCRIBE_DELAY: Duration = Duration::from_millis(100);

/// Longest time without a read. A subscription can die in silence, behind a NAT that has forgotten the connection: then an event
/// is late by this time at most. It is longer than a stream of the template (25 s), for which it costs nothing.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// Where a client stopped reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// The position of the last event it has seen, if any.
    pub after: Option<Position>,
    /// Events with this sequence number or a lower one are left out.
    pub last_seq: Option<u64>,
}

/// Reads a job's events in the order of its log, each once.
///
/// It reads, and subscribes once it has passed on everything that was there, so that the first events need not wait for the
/// subscription. Then it reads again, and on every notification: what commits after the subscription notifies, what
/// committed before is read. After 30 seconds without a notification it reads all the same, and if that finds an event, it
/// renews the subscription: a watch that never notifies delays events, and loses none.
pub struct Follower {
    store: Arc<dyn Store>,
    stages: Stages,
    job: Job,
    /// The last record that was read, and what the client leaves out.
    resume: Resume,
    subscription: Subscription,
    /// The log may have records after the last one that was read.
    stale: bool,
    /// When the log is read although nothing notifies.
    read_by: Instant,
    /// That time has come, so that what the read finds is what the subscription has missed.
    was_silent: bool,
    unseen: VecDeque<Record>,
    finished: bool,
    /// A marker says that the job has ended, and the end was not read yet.
    marked: bool,
    gap: bool,
    grace: Duration,
    /// The end of the grace period. It begins when the job has ended and nothing is unseen.
    grace_ends: Option<Instant>,
}

enum Subscription {
    NotYet,
    Open(BoxStream<'static, Result<(), Error>>),
    Broken,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Follower { job, unseen, finished, gap, .. } = self;
        write!(f, "Follower({job:?}, unseen: {}, finished: {finished}, gap: {gap})", unseen.len())
    }
}

impl Follower {
    /// Begins to follow `job`: reads the log after the client's last event.
    ///
    /// `stages` tells which event ends the job. It must be the table that the job's events were published with.
    pub async fn start(
        store: Arc<dyn Store>,
        stages: Stages,
        job: Job,
        resume: Resume,
    ) -> Result<Follower, Error> {
        let mut follower = Follower {
            store,
            stages,
            job,
            resume: Resume { after: None, ..resume },
            subscription: Subscription::NotYet,
            stale: true,
            read_by: Instant::now() + MAX_SILENCE,
            was_silent: false,
            unseen: VecDeque::new(),
            finished: false,
            marked: false,
            gap: false,
            grace: Duration::ZERO,
            grace_ends: None,
        };
        if let Some(last) = resume.after {
            follower.skip_to(last).await?;
        }
        while follower.is_behind() && follower.unseen.is_empty() {
            follower.catch_up().await?;
        }
        Ok(follower)
    }

    /// Goes on after the client's last event. If that is gone, the client may have missed others: then it gets
    /// everything that is left.
    async fn skip_to(&mut self, last: Position) -> Result<(), Error> {
        let log = self.job.log()?;
        // The page begins with the client's last event, if that is still there.
        let page = self.store.read(&log, last.predecessor(), PAGE_SIZE);
        let (page, marked) = tokio::try_join!(page, self.job.may_have_ended(&*self.store, &self.stages))?;
        self.gap = page.first().is_none_or(|first| first.position != last);
        if self.gap {
            return Ok(());
        }
        // The job may have ended after the page was read: then the end is not in it, and the log is read again.
        self.stale = page.len() == PAGE_SIZE || marked;
        self.marked = marked;
        self.take(page);
        self.unseen.retain(|record| record.position > last);
        Ok(())
    }

    /// Waits up to `grace` after the job's last event for events that it has overtaken: a standard queue keeps no
    /// order.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Follower {
        Follower { grace, ..self }
    }

    /// Whether the client's last event is no longer in the log: events after it may be gone too.
    pub fn has_gap(&self) -> bool {
        self.gap
    }

    /// Whether the job has ended and the client has seen everything so far. [`Follower::has_more`] also waits for
    /// overtaken events.
    pub fn is_over(&self) -> bool {
        self.finished && !self.stale && self.unseen.is_empty()
    }

    /// Waits for the next event; `None` when the job has ended, every event was returned and the grace period is over.
    /// After an error, start a new follower from the last event.
    ///
    /// It is cancel safe.
    pub async fn next(&mut self) -> Result<Option<Record>, Error> {
        Ok(if self.has_more().await? { self.unseen.pop_front() } else { None })
    }

    /// Waits like [`Follower::next`], and returns whether that has an event.
    pub async fn has_more(&mut self) -> Result<bool, Error> {
        while self.unseen.is_empty() {
            if self.is_behind() {
                self.catch_up().await?;
            } else if !self.finished {
                self.notified().await?;
            } else {
                let now = Instant::now();
                let grace_ends =
                    *self.grace_ends.get_or_insert_with(|| now.checked_add(self.grace).unwrap_or(now));
                if now >= grace_ends {
                    return Ok(false);
                }
                if let Ok(notified) = timeout_at(grace_ends, self.notified()).await {
                    notified?;
                }
            }
        }
        Ok(true)
    }

    /// Waits for a notification on the job's channel. A new subscription counts as one, and so does a long silence: some may
    /// have been missed.
    async fn notified(&mut self) -> Result<(), Error> {
        match &mut self.subscription {
            Subscription::Open(notifications) => {
                let Ok(mut last) = timeout_at(self.read_by, notifications.next()).await else {
                    (self.stale, self.was_silent) = (true, true);
                    return Ok(());
                };
                // One read serves all notifications that are there.
                while matches!(last, Some(Ok(()))) {
                    let Some(next) = notifications.next().now_or_never() else {
                        break;
                    };
                    last = next;
                }
                if !matches!(last, Some(Ok(()))) {
                    self.subscription = Subscription::Broken;
                }
            }
            closed => {
                if let Subscription::Broken = closed {
                    tokio::time::sleep(RESUBSCRIBE_DELAY).await;
                }
                self.subscription = Subscription::Open(self.store.watch(&self.job.channel()?).await?);
            }
        }
        self.stale = matches!(self.subscription, Subscription::Open(_));
        Ok(())
    }

    /// Whether there is more to read before it waits.
    fn is_behind(&self) -> bool {
        self.stale || self.marked
    }

    /// Reads one page. After the last page, if a marker says that the job has ended and no event after the client's last
    /// one is its end: looks for the end before that.
    async fn catch_up(&mut self) -> Result<(), Error> {
        if self.stale {
            let page = self.store.read(&self.job.log()?, self.resume.after, PAGE_SIZE).await?;
            if std::mem::take(&mut self.was_silent) && !page.is_empty() {
                self.subscription = Subscription::Broken;
            }
            self.read_by = Instant::now() + MAX_SILENCE;
            self.stale = page.len() == PAGE_SIZE;
            self.take(page);
        } else {
            self.finished |= self.job.has_ended(&*self.store, &self.stages).await?;
            self.marked = false;
        }
        Ok(())
    }

    fn take(&mut self, records: Vec<Record>) {
        self.resume.after = records.last().map(|record| record.position).or(self.resume.after);
        self.finished |= records
            .iter()
            .any(|record| EventNumber::of(&record.text).is_some_and(|number| number.is_final(&self.stages)));
        self.marked &= !self.finished;
        self.unseen.extend(records);
        let last_seq = self.resume.last_seq;
        self.unseen.retain(|record| is_wanted(record, last_seq));
    }
}

/// Whether this is an event, and the client has not left it out by `last_seq`.
fn is_wanted(record: &Record, last_seq: Option<u64>) -> bool {
    !record.text.is_empty()
        && EventNumber::of(&record.text).is_none_or(|number| last_seq.is_none_or(|last| number.seq > last))
}
