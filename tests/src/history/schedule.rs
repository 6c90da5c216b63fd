//! Which fault happens when, and to whom: all of it from the seed.

use std::time::Duration;

use super::arena::Backend;
use super::seed::Seed;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// What a client sends is swallowed.
    RequestLost,
    /// What it sends is done, and the answer is swallowed.
    ReplyLost,
    /// What it sends arrives later than a lease lasts, and is done then.
    Delayed,
    /// Its connections are reset.
    Reset,
    /// It is killed (SIGKILL), and another takes its place.
    Killed,
    /// It is stopped for longer than a lease (SIGSTOP), and goes on.
    Stopped,
    /// The server is killed and started again. DynamoDB's test servers would forget: there nobody can reach it for a
    /// while.
    Restarted,
    /// Its clock is a lease ahead or behind.
    Skewed,
}

impl Kind {
    /// All of them, in the order of the table.
    pub const ALL: [Kind; 8] = [
        Kind::RequestLost,
        Kind::ReplyLost,
        Kind::Delayed,
        Kind::Reset,
        Kind::Killed,
        Kind::Stopped,
        Kind::Restarted,
        Kind::Skewed,
    ];

    /// What a history and a table call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::RequestLost => "request lost",
            Kind::ReplyLost => "reply lost",
            Kind::Delayed => "delayed past the TTL",
            Kind::Reset => "connection reset",
            Kind::Killed => "client killed",
            Kind::Stopped => "client stopped past the lease",
            Kind::Restarted => "server restarted",
            Kind::Skewed => "clock skewed by a lease",
        }
    }

    /// Those that can happen on `backend`.
    pub fn on(backend: Backend) -> Vec<Kind> {
        let can = |kind: &Kind| match (kind, backend) {
            // It lives and dies with its clients, and keeps the time for all of them.
            (Kind::Restarted, Backend::Memory) => false,
            (Kind::Skewed, _) => matches!(backend, Backend::DynamoDb | Backend::DynamoDbLocal),
            _ => true,
        };
        Kind::ALL.into_iter().filter(can).collect()
    }
}

/// One fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// After the fault before it has ended.
    pub pause: Duration,
    /// What.
    pub kind: Kind,
    /// To which of the lane's clients, and for skew, in which direction.
    pub draw: u64,
}

/// Faults without end, one after the other; each kind comes once in a round, then the next begins.
#[derive(Debug)]
pub struct Lane {
    seed: Seed,
    kinds: Vec<Kind>,
    left: Vec<Kind>,
    longest_pause: Duration,
}

impl Lane {
    /// The faults of these kinds, by `seed`; in the first round only those of `first`.
    pub fn new(mut seed: Seed, mut first: Vec<Kind>, kinds: Vec<Kind>, longest_pause: Duration) -> Lane {
        seed.shuffle(&mut first);
        Lane { seed, kinds, left: first, longest_pause }
    }

    /// The next fault.
    pub fn next_fault(&mut self) -> Planned {
        if self.left.is_empty() {
            self.left.clone_from(&self.kinds);
            self.seed.shuffle(&mut self.left);
        }
        let kind = self.left.pop().expect("there are kinds of faults");
        Planned { pause: self.seed.up_to(self.longest_pause), kind, draw: self.seed.next() }
    }
}
