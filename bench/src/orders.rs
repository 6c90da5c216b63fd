//! What the table asks of a contestant, and what it is told: a line of JSON each way.
//!
//! Our worker and the peers in Python and JavaScript are programs of their own, so that processor time is theirs alone
//! and none has the other's threads beside it.

use serde::{Deserialize, Serialize};

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// Read a value that is there.
    Get,
    /// Write a value where none is.
    Set,
    /// Remove a value that is there.
    Delete,
    /// Take a lock and release it.
    Lock,
    /// An idempotent call that is new.
    Execute,
    /// An idempotent call that was done before.
    Replay,
    /// Edit the last transaction, the only entry of its ledger.
    Edit,
    /// Put one entry more into a ledger of one month.
    Put,
    /// Put one entry more into a ledger of 36 months.
    PutAmongMonths,
    /// Publish one event of a new job.
    Publish,
    /// Publish ten events of ten new jobs at once.
    PublishTen,
    /// Handle ten new SQS messages in one batch.
    Batch,
    /// Handle ten SQS messages in one batch that were handled before.
    BatchAgain,
    /// Read the records of a month of the ledger with 1 000 entries.
    Month,
    /// Read the records of a month of the ledger with 5 000 entries.
    LargeMonth,
    /// Read a month with 100 entries and fold it.
    SmallStatement,
    /// Read a month with 1 000 entries and fold it.
    Statement,
    /// Read a month with 5 000 entries and fold it.
    LargeStatement,
}

impl Call {
    /// As it is written in the table and on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Call::Get => "get",
            Call::Set => "set",
            Call::Delete => "delete",
            Call::Lock => "lock",
            Call::Execute => "execute",
            Call::Replay => "replay",
            Call::Edit => "edit",
            Call::Put => "put",
            Call::PutAmongMonths => "put-among-months",
            Call::Publish => "publish",
            Call::PublishTen => "publish-ten",
            Call::Batch => "batch",
            Call::BatchAgain => "batch-again",
            Call::Month => "month",
            Call::LargeMonth => "large-month",
            Call::SmallStatement => "small-statement",
            Call::Statement => "statement",
            Call::LargeStatement => "large-statement",
        }
    }
}

/// Whose way is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Through onetap's API.
    Ours,
    /// The same bytes over a bare socket.
    Bare,
    /// The same commands over the `redis` crate's multiplexed connection.
    Multiplexed,
}

/// One order, one line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Order {
    /// Make the calls and say how long they took.
    Measure(Measure),
    /// Say what one call sends and receives.
    Count {
        /// What is called.
        call: Call,
        /// On which store.
        store: String,
    },
}

/// Calls to be measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measure {
    /// What is called.
    pub call: Call,
    /// On which store, by its name.
    pub store: String,
    /// So many at once.
    pub callers: usize,
    /// So many a block, by all callers together.
    pub calls: usize,
    /// So many blocks of each side, in turns.
    pub blocks: usize,
    /// The sides, in their order. A peer has only one.
    pub sides: Vec<Side>,
}

/// An answer, one line: a [`Measured`] for each side, or the counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Order::Measure`].
    Measured(Vec<Measured>),
    /// To [`Order::Count`].
    Counted(Counted),
    /// Why there is none.
    Failed(String),
}

/// How long the calls of a side took.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// How many there were.
    pub calls: usize,
    /// Wall-clock seconds for all of them.
    pub elapsed: f64,
    /// Seconds of processor time that this process took.
    pub cpu: f64,
    /// Microseconds of one call, half of them below.
    pub p50: f64,
    /// 95 % of them below.
    pub p95: f64,
    /// 99 % of them below.
    pub p99: f64,
}

impl Measured {
    /// Calls a second.
    pub fn rate(&self) -> f64 {
        self.calls as f64 / self.elapsed.max(f64::MIN_POSITIVE)
    }

    /// Processor seconds for a thousand calls.
    pub fn cpu_per_thousand(&self) -> f64 {
        self.cpu * 1000.0 / (self.calls as f64).max(1.0)
    }
}

/// What one call sends and receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Requests that waited for a reply.
    pub round_trips: usize,
    /// Bytes to the server.
    pub sent: usize,
    /// Bytes from it.
    pub received: usize,
}
