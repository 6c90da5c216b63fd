//! Logs (records in commit order) and TTLs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Error;

/// The shortest TTL: stores count in milliseconds.
pub const MIN_TTL: Duration = Duration::from_millis(1);
/// The longest TTL: ten years. Every backend computes exactly with times in this range.
pub const MAX_TTL: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Time to live, from the moment of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Until it is deleted.
    Forever,
    /// This long, in whole milliseconds.
    Of(Duration),
}

impl From<Duration> for Ttl {
    fn from(life: Duration) -> Ttl {
        Ttl::Of(life)
    }
}

impl Ttl {
    /// This many days.
    pub const fn days(days: u64) -> Ttl {
        Ttl::Of(Duration::from_secs(days.saturating_mul(86_400)))
    }

    /// In milliseconds; `None` for [`Ttl::Forever`].
    pub fn millis(self) -> Option<u64> {
        match self {
            Ttl::Forever => None,
            Ttl::Of(life) => Some(u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// How many records a log keeps, and how long after its last append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Approximate number of the newest records: a backend may keep more, never fewer. `None` keeps all.
    pub about: Option<usize>,
    /// The TTL of the whole log from this append on.
    ///
    /// DynamoDB deletes each record by a time that was set with its append: twice the TTL after it, and at least the TTL
    /// and a week (for a TTL of a day or more, the TTL and two months). So a log that is appended to for longer than that loses its oldest records there. A log that must
    /// keep all of its records for as long as it is used has the TTL [`Ttl::Forever`].
    pub ttl: Ttl,
}

impl Keep {
    /// All records, for `ttl` after the last append.
    pub fn all_for(ttl: impl Into<Ttl>) -> Keep {
        Keep { about: None, ttl: ttl.into() }
    }

    /// Approximately the `newest` records, without a TTL.
    pub fn about(newest: usize) -> Keep {
        Keep { about: Some(newest), ttl: Ttl::Forever }
    }
}

/// The position of a record in its log. Positions strictly increase in commit order; their numbers mean nothing else.
///
/// Displayed as `major-minor`, as Redis writes its stream ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    major: u64,
    minor: u64,
}

impl Position {
    /// The position `major-minor`.
    pub fn new(major: u64, minor: u64) -> Position {
        Position { major, minor }
    }

    /// Major and minor.
    pub fn parts(self) -> (u64, u64) {
        (self.major, self.minor)
    }

    /// The largest position that is smaller than this one; `None` before the first.
    ///
    /// ```
    /// use onetap_store::Position;
    ///
    /// assert_eq!(Position::new(7, 3).predecessor(), Some(Position::new(7, 2)));
    /// assert_eq!(Position::new(7, 0).predecessor(), Some(Position::new(6, u64::MAX)));
    /// assert_eq!(Position::new(0, 0).predecessor(), None);
    /// ```
    pub fn predecessor(self) -> Option<Position> {
        match self.minor.checked_sub(1) {
            Some(minor) => Some(Position { minor, ..self }),
            None => Some(Position { major: self.major.checked_sub(1)?, minor: u64::MAX }),
        }
    }

    /// The smallest position that is larger than this one.
    pub fn successor(self) -> Position {
        match self.minor.checked_add(1) {
            Some(minor) => Position { minor, ..self },
            None => Position { major: self.major.saturating_add(1), minor: 0 },
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.major, self.minor)
    }
}

impl FromStr for Position {
    type Err = Error;

    fn from_str(text: &str) -> Result<Position, Error> {
        // Digits only: `u64::from_str` would also take "+1".
        let number = |part: &str| {
            let plain = part.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| part.parse().ok()).flatten()
        };
        text.split_once('-')
            .and_then(|(major, minor)| Some(Position { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| Error::rejected("a position is two whole numbers joined by '-'"))
    }
}

/// One record of a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Its position in the log.
    pub position: Position,
    /// The text that was appended. Empty for a record of another program that has no text.
    pub text: String,
}
