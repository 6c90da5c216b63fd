//! The program: how it starts, fails to start, and ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "these are tests")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use support::program;

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

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_and_a_polite_request_stop_it_with_success() {
    use rustix::process::{Pid, Signal, kill_process};

    for signal in [Signal::INT, Signal::TERM] {
        let command =
            program(&[]).args(["--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut running = Running(command.unwrap());
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with("onetap is running: open http://127.0.0.1:"), "{line}");
        while !line.contains("Ctrl-C") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended before it was asked to");
        }
        let pid = Pid::from_child(&running.0);
        kill_process(pid, signal).unwrap();
        assert_eq!(running.0.wait().unwrap().code(), Some(0), "{signal:?}");
        let mut said = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "", "it had nothing to warn of");
    }
}
