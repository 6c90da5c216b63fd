//! The program: how it starts, fails to start, and ends.

use crate::support;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Stdio};

use http::Method;
use onetap_local::client::Client;
use serde_json::json;
use support::{BOB, program, tap};

/// Runs it to its end: the exit code, and what it said on standard error.
fn run(arguments: &[&str], variables: &[(&str, String)]) -> (Option<i32>, String) {
    let output = program(variables).args(arguments).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// One line, of which this is a part.
fn is_one_line(text: &str, part: &str) {
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    assert!(text.contains(part), "{text}");
}

#[test]
fn an_argument_that_it_does_not_know_is_named_in_one_line() {
    for (arguments, named) in
        [(&["--prot", "1"][..], "--prot"), (&["--port", "x"], "`x`"), (&["serve"], "serve")]
    {
        let (code, said) = run(arguments, &[]);
        assert_eq!(code, Some(2), "{said}");
        is_one_line(&said, named);
    }
}

#[test]
fn help_is_help() {
    let output = program(&[]).arg("--help").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(["--port", "--store", "--demo"].iter().all(|argument| said.contains(argument)), "{said}");
}

#[test]
fn a_port_that_is_taken_is_said_in_one_line() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, said) = run(&["--port", &port], &[]);
    assert_eq!(code, Some(1), "{said}");
    is_one_line(&said, &format!("port {port} is taken"));
    assert!(said.contains("--port"), "{said}");
}

#[test]
fn a_wrong_variable_is_named_in_one_line() {
    for (name, value) in [
        ("LAST_TRANSACTION_TTL", "soon"),
        ("PROCESSING_LOCK_SCOPE", "some"),
        ("STORE", "sqlite"),
        ("WEATHER_PROVIDER", "crystal-ball"),
        ("EVENT_SHARD_COUNT", "0"),
        ("SSE_MAX_SECONDS", "-1"),
    ] {
        let (code, said) = run(&["--port", "0"], &[(name, value.to_owned())]);
        assert_eq!(code, Some(1), "{said}");
        is_one_line(&said, name);
    }
    let (code, said) = run(&["--port", "0", "--store", "redis"], &[]);
    assert_eq!(code, Some(1));
    is_one_line(&said, "REDIS_URL");
}

#[test]
fn a_store_that_is_not_there_is_said_and_its_address_is_not() {
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let url = format!("redis://:planted-password@{closed}");
    let (code, said) = run(&["--port", "0", "--store", "redis"], &[("REDIS_URL", url)]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.lines().last().unwrap().starts_with("STORE=redis: the store is unavailable"), "{said}");
    assert!(!said.contains("planted-password"), "{said}");
}

/// The program while it runs, and where it listens.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    url: String,
}

impl Running {
    fn start() -> Running {
        let command =
            program(&[]).args(["--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = command.unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let url = line.trim_end().strip_prefix("onetap is running: open ");
        let url = url.unwrap_or_else(|| panic!("{line}")).trim_end_matches('/').to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{line}");
        Running { child, out, url }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_a_polite_request_stop_it_with_success() {
    use rustix::process::{Pid, Signal, kill_process};

    for signal in [Signal::INT, Signal::TERM] {
        let mut running = Running::start();
        let mut line = String::new();
        while !line.contains("Ctrl-C") {
            line.clear();
            assert!(running.out.read_line(&mut line).unwrap() > 0, "it ended before it was asked to");
        }
        let pid = Pid::from_child(&running.child);
        kill_process(pid, signal).unwrap();
        assert_eq!(running.child.wait().unwrap().code(), Some(0), "{signal:?}");
        let mut said = String::new();
        running.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "", "it had nothing to warn of");
    }
}

/// Metrics are counted for a whole process: only a process of its own has an exact count.
#[tokio::test]
async fn metrics_tell_of_the_taps() {
    let running = Running::start();
    let client = Client::new(&running.url);
    let tap = json!({ "user": BOB, "events": [tap("action=settings")], "times": 1 });
    client.json(Method::POST, "/playground/deliver", &tap).await.unwrap();
    let metrics = client.call(Method::GET, "/metrics", &[], String::new()).await.unwrap().text;
    assert!(
        metrics.contains(r#"line_webhook_events_total{event_type="postback",outcome="handled"} 1"#),
        "{metrics}"
    );
}
