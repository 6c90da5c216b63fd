//! The connections to a server: which one a request takes, and when it is replaced.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use onetap_http::MAX_WAIT_FOR_OPENING;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, timeout_at};

use super::connection::{Connection, POLL_SOCKET_AFTER};
use super::wire::Wire;
use crate::Error;

/// Larger requests share a second connection, so that small ones do not wait until megabytes are written.
const LARGE_REQUEST_BYTES: usize = 64 * 1024;

/// At most two connections for each runtime.
#[derive(Default)]
pub(super) struct Pool {
    slots: Mutex<Vec<Slot>>,
}

/// A connection that is open or being opened. Its driver belongs to a runtime, and runs only while that does.
struct Slot {
    runtime: Id,
    large: bool,
    opening: Opening,
}

/// The connection, once it is open. `None` if that took too long, or its runtime ended.
type Opening = Shared<BoxFuture<'static, Option<Result<Arc<Connection>, Error>>>>;

/// A connection for a request.
pub(super) struct Chosen {
    pub(super) connection: Arc<Connection>,
    /// It was opened while this caller waited.
    pub(super) is_new: bool,
}

impl Slot {
    /// Whether it has, or may soon have, a connection for further requests.
    fn is_usable(&self) -> bool {
        match self.opening.peek() {
            Some(Some(Ok(connection))) => connection.is_usable(),
            Some(_) => false,
            None => true,
        }
    }

    fn is_read_only(&self) -> bool {
        matches!(self.opening.peek(), Some(Some(Ok(connection))) if connection.is_read_only())
    }
}

impl Pool {
    /// The connection for a request of this size, opened by `open` if there is none.
    pub(super) async fn choose<F>(
        &self,
        bytes: usize,
        open: impl Fn() -> F,
        deadline: Instant,
    ) -> Result<Chosen, Error>
    where
        F: Future<Output = Result<Wire, Error>> + Send + 'static,
    {
        let out_of_time = || Error::not_sent("no connection in time");
        let large = bytes > LARGE_REQUEST_BYTES;
        loop {
            let (opening, is_mine) = self.slot(large, &open, deadline);
            if let Some(Some(Ok(connection))) = opening.peek() {
                return Ok(Chosen { connection: Arc::clone(connection), is_new: false });
            }
            let limit = if is_mine { deadline } else { deadline.min(Instant::now() + MAX_WAIT_FOR_OPENING) };
            let opened = timeout_at(limit, opening.clone()).await;
            match opened.ok().flatten() {
                Some(Ok(connection)) => return Ok(Chosen { connection, is_new: true }),
                Some(Err(error)) => return Err(error),
                None if is_mine || Instant::now() >= deadline => return Err(out_of_time()),
                // Another caller's attempt hangs, or had less time.
                None => self.forget(&opening),
            }
        }
    }

    /// Opens the connection for small requests, unless there is one.
    pub(super) async fn connect<F>(&self, open: impl Fn() -> F, deadline: Instant) -> Result<(), Error>
    where
        F: Future<Output = Result<Wire, Error>> + Send + 'static,
    {
        let chosen = self.choose(0, &open, deadline).await?;
        if chosen.connection.quiet_for() > POLL_SOCKET_AFTER {
            // After a Lambda was frozen, tokio and then the driver must see first that the peer closed the connection.
            tokio::task::yield_now().await;
            self.choose(0, &open, deadline).await?;
        }
        Ok(())
    }

    /// The connection or the attempt that is in the slot, or an attempt that begins now; and whether it begins now.
    fn slot<F>(&self, large: bool, open: impl Fn() -> F, deadline: Instant) -> (Opening, bool)
    where
        F: Future<Output = Result<Wire, Error>> + Send + 'static,
    {
        let runtime = Handle::current().id();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_read_only = slots.iter().any(Slot::is_read_only);
        if let Some(slot) = slots.iter().find(|slot| slot.runtime == runtime && slot.large == large) {
            // An attempt may have ended while no caller waited for it.
            if slot.opening.peek().is_none() {
                drop(slot.opening.clone().now_or_never());
            }
            if slot.is_usable() && !is_read_only {
                return (slot.opening.clone(), false);
            }
        }
        if is_read_only {
            // The server is a replica now, and the other connections lead to the same server.
            slots.clear();
        }
        // An attempt of a runtime that has ended is over, but only a poll shows it.
        let is_over = |slot: &Slot| matches!(slot.opening.clone().now_or_never(), Some(None));
        slots.retain(|slot| slot.is_usable() && !is_over(slot));
        // A task: a caller that is not polled must not hold up those that wait for the same connection.
        let open = timeout_at(deadline, open());
        let opening = tokio::spawn(async { open.await.ok().map(|wire| wire.map(Connection::start)) });
        let opening = async { Some(opening.await.ok()??.map(Arc::new)) };
        let opening = opening.boxed().shared();
        slots.push(Slot { runtime, large, opening: opening.clone() });
        (opening, true)
    }

    fn forget(&self, opening: &Opening) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| !slot.opening.ptr_eq(opening));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::time::Duration;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::yield_now;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Opens pipes, and keeps their other ends.
    #[derive(Default)]
    struct Server(Mutex<Vec<DuplexStream>>);

    impl Server {
        fn open(&self) -> impl Future<Output = Result<Wire, Error>> + use<> {
            let (ours, theirs) = duplex(4096);
            self.0.lock().unwrap().push(theirs);
            ready(Ok(Wire::new(Box::new(ours))))
        }

        fn connections(&self) -> usize {
            self.0.lock().unwrap().len()
        }
    }

    async fn choose(pool: &Pool, server: &Server, bytes: usize) -> Chosen {
        pool.choose(bytes, || server.open(), Instant::now() + LIMIT).await.unwrap()
    }

    #[tokio::test]
    async fn small_requests_share_a_connection_and_large_ones_another() {
        let (pool, server) = (Pool::default(), Server::default());
        let sizes = [1, LARGE_REQUEST_BYTES, LARGE_REQUEST_BYTES + 1, 100, 1 << 20];
        let chosen = futures_util::future::join_all(sizes.map(|bytes| choose(&pool, &server, bytes))).await;
        assert_eq!(server.connections(), 2);
        assert!(Arc::ptr_eq(&chosen[0].connection, &chosen[3].connection));
        assert!(Arc::ptr_eq(&chosen[2].connection, &chosen[4].connection));
        assert!(!choose(&pool, &server, 1).await.is_new);
    }

    #[tokio::test]
    async fn a_connection_that_was_opened_while_nobody_waited_is_not_new() {
        let (pool, server) = (Pool::default(), Server::default());
        assert!(choose(&pool, &server, 1).now_or_never().is_none(), "this caller leaves");
        for _ in 0..10 {
            yield_now().await;
        }
        let chosen = choose(&pool, &server, 1).await;
        assert_eq!((chosen.is_new, server.connections()), (false, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_of_another_caller_that_hangs_is_replaced() {
        let (pool, server) = (Pool::default(), Server::default());
        let hangs = pool.choose(1, pending::<Result<Wire, Error>>, Instant::now() + LIMIT);
        let mut hangs = std::pin::pin!(hangs);
        assert!((&mut hangs).now_or_never().is_none());
        let start = Instant::now();
        let chosen = choose(&pool, &server, 1).await;
        assert!(start.elapsed() < 2 * MAX_WAIT_FOR_OPENING);
        assert!(Arc::ptr_eq(&chosen.connection, &choose(&pool, &server, 1).await.connection));
        assert!(!hangs.await.err().unwrap().maybe_applied());
    }

    #[tokio::test]
    async fn a_failed_attempt_is_the_error_of_all_who_waited_and_of_nobody_later() {
        let (pool, server) = (Pool::default(), Server::default());
        let refused = || ready(Err::<Wire, _>(Error::rejected("no")));
        let (one, two) = tokio::join!(
            pool.choose(1, refused, Instant::now() + LIMIT),
            pool.choose(1, || server.open(), Instant::now() + LIMIT),
        );
        assert!(one.is_err() && two.is_err());
        assert!(choose(&pool, &server, 1).await.is_new);
    }

    #[tokio::test]
    async fn after_readonly_every_connection_to_that_server_is_replaced() {
        let (pool, server) = (Pool::default(), Server::default());
        let large = choose(&pool, &server, 1 << 20).await.connection;
        let small = choose(&pool, &server, 1).await.connection;
        let asked = small.request(b"*1\r\n$4\r\nPING\r\n".to_vec(), 1, Instant::now() + LIMIT);
        let mut asked = std::pin::pin!(asked);
        assert!((&mut asked).now_or_never().is_none());
        yield_now().await;
        let mut end = server.0.lock().unwrap().pop().unwrap();
        end.write_all(b"-READONLY no\r\n").await.unwrap();
        assert!(asked.await.is_ok());
        assert!(!Arc::ptr_eq(&large, &choose(&pool, &server, 1 << 20).await.connection));
        assert!(!Arc::ptr_eq(&small, &choose(&pool, &server, 1).await.connection));
    }
}
