//! Names of keys, logs and channels.

use std::fmt;

use crate::Error;

/// Maximum length in bytes: DynamoDB's limit for a partition key.
pub const MAX_NAME: usize = 2048;

/// A character that names do not have: a backend adds it to a name of the caller to get one of its own.
pub(crate) const RESERVED: char = '\u{1f}';

macro_rules! name {
    ($name:ident, $what:literal, $doc:literal) => {
        #[doc = $doc]
        ///
        /// Any text of 1 to 2048 bytes without the control character U+001F, which marks the store's own names. `Debug`
        /// shows its length only: names hold user ids.
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Checks the length, and that there is no U+001F.
            pub fn new(name: impl Into<String>) -> Result<$name, Error> {
                let name = name.into();
                match name.len() {
                    0 => Err(Error::rejected(concat!($what, " must not be empty"))),
                    1..=MAX_NAME if name.contains(RESERVED) => {
                        Err(Error::rejected(concat!($what, " must not contain U+001F")))
                    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_any_character_but_the_one_that_marks_the_stores_own_names() {
        for name in ["a\u{1e}b", "a\u{0}", "orders:cleared", "鍵 🔑"] {
            assert_eq!(Key::new(name).unwrap().as_str(), name);
        }
        for name in ["\u{1f}", "orders\u{1f}cleared", "a\u{1f}"] {
            let errors = [Key::new(name).map(drop), Log::new(name).map(drop), Channel::new(name).map(drop)];
            for error in errors.map(Result::unwrap_err) {
                assert!(error.to_string().contains("must not contain U+001F"), "{error}");
            }
        }
    }
}
