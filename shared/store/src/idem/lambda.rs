//! The end of a Lambda invocation, and the deadline before it.

use std::time::{Duration, SystemTime};

use lambda_runtime::Context;
use tokio::time::Instant;

use super::Call;

/// Time that is left of an invocation after the deadline of its calls: for a late commit, and for the answer.
const ANSWER_MARGIN: Duration = Duration::from_millis(300);

/// The two times of an invocation.
pub(crate) struct Times {
    /// When its calls have to end, so that there is time for an answer.
    pub(crate) deadline: Instant,
    /// When Lambda stops it.
    pub(crate) end: Instant,
}

/// The times of an invocation. `None` for a context that a test has made up: it has no deadline.
pub(crate) fn times(context: &Context) -> Option<Times> {
    if context.deadline == 0 {
        return None;
    }
    let (now, left) =
        (Instant::now(), context.deadline().duration_since(SystemTime::now()).unwrap_or_default());
    Some(Times { deadline: now + left.saturating_sub(ANSWER_MARGIN), end: now + left })
}

impl Call {
    /// Sets the [deadline](Call::deadline) to 300 ms before the end of a Lambda invocation, so that a duplicate that waits is
    /// answered, and the [end](Call::invocation_end) to that end, so that a run keeps its claim until then. Feature `lambda`.
    ///
    /// A context that a test has made up (`Context::default()`) has no deadline, and sets neither.
    ///
    /// ```
    /// # use std::{convert::Infallible, sync::Arc};
    /// # use onetap_store::{Memory, idem::{Error, Idempotency}};
    /// use lambda_runtime::LambdaEvent;
    ///
    /// async fn handler(idem: &Idempotency, event: LambdaEvent<u32>) -> Result<u32, Error<u32>> {
    ///     let call = idem.call("order:42").invocation(&event.context);
    ///     Ok(call.execute(|| async { Ok(event.payload) }).await?.into_value())
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let idem = Idempotency::new(Arc::new(Memory::new()));
    /// # assert_eq!(handler(&idem, LambdaEvent::new(7, Default::default())).await.unwrap(), 7);
    /// # }
    /// ```
    pub fn invocation(self, context: &Context) -> Call {
        match times(context) {
            Some(Times { deadline, end }) => self.deadline(deadline).invocation_end(end),
            None => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending_in(left: Duration) -> Context {
        let end = SystemTime::now() + left;
        let mut context = Context::default();
        context.deadline = end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
        context
    }

    #[test]
    fn the_calls_of_an_invocation_end_300_ms_before_it() {
        let before = Instant::now();
        let Times { deadline, end } = times(&ending_in(Duration::from_secs(10))).unwrap();
        assert_eq!(end - deadline, ANSWER_MARGIN);
        // The context counts in milliseconds.
        let took = before.elapsed();
        let expected =
            Duration::from_millis(9_699).saturating_sub(took)..=Duration::from_millis(9_700) + took;
        assert!(expected.contains(&(deadline - before)), "{:?}", deadline - before);
    }

    #[test]
    fn an_invocation_that_is_nearly_over_has_no_time_left() {
        for left in [Duration::ZERO, Duration::from_millis(200)] {
            assert!(times(&ending_in(left)).unwrap().deadline <= Instant::now());
        }
    }

    #[test]
    fn a_context_that_somebody_made_up_has_no_deadline() {
        assert!(times(&Context::default()).is_none());
    }
}
