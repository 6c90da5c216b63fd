//! Names of keys, logs and channels.

use std::fmt;

use crate::Error;

/// Maximum length in bytes: DynamoDB's limit for a partition key.
pub const MAX_NAME: usize = 2048;

macro_rules! name {
    ($name:ident, $what:literal, $doc:literal) => {
        #[doc = $doc]
        ///
        /// Any text of 1 to 2048 bytes. `Debug` shows its length only: names hold user ids.
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Checks the length.
            pub fn new(name: impl Into<String>) -> Result<$name, Error> {
                let name = name.into();
                match name.len() {
                    0 => Err(Error::rejected(concat!($what, " must not be empty"))),
                    1..=MAX_NAME => Ok($name(name)),
                    n => Err(Error::rejected(format!(
                        concat!($what, " of {} bytes is over the limit of {}"),
                        n, MAX_NAME
                    ))),
                }
            }

            /// The name as it is in the store.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({} bytes)"), self.0.len())
            }
        }
    };
}

name!(Key, "a key", "The name of a value.");
name!(Log, "a log's name", "The name of a log: records in the order in which they were committed.");
/// A refusal names a log that must exist and does not by this key.
impl From<&Log> for Key {
    fn from(log: &Log) -> Key {
        Key(log.0.clone())
    }
}

name!(
    Channel,
    "a channel's name",
    "The name of a channel, whose watchers are notified when a batch publishes on it."
);
