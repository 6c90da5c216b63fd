//! The sections of the table, each a file: what is measured, in which order, and what it should reach.

pub mod counts;
pub mod first_byte;
pub mod first_tap;
pub mod scale;
pub mod start;
pub mod store;
pub mod streams;
pub mod throughput;
pub mod warm;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use onetap_servers::{Backend, Environment, dynamo};
use serde_json::{json, to_string};
use tokio::runtime::Runtime;

use crate::contestant::Contestant;
use crate::report::Row;
use crate::worker::Variables;
use crate::{Error, Result};

/// Where things are, from the root of the repository.
const PROGRAMS: &str = "target/release";
const UPSTASH_PROGRAMS: &str = "target/bench-upstash/release";
const PYTHON: &str = "target/tools/bench/bin/python";
const NODE_MODULES: &str = "target/tools/bench-npm/node_modules";
const PEERS: &str = "bench/peers";
/// The table of Powertools, beside our own.
const POWERTOOLS_TABLE: &str = "powertools";

/// How much is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Fewer rounds.
    pub quick: bool,
    /// Only rows whose section and name contain this.
    pub only: Option<String>,
}

impl Options {
    /// One number for a quick run, another for a full one.
    pub fn either<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A benchmark under way: the servers, and the rows so far.
#[derive(Debug)]
pub struct Bench {
    /// How much is asked for.
    pub options: Options,
    /// The rows so far.
    pub rows: Vec<Row>,
    started: Instant,
    runtime: Runtime,
    /// By the name that rows call them.
    stores: Vec<(&'static str, Environment)>,
}

impl Bench {
    /// Starts the servers.
    pub fn start(options: Options) -> Result<Bench> {
        std::fs::create_dir_all("target/bench")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut backends =
            vec![("redis", Backend::Redis), ("upstash", Backend::Upstash), ("dynamodb", Backend::DynamoDb)];
        if std::env::var_os("ONETAP_DYNAMODB_LOCAL").is_some() {
            backends.push(("dynamodb-local", Backend::DynamoDbLocal));
        }
        let stores = backends
            .into_iter()
            .map(|(name, backend)| {
                let environment = runtime.block_on(Environment::start(backend));
                // One stream, so that a bare call and ours append to the same.
                (name, environment.with("EVENT_SHARD_COUNT", "1"))
            })
            .collect();
        let bench = Bench { options, rows: Vec::new(), started: Instant::now(), runtime, stores };
        let endpoint = bench.variable("dynamodb", "AWS_ENDPOINT_URL_DYNAMODB")?;
        let definition = json!({
            "TableName": POWERTOOLS_TABLE,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{ "AttributeName": "id", "AttributeType": "S" }],
            "KeySchema": [{ "AttributeName": "id", "KeyType": "HASH" }],
        });
        bench.runtime.block_on(dynamo::call(&endpoint, "CreateTable", &definition));
        Ok(bench)
    }

    /// Tells what is going on.
    pub fn say(&self, what: &str) {
        eprintln!("{:4.0} s  {what}", self.started.elapsed().as_secs_f64());
    }

    /// Seconds since the servers were up.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Whether this row is asked for.
    pub fn wants(&self, section: &str, name: &str) -> bool {
        let only = self.options.only.as_deref();
        only.is_none_or(|only| format!("{section} {name}").to_lowercase().contains(&only.to_lowercase()))
    }

    /// The names of the stores.
    pub fn stores(&self) -> Vec<&'static str> {
        self.stores.iter().map(|(name, _)| *name).collect()
    }

    /// A store's variables.
    pub fn variables(&self, store: &str) -> Result<Vec<(String, String)>> {
        let found = self.stores.iter().find(|(name, _)| *name == store);
        let (_, environment) = found.ok_or_else(|| Error::from(format!("no store {store}")))?;
        Ok(environment.variables().iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    }

    fn variable(&self, store: &str, name: &str) -> Result<String> {
        let found = self.variables(store)?.into_iter().find(|(known, _)| known == name);
        Ok(found.ok_or_else(|| format!("{store} has no {name}"))?.1)
    }

    /// The environment of our worker: every store, and `more`.
    pub fn worker_variables(&self, more: HashMap<String, Variables>) -> Result<Vec<(String, String)>> {
        let mut stores = more;
        for name in self.stores() {
            stores.insert(name.to_owned(), self.variables(name)?.into_iter().collect());
        }
        Ok(vec![("BENCH_STORES".to_owned(), to_string(&stores)?)])
    }

    /// Our worker, with `more` stores than there are anyway.
    pub fn worker(&self, more: HashMap<String, Variables>) -> Result<Contestant> {
        Contestant::start("worker", &example("worker"), &[], &self.worker_variables(more)?)
    }

    /// The environment of the peers, on the same servers.
    pub fn peer_variables(&self) -> Result<Vec<(String, String)>> {
        let region = self.variable("dynamodb", "AWS_REGION")?;
        let here = std::env::current_dir()?;
        let mut variables = vec![
            ("REDIS_URL".to_owned(), self.variable("redis", "REDIS_URL")?),
            ("AWS_DEFAULT_REGION".to_owned(), region),
            ("POWERTOOLS_TABLE".to_owned(), POWERTOOLS_TABLE.to_owned()),
            ("BENCH_MODULES".to_owned(), here.join(NODE_MODULES).display().to_string()),
            ("PYTHONPATH".to_owned(), PEERS.to_owned()),
            // The packages were compiled when they were installed; the peer itself is a page.
            ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
        ];
        variables
            .extend(self.variables("dynamodb")?.into_iter().filter(|(name, _)| name.starts_with("AWS_")));
        Ok(variables)
    }

    /// Powertools in Python.
    pub fn python(&self, variables: &[(String, String)]) -> Result<Contestant> {
        Contestant::start("python", Path::new(PYTHON), &[Path::new(PEERS).join("powertools.py")], variables)
    }

    /// Powertools in JavaScript.
    pub fn node(&self, variables: &[(String, String)]) -> Result<Contestant> {
        Contestant::start("node", Path::new("node"), &[Path::new(PEERS).join("powertools.mjs")], variables)
    }

    /// Waits for something of the servers.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// The release build of an example of this package.
pub fn example(name: &str) -> PathBuf {
    Path::new(PROGRAMS).join("examples").join(name)
}

/// `1234567` as `1 234 567`.
pub fn number(number: usize) -> String {
    crate::report::Unit::Pieces.show(number as f64)
}
