//! The page's stream: a snapshot, then what changes, as Server-Sent Events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use job_events::Body;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::queue::JobQueue;
use crate::view::View;

/// Shortest time between two updates; changes in between are sent together.
const MIN_UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two looks at what changes with the clock alone: keys expire, messages become visible again.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_millis(250);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Sends changes to the clients: the first one at once, those that follow together.
pub(crate) async fn send_updates(view: Arc<View>, queue: Arc<JobQueue>) {
    loop {
        let _ = timeout(EXPIRY_CHECK_INTERVAL, view.changed()).await;
        view.flush(queue.counts());
        sleep(MIN_UPDATE_INTERVAL).await;
    }
}

struct Client {
    view: Arc<View>,
    queue: Arc<JobQueue>,
    shutdown: CancellationToken,
    /// The updates since the snapshot. `None` before the first snapshot.
    updates: Option<broadcast::Receiver<Bytes>>,
}

/// The body of a stream. A slow client delays nobody and costs no memory: all clients share one buffer of updates, and
/// a client that misses some of them gets a new snapshot.
pub(crate) fn body(view: Arc<View>, queue: Arc<JobQueue>, shutdown: CancellationToken) -> Body {
    let client = Client { view, queue, shutdown, updates: None };
    let frames = stream::unfold(client, |mut client| async move {
        let text = client.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(text)), client))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Client {
    async fn next(&mut self) -> Option<Bytes> {
        let Some(updates) = &mut self.updates else {
            return Some(self.snapshot());
        };
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => None,
            next = updates.recv() => match next {
                Ok(text) => Some(text),
                Err(RecvError::Lagged(_)) => Some(self.snapshot()),
                Err(RecvError::Closed) => None,
            },
            () = sleep(KEEPALIVE_INTERVAL) => Some(Bytes::from_static(b": keep-alive\n\n")),
        }
    }

    fn snapshot(&mut self) -> Bytes {
        let (snapshot, updates) = self.view.subscribe(self.queue.counts());
        self.updates = Some(updates);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use onetap_bus::Stages;

    use super::*;
    use crate::job_plan::JobPlan;
    use crate::queue::Counts;
    use crate::view::{Settings, StoreSetting};
    use crate::weather::WeatherSetting;

    async fn name(body: &mut Body) -> Option<String> {
        let frame = body.frame().await?.unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        Some(text.lines().next().unwrap().to_owned())
    }

    #[tokio::test]
    async fn a_client_that_falls_behind_begins_anew_and_all_end_with_the_runner() {
        let store = StoreSetting { kind: "memory", down: false };
        let view = Arc::new(View::new(Settings { store, weather: WeatherSetting::default() }));
        let queue = Arc::new(JobQueue::new(Arc::clone(&view), JobPlan::new(Stages::default())));
        let shutdown = CancellationToken::new();
        let mut slow = body(Arc::clone(&view), queue, shutdown.clone());
        assert_eq!(name(&mut slow).await.as_deref(), Some("event: snapshot"));
        for n in 1..=1000 {
            view.flush(Counts { sent: n, ..Counts::default() });
        }
        assert_eq!(name(&mut slow).await.as_deref(), Some("event: snapshot"));
        shutdown.cancel();
        assert_eq!(name(&mut slow).await, None);
    }
}
