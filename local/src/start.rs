//! Starts and stops the bundle.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use onetap_config::{ConfigError, Secret, Variables};
use onetap_line::testing::MessagingApi;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::arguments::Options;
use crate::bot::OwnBot;
use crate::environment::{Environment, Generated};
use crate::runner::Runner;
use crate::{demo, live, server};

const DEFAULT_PORT: u16 = 9000;
/// Time limit for [`Local::stop`].
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the bundle does not start. Its text is one line.
#[derive(Debug)]
pub enum StartError {
    /// Another program listens on this port.
    PortTaken(u16),
    /// The port cannot be used for another reason.
    Port(u16, io::Error),
    /// A variable is missing or wrong.
    Config(ConfigError),
    /// The store does not answer.
    Store(&'static str, onetap_store::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::PortTaken(port) => {
                let next = port.checked_add(1).unwrap_or(DEFAULT_PORT);
                write!(f, "port {port} is taken: stop what listens there, or try --port {next}")
            }
            StartError::Port(port, error) => write!(f, "port {port} cannot be used: {error}"),
            StartError::Config(error) => write!(f, "{error}"),
            StartError::Store(kind, error) => write!(f, "STORE={kind}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> StartError {
        StartError::Config(error)
    }
}

/// The running bundle. [`Local::stop`] ends it gracefully, a drop ends it at once.
pub struct Local {
    runner: Arc<Runner>,
    generated: Vec<Generated>,
    line_stub: Option<String>,
    /// What a graceful stop waits for: the server and the consumer.
    tasks: Vec<JoinHandle<()>>,
    updates: JoinHandle<()>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local({})", self.runner.address)
    }
}

impl Local {
    /// Starts the functions that `variables` describe, on a loopback port. Secrets that are required and unset are
    /// generated.
    pub async fn start(options: &Options, variables: &Variables<'_>) -> Result<Local, StartError> {
        Local::start_with(options, variables, None).await
    }

    /// The same, where the phone talks to a bot of your own.
    pub async fn start_with(
        options: &Options,
        variables: &Variables<'_>,
        own_bot: Option<OwnBot>,
    ) -> Result<Local, StartError> {
        let listener = listen(options.port.unwrap_or(if options.demo { 0 } else { DEFAULT_PORT })).await?;
        let address = listener.local_addr().map_err(|error| StartError::Port(0, error))?;
        let origin = format!("http://{address}");
        if variables.optional("LINE_CHANNELS")?.is_some() {
            let problem = "is not for the local runner, which serves one channel: unset it";
            return Err(ConfigError::new("LINE_CHANNELS", problem).into());
        }
        let mut environment = Environment::new(variables, options, &origin);
        let token = environment.variables().required("LINE_CHANNEL_ACCESS_TOKEN")?;
        // It has a port and a thread of its own: a busy runtime does not delay replies.
        let api = MessagingApi::start(Secret::new(token)).map_err(|error| StartError::Port(0, error))?;
        let uses_stub = environment.line_stub(api.url(), options);
        let shutdown = CancellationToken::new();
        let times = if options.demo { demo::TIMES } else { options.times };
        let (runner, consumer) =
            Runner::build(&environment.variables(), times, address, api, own_bot, shutdown.clone())?;
        let generated = environment.into_generated();
        runner.begin().await.map_err(|error| StartError::Store(runner.backend, error))?;

        let runner = Arc::new(runner);
        let (queue, store) = (Arc::clone(&runner.queue), Arc::clone(&runner.consumer_store));
        let tasks = vec![
            tokio::spawn(server::serve(listener, Arc::clone(&runner))),
            tokio::spawn(async move { queue.consume(consumer, store, shutdown).await }),
        ];
        let updates = tokio::spawn(live::send_updates(Arc::clone(&runner.view), Arc::clone(&runner.queue)));
        Ok(Local { runner, generated, line_stub: uses_stub.then_some(origin), tasks, updates })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.runner.address
    }

    /// The page's address.
    pub fn url(&self) -> String {
        format!("http://{}", self.runner.address)
    }

    /// The secrets that were generated because they were unset.
    pub fn generated(&self) -> &[Generated] {
        &self.generated
    }

    /// The text for a start: the addresses, and every generated secret. It shows no secret that was set.
    pub fn greeting(&self) -> String {
        let url = self.url();
        let mut lines = vec![format!("onetap is running: open {url}/"), String::new()];
        let mut row = |name: &str, text: String| lines.push(format!("  {name:<27} {text}"));
        row("store", self.runner.backend.to_owned());
        row(
            "LINE replies",
            self.line_stub.clone().map_or("go to LINE_API_BASE_URL".to_owned(), |url| {
                format!("are taken by a stub, POST {url}/v2/bot/message/reply")
            }),
        );
        row("metrics, health", format!("{url}/metrics  {url}/health"));
        if !self.generated.is_empty() {
            lines.extend([String::new(), "Made up for this run, because unset:".to_owned()]);
            let generated = self.generated.iter();
            lines.extend(generated.map(|one| format!("  {:<27} {}  {}", one.name, one.value, one.used)));
        }
        lines.extend([String::new(), "Ctrl-C stops it.".to_owned()]);
        lines.join("\n")
    }

    /// Stops gracefully: accepts no connections, ends the streams, and waits up to three seconds for the requests and
    /// the batch that run.
    pub async fn stop(mut self) {
        self.runner.shutdown.cancel();
        let ended = async {
            for task in &mut self.tasks {
                let _ = task.await;
            }
        };
        let _ = timeout(STOP_TIMEOUT, ended).await;
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.runner.shutdown.cancel();
        self.tasks.iter().chain([&self.updates]).for_each(JoinHandle::abort);
    }
}

async fn listen(port: u16) -> Result<TcpListener, StartError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken(port),
        _ => StartError::Port(port, error),
    })
}
