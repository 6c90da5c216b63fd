//! What a promise that is not kept answers.

use std::fmt;
use std::panic::Location;

/// The answer of a promise.
pub type Kept = Result<(), Broken>;

/// Why a promise is not kept, and where that was seen: an expectation that failed, or an error of the store.
pub struct Broken {
    why: String,
    at: &'static Location<'static>,
}

impl Broken {
    #[track_caller]
    pub(super) fn new(why: impl fmt::Display) -> Broken {
        Broken { why: why.to_string(), at: Location::caller() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.why, self.at)
    }
}

/// A test that fails shows it.
impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: std::error::Error> From<E> for Broken {
    #[track_caller]
    fn from(error: E) -> Broken {
        Broken::new(error)
    }
}

/// Ends a promise that is not kept.
macro_rules! broken {
    ($($why:tt)+) => { return Err($crate::testing::conformance::Broken::new(format_args!($($why)+))) };
}

/// As `assert!`, in a promise.
macro_rules! ensure {
    ($holds:expr $(,)?) => { ensure!($holds, "it does not hold") };
    ($holds:expr, $($why:tt)+) => {
        match $holds {
            true => {}
            false => broken!("`{}`: {}", stringify!($holds), format_args!($($why)+)),
        }
    };
}

/// As `assert_eq!`, in a promise.
macro_rules! ensure_eq {
    ($left:expr, $right:expr $(,)?) => { ensure_eq!($left, $right, "not equal") };
    ($left:expr, $right:expr, $($why:tt)+) => {
        match (&$left, &$right) {
            (left, right) if *left == *right => {}
            (left, right) => broken!("{}: {left:?} is not {right:?}", format_args!($($why)+)),
        }
    };
}
