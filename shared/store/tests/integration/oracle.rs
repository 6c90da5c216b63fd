//! Random batches: every backend answers as memory does, and ends in the same state.

use crate::support;

use std::sync::Arc;

use onetap_store::testing::random::difference;
use onetap_store::{Memory, Store};
use proptest::test_runner::{Config, TestCaseError, TestRunner};

/// Compares `store` with a fresh memory under random batches; proptest shortens what fails.
fn agrees_with_memory<G>(cases: u32, open: impl Future<Output = (Arc<dyn Store>, G)>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (store, _server) = runtime.block_on(open);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&(proptest::num::u64::ANY, 1..40usize), |(seed, batches)| {
        let oracle: Arc<dyn Store> = Arc::new(Memory::new());
        match runtime.block_on(difference(&oracle, &store, seed, batches)) {
            Ok(None) => Ok(()),
            Ok(Some(difference)) => Err(TestCaseError::fail(difference)),
            Err(error) => Err(TestCaseError::fail(error.to_string())),
        }
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
#[ignore = "needs redis-server"]
fn random_batches_on_redis_answer_as_in_memory() {
    agrees_with_memory(150, support::open_redis());
}

#[test]
#[ignore = "needs redis-server"]
fn random_batches_on_upstash_answer_as_in_memory() {
    agrees_with_memory(100, support::open_upstash());
}

#[test]
fn random_batches_on_dynamodb_answer_as_in_memory() {
    agrees_with_memory(60, support::open_dynoxide());
}

#[test]
#[ignore = "needs DynamoDB Local"]
fn random_batches_on_dynamodb_local_answer_as_in_memory() {
    agrees_with_memory(60, support::open_dynamodb_local());
}
