//! Names: what is kept, logged or rung goes under one.

use std::fmt;

use crate::Error;

/// No name is longer: DynamoDB's partition keys end there.
pub const MAX_NAME: usize = 2048;

macro_rules! name {
    ($name:ident, $what:literal, $doc:literal) => {
        #[doc = $doc]
        ///
        /// Any text of 1 to 2048 bytes. `Debug` shows its length only: names hold user ids.
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Takes the name, or says what is wrong with it.
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

            /// The name as it stands in the store.
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

name!(Key, "a key", "What a value is kept under.");
name!(Log, "a log's name", "What records are appended to, in the order in which they committed.");
name!(Channel, "a channel's name", "What is rung when something was published.");
