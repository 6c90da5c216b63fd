//! What a call returns.

/// A value, and whether this call has made it.
///
/// ```
/// # use std::{convert::Infallible, sync::Arc};
/// # use onetap_idem::{Idempotency, Returned};
/// # use onetap_store::Memory;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let idem = Idempotency::new(Arc::new(Memory::new()));
/// let order = || idem.call("order:42").execute(|| async { Ok::<_, Infallible>(7) });
/// assert_eq!(order().await?, Returned::Executed(7));
/// assert_eq!(order().await?, Returned::Replayed(7));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned<T> {
    /// The function ran in this call.
    Executed(T),
    /// The function ran in another call, before this one or while it waited.
    Replayed(T),
}

impl<T> Returned<T> {
    /// The value, wherever it is from.
    pub fn into_value(self) -> T {
        match self {
            Returned::Executed(value) | Returned::Replayed(value) => value,
        }
    }

    /// Whether the function ran in another call.
    pub fn is_replayed(&self) -> bool {
        matches!(self, Returned::Replayed(_))
    }
}
