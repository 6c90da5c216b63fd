//! One record of a batch, from its message to its outcome.

use super::order::{self, RecordState};
use crate::Error;
use crate::runs::Settled;

/// A record of the batch.
pub(super) type Record<T> = order::Record<State<T>>;

pub(super) enum State<T> {
    /// Not begun.
    Waiting(Named<T>),
    /// Has the key of an earlier record of the batch, and shares its outcome.
    Repeats(usize),
    /// The handler was begun, and has not ended.
    Running,
    /// The handler has succeeded.
    Succeeded,
    Done(Done),
    Failed(Cause),
}

/// What a message says, and its name.
pub(super) struct Named<T> {
    pub(super) key: String,
    /// What the key is tied to, if anything.
    pub(super) payload: Option<String>,
    pub(super) value: T,
}

/// How a record is done.
pub(super) enum Done {
    /// By this batch.
    Executed,
    /// By this batch, or by an earlier record of it, and the store did not confirm it.
    Unrecorded(onetap_store::Error),
    /// By an earlier delivery, or by an earlier record of the batch.
    Replayed,
}

/// Why a record has failed.
#[derive(Clone)]
pub(super) enum Cause {
    Malformed,
    InvalidKey,
    Mismatch,
    Permanent,
    Transient,
    InProgress,
    Unknown,
    Store(onetap_store::Error),
    LostLease,
    DeadlinePassed,
    CutOff,
    Panicked,
    HeldBack,
}

impl Cause {
    /// Whether the record may succeed when it is delivered again.
    fn is_retryable(&self) -> bool {
        match self {
            Cause::Malformed | Cause::InvalidKey | Cause::Mismatch | Cause::Permanent => false,
            Cause::Transient
            | Cause::InProgress
            | Cause::Unknown
            | Cause::Store(_)
            | Cause::LostLease
            | Cause::DeadlinePassed
            | Cause::CutOff
            | Cause::Panicked
            | Cause::HeldBack => true,
        }
    }

    fn outcome(&self) -> &'static str {
        match self {
            Cause::Malformed => "malformed",
            Cause::InvalidKey => "invalid_key",
            Cause::Mismatch => "mismatch",
            Cause::Permanent => "permanent",
            Cause::Transient => "failed",
            Cause::InProgress => "in_progress",
            Cause::Unknown => "unknown",
            Cause::Store(_) => "store_error",
            Cause::LostLease => "lost_lease",
            Cause::DeadlinePassed => "deadline_passed",
            Cause::CutOff => "cut_off",
            Cause::Panicked => "panicked",
            Cause::HeldBack => "held_back",
        }
    }
}

impl From<Error> for Cause {
    fn from(error: Error) -> Cause {
        match error {
            // The payload of a record is text, so that `InvalidPayload` does not come.
            Error::InvalidKey | Error::InvalidPayload => Cause::InvalidKey,
            Error::DeadlinePassed => Cause::DeadlinePassed,
            Error::Mismatch => Cause::Mismatch,
            Error::InProgress { .. } => Cause::InProgress,
            // A claim reads no result, so that `NotKept` does not come.
            Error::Unknown | Error::NotKept => Cause::Unknown,
            Error::Store(error) => Cause::Store(error),
            Error::LostLease { value } | Error::Unrecorded { value, .. } => match value {},
            Error::Function(error) => match error {},
        }
    }
}

impl<T> RecordState for State<T> {
    fn is_done(&self) -> bool {
        matches!(self, State::Done(_))
    }

    fn holds_back(&self, _deliveries: u32) -> bool {
        matches!(self, State::Failed(cause) if cause.is_retryable())
    }

    /// A record that is done without a result in the store would be run again if it were delivered again.
    fn is_final(&self) -> bool {
        matches!(self, State::Failed(_) | State::Done(Done::Unrecorded(_)))
    }

    fn held_back() -> State<T> {
        State::Failed(Cause::HeldBack)
    }
}

impl<T> Record<T> {
    /// Takes over the outcome of the record that this one repeats.
    pub(super) fn share(&mut self, outcome: &State<T>) {
        match outcome {
            State::Done(Done::Unrecorded(error)) => self.state = State::Done(Done::Unrecorded(error.clone())),
            State::Done(_) => self.state = State::Done(Done::Replayed),
            State::Failed(cause) => self.state = State::Failed(cause.clone()),
            // It is not known yet.
            State::Waiting(_) | State::Repeats(_) | State::Running | State::Succeeded => {}
        }
    }

    /// Takes note of what became of its result.
    pub(super) fn settle(&mut self, settled: Settled) {
        self.state = match settled {
            Settled::Recorded(_) => State::Done(Done::Executed),
            Settled::LostLease | Settled::Refused(_) => State::Failed(Cause::LostLease),
            Settled::Unrecorded(error) => State::Done(Done::Unrecorded(error)),
        };
    }

    /// Counts the outcome and logs it, without its key.
    pub(super) fn report(&self) {
        let outcome = match &self.state {
            State::Done(Done::Executed) => "executed",
            State::Done(Done::Unrecorded(_)) => "unrecorded",
            State::Done(Done::Replayed) => "replayed",
            State::Failed(cause) => cause.outcome(),
            // Every record has ended when it is reported.
            State::Waiting(_) | State::Repeats(_) | State::Running | State::Succeeded => "cut_off",
        };
        metrics::counter!("idem_total", "outcome" => outcome).increment(1);
        let message_id = self.id.as_str();
        match &self.state {
            State::Done(Done::Unrecorded(error)) => {
                tracing::warn!(message_id, outcome, %error, "the record is done, and that was not recorded");
            }
            State::Done(_) => tracing::debug!(message_id, outcome, "the record is done"),
            State::Failed(Cause::Store(error)) => {
                tracing::warn!(message_id, outcome, %error, "the record will be redelivered");
            }
            State::Failed(Cause::Panicked) => {
                tracing::error!(message_id, outcome, "the record's handler panicked");
            }
            State::Failed(cause) if !cause.is_retryable() => {
                tracing::warn!(message_id, outcome, "the record cannot be handled");
            }
            _ => tracing::warn!(message_id, outcome, "the record will be redelivered"),
        }
    }
}
