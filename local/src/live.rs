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

use crate::queue::Jobs;
use crate::stopping::Stopping;
use crate::view::View;

/// Changes are told together, so often at most.
const PACE: Duration = Duration::from_millis(100);
/// What changes by the clock alone (an expiry, a message that comes back) is looked for so often.
const LOOK: Duration = Duration::from_millis(250);
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Tells the clients what has changed: the first change at once, those that follow together.
pub(crate) async fn tell(view: Arc<View>, jobs: Arc<Jobs>) {
    loop {
        let _ = timeout(LOOK, view.changed()).await;
        view.flush(jobs.counts());
        sleep(PACE).await;
    }
}

struct Client {
    view: Arc<View>,
    jobs: Arc<Jobs>,
    stopping: Stopping,
    /// What comes after the snapshot; before it, and after having fallen behind, nothing.
    told: Option<broadcast::Receiver<Bytes>>,
}

/// The body of a stream. A client that reads slowly holds up nobody and costs no memory: it is a reader of the last
/// few messages that all share, and when those have passed it by it begins anew.
pub(crate) fn body(view: Arc<View>, jobs: Arc<Jobs>, stopping: Stopping) -> Body {
    let client = Client { view, jobs, stopping, told: None };
    let frames = stream::unfold(client, |mut client| async move {
        let text = client.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(text)), client))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl Client {
    async fn next(&mut self) -> Option<Bytes> {
        let Some(told) = &mut self.told else {
            return Some(self.snapshot());
        };
        tokio::select! {
            biased;
            () = self.stopping.asked() => None,
            next = told.recv() => match next {
                Ok(text) => Some(text),
                Err(RecvError::Lagged(_)) => Some(self.snapshot()),
                Err(RecvError::Closed) => None,
            },
            () = sleep(KEEPALIVE) => Some(Bytes::from_static(b": keep-alive\n\n")),
        }
    }

    fn snapshot(&mut self) -> Bytes {
        let (snapshot, told) = self.view.subscribe(self.jobs.counts());
        self.told = Some(told);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Counts;
    use crate::stopping::Stop;
    use crate::view::{Settings, StoreSetting, WeatherSetting};

    async fn name(body: &mut Body) -> Option<String> {
        let frame = body.frame().await?.unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        Some(text.lines().next().unwrap().to_owned())
    }

    #[tokio::test]
    async fn a_client_that_falls_behind_begins_anew_and_all_end_with_the_runner() {
        let store = StoreSetting { kind: "memory", down: false };
        let view = Arc::new(View::new(Settings { store, weather: WeatherSetting { delay_ms: 0 } }));
        let jobs = Arc::new(Jobs::new(Arc::clone(&view)));
        let (stop, stopping) = Stop::new();
        let mut slow = body(Arc::clone(&view), Arc::clone(&jobs), stopping);
        assert_eq!(name(&mut slow).await.as_deref(), Some("event: snapshot"));
        for n in 1..=1000 {
            view.flush(Counts { sent: n, ..Counts::default() });
        }
        assert_eq!(name(&mut slow).await.as_deref(), Some("event: snapshot"));
        stop.now();
        assert_eq!(name(&mut slow).await, None);
    }
}
