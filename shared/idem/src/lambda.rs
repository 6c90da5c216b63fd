//! The end of a Lambda invocation, and the deadline before it.

use std::time::{Duration, SystemTime};

use lambda_runtime::Context;
use tokio::time::Instant;

use super::Call;

/// Time that is left of an invocation after the deadline of its calls: for a late commit, and for the answer.
const ANSWER_MARGIN: Duration = Duration::from_millis(300);

/// The longest time that Lambda gives an invocation.
const MAX_INVOCATION: Duration = Duration::from_secs(900);

/// The times of a Lambda invocation, on the clock that deadlines have here.
///
/// ```
/// # use lambda_runtime::Context;
/// use onetap_idem::Invocation;
///
/// # async fn look_up() {}
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # let context = Context::default();
/// // 300 ms are left for the answer.
/// let answer = tokio::time::timeout_at(Invocation::of(&context).deadline, look_up()).await;
/// # assert!(answer.is_ok());
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// When its calls have to end, so that there is time for an answer: 300 ms before the end.
    pub deadline: Instant,
    /// When Lambda stops it.
    pub end: Instant,
}

impl Invocation {
    /// The times of the invocation that has this context. A context that a test has made up (`Context::default()`) has no
    /// deadline, and counts as Lambda's longest invocation, 15 minutes.
    pub fn of(context: &Context) -> Invocation {
        let left = match context.deadline {
            0 => MAX_INVOCATION,
            _ => context.deadline().duration_since(SystemTime::now()).unwrap_or_default(),
        };
        let now = Instant::now();
        Invocation { deadline: now + left.saturating_sub(ANSWER_MARGIN), end: now + left }
    }
}

impl Call {
    /// Takes the [deadline](Call::deadline) from a Lambda [`Invocation`], so that a duplicate that waits is answered, and its
    /// end as the [end](Call::invocation_end), so that a run keeps its claim until then. Feature `lambda`.
    ///
    /// ```
    /// # use std::{convert::Infallible, sync::Arc};
    /// # use onetap_idem::{Error, Idempotency};
    /// # use onetap_store::Memory;
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
        let Invocation { deadline, end } = Invocation::of(context);
        self.deadline(deadline).invocation_end(end)
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
        let Invocation { deadline, end } = Invocation::of(&ending_in(Duration::from_secs(10)));
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
            assert!(Invocation::of(&ending_in(left)).deadline <= Instant::now());
        }
    }

    #[test]
    fn a_context_that_a_test_made_up_has_lambdas_longest_time() {
        let before = Instant::now();
        assert!(Invocation::of(&Context::default()).end >= before + MAX_INVOCATION);
    }
}
