use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc as blocking};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

/// The open connections of one server, each of which can be told to close.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    opened: watch::Sender<usize>,
    open: HashMap<usize, mpsc::UnboundedSender<CloseRequest>>,
}

/// The request to close a connection. It is dropped when the connection is closed.
pub(crate) type CloseRequest = blocking::Sender<()>;

/// One open connection; it leaves the registry when dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    id: usize,
    registry: Connections,
    close_requests: mpsc::UnboundedReceiver<CloseRequest>,
}

impl Connections {
    pub(crate) fn open(&self) -> Connection {
        let (sender, close_requests) = mpsc::unbounded_channel();
        let mut registry = self.0.lock().unwrap();
        registry.opened.send_modify(|opened| *opened += 1);
        let id = *registry.opened.borrow();
        registry.open.insert(id, sender);
        Connection { id, registry: self.clone(), close_requests }
    }

    /// How many connections were opened so far.
    pub(crate) fn opened(&self) -> usize {
        *self.0.lock().unwrap().opened.borrow()
    }

    /// Returns once `n` connections were opened.
    pub(crate) async fn until_opened(&self, n: usize) {
        let mut opened = self.0.lock().unwrap().opened.subscribe();
        opened.wait_for(|opened| *opened >= n).await.expect("the registry holds the sender");
    }

    /// Requests every connection to close and blocks until all are closed.
    ///
    /// It blocks on purpose: the caller's runtime must not notice the closed connections before the caller continues.
    pub(crate) fn close(&self) {
        let (request, closed) = blocking::channel();
        for connection in self.0.lock().unwrap().open.values() {
            let _ = connection.send(CloseRequest::clone(&request));
        }
        drop(request);
        // Nothing is ever sent: the wait ends when the last copy of the request is dropped.
        let _ = closed.recv_timeout(Duration::from_secs(1));
    }
}

impl Connection {
    pub(crate) async fn close_requested(&mut self) -> CloseRequest {
        self.close_requests.recv().await.expect("the registry holds the sender while the connection is open")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.registry.0.lock().unwrap().open.remove(&self.id);
    }
}
