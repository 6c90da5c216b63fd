//! From options and variables to a running bundle, and back to nothing.

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

use crate::arguments::Options;
use crate::environment::{Environment, Made};
use crate::runner::Runner;
use crate::stopping::Stop;
use crate::{live, server};

/// The port, unless another is asked for.
const PORT: u16 = 9000;
/// What stops has so long.
const GRACE: Duration = Duration::from_secs(3);

/// Why it does not start: one line.
#[derive(Debug)]
pub enum StartError {
    /// Somebody else listens there.
    PortTaken(u16),
    /// The port cannot be had for another reason.
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
                let next = port.checked_add(1).unwrap_or(PORT);
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

/// The bundle, running. [`stop`](Local::stop) it; dropped, it ends at once.
pub struct Local {
    runner: Arc<Runner>,
    made: Vec<Made>,
    stub: Option<String>,
    stop: Stop,
    tasks: Vec<JoinHandle<()>>,
    teller: JoinHandle<()>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local({})", self.runner.address)
    }
}

impl Local {
    /// Starts the functions that `variables` describe, on a loopback port. What is required and unset is made up.
    pub async fn start(options: &Options, variables: &Variables<'_>) -> Result<Local, StartError> {
        let listener = listen(options.port.unwrap_or(if options.demo { 0 } else { PORT })).await?;
        let address = listener.local_addr().map_err(|error| StartError::Port(0, error))?;
        let origin = format!("http://{address}");
        let mut environment = Environment::new(variables, options, &origin);
        let token = environment.variables().required("LINE_CHANNEL_ACCESS_TOKEN")?;
        // A port and a thread of its own: replies are taken however busy this runtime is.
        let api = MessagingApi::start(Secret::new(token)).map_err(|error| StartError::Port(0, error))?;
        let uses_stub = environment.line_stub(api.url(), options);
        let (stop, stopping) = Stop::new();
        let (runner, consumer) =
            Runner::build(&environment.variables(), options.times, address, api, stopping.clone())?;
        let made = environment.into_made();
        runner.furnish().await.map_err(|error| StartError::Store(runner.kind, error))?;

        let runner = Arc::new(runner);
        let (jobs, fuse) = (Arc::clone(&runner.jobs), Arc::clone(&runner.fuse));
        let tasks = vec![
            tokio::spawn(server::serve(listener, Arc::clone(&runner))),
            tokio::spawn(async move { jobs.consume(consumer, fuse, stopping).await }),
        ];
        let teller = tokio::spawn(live::tell(Arc::clone(&runner.view), Arc::clone(&runner.jobs)));
        Ok(Local { runner, made, stub: uses_stub.then_some(origin), stop, tasks, teller })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.runner.address
    }

    /// The page's address.
    pub fn url(&self) -> String {
        format!("http://{}", self.runner.address)
    }

    /// What was made up, because it was unset.
    pub fn made(&self) -> &[Made] {
        &self.made
    }

    /// What to say when it has started: where to look, and every secret that it made up; none that it was given.
    pub fn greeting(&self) -> String {
        let url = self.url();
        let mut lines = vec![format!("onetap is running: open {url}/"), String::new()];
        let mut row = |name: &str, text: String| lines.push(format!("  {name:<27} {text}"));
        row("store", self.runner.kind.to_owned());
        row(
            "LINE replies",
            self.stub.clone().map_or("go to LINE_API_BASE_URL".to_owned(), |url| {
                format!("are taken by a stub, POST {url}/v2/bot/message/reply")
            }),
        );
        row("metrics, health", format!("{url}/metrics  {url}/health"));
        if !self.made.is_empty() {
            lines.extend([String::new(), "Made up for this run, because unset:".to_owned()]);
            let made = self.made.iter();
            lines.extend(made.map(|made| format!("  {:<27} {}  {}", made.name, made.value, made.used)));
        }
        lines.extend([String::new(), "Ctrl-C stops it.".to_owned()]);
        lines.join("\n")
    }

    /// Stops: takes nothing new, ends the streams, lets the batch and the requests that run come to their end, within
    /// three seconds.
    pub async fn stop(mut self) {
        self.stop.now();
        let ended = async {
            for task in &mut self.tasks {
                let _ = task.await;
            }
        };
        let _ = timeout(GRACE, ended).await;
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.tasks.iter().chain([&self.teller]).for_each(JoinHandle::abort);
    }
}

async fn listen(port: u16) -> Result<TcpListener, StartError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken(port),
        _ => StartError::Port(port, error),
    })
}
