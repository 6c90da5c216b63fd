//! Upstash and Redis servers: the checks of both, over either protocol.

mod info;
mod protocol;
mod rest;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use onetap_config::{ConfigError, Variables};
use onetap_store::lease::unique_token;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use self::info::Info;
use self::protocol::Protocol;
use self::rest::Rest;
use crate::clock::{Skew, describe};
use crate::store::{CLOCK, CREDENTIALS, OF, REACHABLE, REQUEST_TIMEOUT};
use crate::{Finding, Report};

pub(crate) const VERSION: &str = "version";
pub(crate) const EVICTION: &str = "eviction";
pub(crate) const CLUSTER: &str = "cluster";
pub(crate) const ROLE: &str = "role";
pub(crate) const PUBLISH: &str = "publish";
pub(crate) const KEY_LOCKING: &str = "key-locking";

/// Before a command that a busy service did not take is sent again.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Why a command has no reply.
pub(crate) enum Failure {
    /// There is no answer, or none of a Redis server: in our words.
    NoAnswer(&'static str),
    /// The service answers that it cannot: in our words.
    Unavailable(&'static str),
    /// The server's error. It may quote what was sent, so that it is looked at and never shown.
    Refused(String),
}

/// A database, and how to send it any command: the store offers only its own.
pub(crate) enum Server {
    /// Upstash's REST API.
    Upstash(Rest),
    /// The Redis protocol.
    Redis(Box<Protocol>),
}

impl Server {
    pub(crate) fn upstash(variables: &Variables<'_>) -> Result<Server, ConfigError> {
        Rest::new(variables).map(Server::Upstash)
    }

    pub(crate) fn redis(variables: &Variables<'_>) -> Result<Server, ConfigError> {
        Ok(Server::Redis(Box::new(Protocol::new(variables)?)))
    }

    fn name(&self) -> &'static str {
        match self {
            Server::Upstash(_) => "upstash",
            Server::Redis(_) => "redis",
        }
    }

    async fn command(&self, parts: &[&str]) -> Result<Value, Failure> {
        let reply = async {
            match self {
                Server::Upstash(rest) => rest.command(parts).await,
                Server::Redis(protocol) => protocol.command(parts).await,
            }
        };
        let late = Failure::NoAnswer("no answer within 5 s");
        timeout(REQUEST_TIMEOUT, reply).await.unwrap_or(Err(late))
    }

    /// What to do where this user may not write.
    pub(crate) fn rights_remedy(&self) -> &'static str {
        match self {
            Server::Upstash(_) => "Use the token that may also write, not the read-only one.",
            Server::Redis(_) => {
                "Let the user read, write and run scripts: `+@read +@write +eval +evalsha` on `~*` in ACL SETUSER."
            }
        }
    }

    async fn info(&self) -> Option<Info> {
        match self.command(&["INFO"]).await {
            Ok(Value::String(text)) => Some(Info::new(text)),
            _ => None,
        }
    }

    /// How many bytes the server may still take, if it has a limit and INFO contains it.
    pub(crate) async fn memory_left(&self) -> Option<u64> {
        self.info().await?.memory_left()
    }

    /// Whether this user may read a key of this name. (If it is not known, yes.)
    pub(crate) async fn may_read(&self, name: &str) -> bool {
        !matches!(self.command(&["GET", name]).await, Err(Failure::Refused(error)) if is_denied(&error))
    }

    /// Removes keys, whatever they hold, and what a cleared log leaves behind for a minute. Goes on after a failure, and
    /// repeats what a busy service did not take for as long as the caller waits.
    pub(crate) async fn remove(&self, names: &[String]) -> Result<(), String> {
        let marks = names.iter().map(|name| format!("{name}\u{1f}cleared"));
        let all: Vec<String> = names.iter().cloned().chain(marks).collect();
        let mut left: VecDeque<&[String]> = all.chunks(100).collect();
        let mut removed = Ok(());
        while let Some(names) = left.pop_front() {
            let command: Vec<&str> = ["DEL"].into_iter().chain(names.iter().map(String::as_str)).collect();
            match self.command(&command).await {
                Ok(_) => {}
                Err(Failure::Unavailable(_)) => {
                    left.push_back(names);
                    sleep(BUSY_PAUSE).await;
                }
                Err(Failure::NoAnswer(why)) => removed = Err(why.to_owned()),
                Err(Failure::Refused(_)) => removed = Err("the server refuses DEL".to_owned()),
            }
        }
        removed
    }
}

pub(crate) async fn examine(server: &Server, report: &mut Report) {
    let of = server.name();
    let (reachable, credentials) = reach(server).await;
    let needed = [&reachable, &credentials].into_iter().find(|it| it.remedy.is_some()).cloned();
    report.add(reachable);
    report.add(credentials);
    if let Some(needed) = needed {
        report.skip(OF, &[CLOCK], &needed);
        report.skip(of, &[VERSION, CLUSTER, ROLE, EVICTION], &needed);
        return;
    }
    report.add(clock(server).await);
    info::examine(of, server.info().await.as_ref(), report);
}

/// What scripts may do, once it is known that the server takes writes; `needed` is what shows that it does not.
pub(crate) async fn scripts(server: &Server, needed: Option<&Finding>, report: &mut Report) {
    let of = server.name();
    match needed {
        Some(needed) => report.skip(of, &[PUBLISH, KEY_LOCKING], needed),
        None => {
            report.add(publish(server).await);
            report.add(key_locking(server).await);
        }
    }
}

async fn reach(server: &Server) -> (Finding, Finding) {
    let of = server.name();
    let (address, secret) = match server {
        Server::Upstash(rest) => (rest.url_name, rest.token_name),
        Server::Redis(_) => ("REDIS_URL", "the password in REDIS_URL"),
    };
    let reachable = Finding::ok(OF, REACHABLE, format!("{of} answers"));
    match server.command(&["PING"]).await {
        Err(Failure::NoAnswer(why)) => {
            unreachable(why, format!("Check {address}, and that this machine may connect to it."))
        }
        Err(Failure::Unavailable(why)) => unreachable(
            why,
            "Look at the service's status page and what is left of its plan, and run this again.".to_owned(),
        ),
        Err(Failure::Refused(error)) if is_about_credentials(&error) => {
            let remedy = format!("Set {secret} to what the service's console shows.");
            (reachable, Finding::wrong(OF, CREDENTIALS, "the service does not accept them", remedy))
        }
        Err(Failure::Refused(error)) if error.contains("DB index") => unreachable(
            "the server has no database of this number",
            format!("Correct the number at the end of {address}."),
        ),
        // Not every user may send this command.
        Err(Failure::Refused(error)) if !is_denied(&error) => unreachable(
            "the server refuses every command",
            format!("Look at the service's status page, what is left of its plan, and {address}."),
        ),
        Ok(_) | Err(Failure::Refused(_)) => (reachable, Finding::ok(OF, CREDENTIALS, "accepted")),
    }
}

fn unreachable(why: &str, remedy: String) -> (Finding, Finding) {
    let reachable = Finding::wrong(OF, REACHABLE, why, remedy);
    let credentials = Finding::needs(OF, CREDENTIALS, &reachable);
    (reachable, credentials)
}

/// Whether a command is refused because this user may not send it, or not with these keys.
fn is_denied(error: &str) -> bool {
    error.contains("NOPERM")
}

fn is_about_credentials(error: &str) -> bool {
    ["WRONGPASS", "NOAUTH", "invalid password", "Unauthorized"].iter().any(|words| error.contains(words))
}

/// Nothing depends on it: the server's clock alone judges what has expired.
async fn clock(server: &Server) -> Finding {
    let sent = SystemTime::now();
    let answer = server.command(&["TIME"]).await;
    let received = SystemTime::now();
    let number = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64(),
    };
    let time = answer.ok().as_ref().and_then(Value::as_array).and_then(|parts| match &parts[..] {
        [seconds, micros] => {
            Some(Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?))
        }
        _ => None,
    });
    let Some(time) = time else {
        return Finding::skipped(OF, CLOCK, "the server does not answer TIME to this user");
    };
    let skew = Skew::new(time, Duration::from_millis(1), sent, received);
    if !skew.is_too_large() {
        return Finding::ok(OF, CLOCK, describe(skew));
    }
    let remedy = "Synchronise this machine's clock by NTP; the store itself uses the server's clock only.";
    Finding::warning(OF, CLOCK, describe(skew), remedy)
}

/// Whether the script that commits a batch may publish, else whether a command may.
async fn publish(server: &Server) -> Finding {
    const SCRIPT: &str = "return redis.call('PUBLISH', ARGV[1], '')";
    let of = server.name();
    let channel = format!("test:{}", unique_token());
    match server.command(&["EVAL", SCRIPT, "0", &channel]).await {
        Ok(_) => Finding::ok(of, PUBLISH, "a script may publish"),
        Err(Failure::NoAnswer(why) | Failure::Unavailable(why)) => unanswered(of, PUBLISH, why),
        Err(Failure::Refused(_)) => match server.command(&["PUBLISH", &channel, ""]).await {
            Ok(_) => {
                let seen = "a script may not publish, a command may: each event costs a second request";
                Finding::warning(
                    of,
                    PUBLISH,
                    seen,
                    "Allow PUBLISH in scripts, if the service has a setting for it.",
                )
            }
            Err(Failure::NoAnswer(why) | Failure::Unavailable(why)) => unanswered(of, PUBLISH, why),
            // The user may be limited to the channels that the functions use.
            Err(Failure::Refused(error)) if error.contains("channel") => Finding::warning(
                of,
                PUBLISH,
                "this user may not publish on every channel",
                "Check that it may on `{domain}:events:*` of your domains (`&scan:events:*` in ACL SETUSER).",
            ),
            Err(Failure::Refused(_)) => {
                let seen = "this user may not publish: streams of job events do not hear of new events";
                Finding::wrong(
                    of,
                    PUBLISH,
                    seen,
                    "Grant the user `+publish &*` (ACL SETUSER), or use another user.",
                )
            }
        },
    }
}

/// Whether the first line is understood by which Upstash locks a script's keys instead of the whole database.
async fn key_locking(server: &Server) -> Finding {
    const SCRIPT: &str = "#!lua flags=allow-key-locking\nreturn 1";
    let of = server.name();
    match (server.command(&["EVAL", SCRIPT, "0"]).await, server) {
        (Ok(_), Server::Upstash(_)) => {
            Finding::ok(of, KEY_LOCKING, "understood: a script locks its own keys")
        }
        (Ok(_), Server::Redis(_)) => {
            Finding::ok(of, KEY_LOCKING, "understood, and not used on this protocol")
        }
        (Err(Failure::NoAnswer(why) | Failure::Unavailable(why)), _) => unanswered(of, KEY_LOCKING, why),
        (Err(Failure::Refused(_)), Server::Redis(_)) => {
            Finding::ok(of, KEY_LOCKING, "not understood, and not needed: this protocol does not use it")
        }
        (Err(Failure::Refused(_)), Server::Upstash(rest)) => Finding::warning(
            of,
            KEY_LOCKING,
            "not understood: a script locks the whole database, so that batches wait for each other",
            format!(
                "Check that {} is Upstash's own address and not that of a proxy before Redis.",
                rest.url_name
            ),
        ),
    }
}

fn unanswered(of: &'static str, check: &'static str, why: &str) -> Finding {
    Finding::wrong(of, check, why, "Look at the service's status page, and run this again.")
}
