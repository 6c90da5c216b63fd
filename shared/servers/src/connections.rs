use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc as blocking};
use std::time::Duration;

use tokio::sync::mpsc;

/// The open connections of one server, each of which can be told to close.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connections(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    opened: usize,
    open: HashMap<usize, mpsc::UnboundedSender<Order>>,
}

/// The order to close. Dropping it says that it was obeyed.
pub(crate) type Order = blocking::Sender<()>;

/// One open connection; it leaves the registry when dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    id: usize,
    registry: Connections,
    orders: mpsc::UnboundedReceiver<Order>,
}

impl Connections {
    pub(crate) fn open(&self) -> Connection {
        let (sender, orders) = mpsc::unbounded_channel();
        let mut registry = self.0.lock().unwrap();
        registry.opened += 1;
        let id = registry.opened;
        registry.open.insert(id, sender);
        Connection { id, registry: self.clone(), orders }
    }

    /// How many connections were opened so far.
    pub(crate) fn opened(&self) -> usize {
        self.0.lock().unwrap().opened
    }

    /// Tells every connection to close and blocks until each has obeyed.
    ///
    /// It blocks on purpose: the caller's runtime must not notice the closing before the caller goes on.
    pub(crate) fn close(&self) {
        let (order, obeyed) = blocking::channel();
        for connection in self.0.lock().unwrap().open.values() {
            let _ = connection.send(Order::clone(&order));
        }
        drop(order);
        // Nobody sends anything: the wait ends when the last copy of the order is gone.
        let _ = obeyed.recv_timeout(Duration::from_secs(1));
    }
}

impl Connection {
    pub(crate) async fn told_to_close(&mut self) -> Order {
        self.orders.recv().await.expect("the registry holds the sender while the connection is open")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.registry.0.lock().unwrap().open.remove(&self.id);
    }
}
