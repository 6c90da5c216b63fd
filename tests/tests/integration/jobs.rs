//! What `scripts/test` runs beside itself.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use onetap_tests::functions::root;
use tempfile::{TempDir, tempdir};

/// Time limit for processes to end, long enough for a busy machine and far below what they would sleep.
const END_TIMEOUT: Duration = Duration::from_secs(120);

/// A script that sources `scripts/jobs`.
fn script(logs: &TempDir, text: &str) -> Child {
    let text = format!("set -euo pipefail; logs={}; . scripts/jobs\n{text}", logs.path().display());
    // Whoever runs the tests may ignore a signal that the script is to end by, as `nohup` does.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,TERM", "bash"]);
    command.args(["-c", &text]).current_dir(root()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_build_that_gets_no_processor_beside_the_tests_gets_one_after_them() {
    let logs = tempdir().unwrap();
    // In place of the busy machine: a command that does nothing as long as it yields.
    let text = r#"
        begin_yielding build bash -c 'if [ "$(nice)" -gt "$0" ]; then exec sleep 1000; else echo built; fi' "$(nice)"
        finish_yielding"#;
    let output = script(&logs, text).wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && printed.ends_with("built\n"), "{printed}");
}

#[test]
fn a_build_that_gets_a_processor_is_left_alone() {
    let logs = tempdir().unwrap();
    // In place of a command that computes: each look finds five seconds more. After the fourth it ends.
    let text = r#"
        begin_yielding build bash -c 'echo begins; while [ ! -e "$0" ]; do sleep 0.1; done' "$logs/enough"
        used() {
            echo look >>"$logs/looks"
            looks=$(wc -l <"$logs/looks")
            if [ "$looks" -ge 4 ]; then touch "$logs/enough"; fi
            echo $((looks * 500))
        }
        finish_yielding"#;
    let output = script(&logs, text).wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "begins\n", "begun once");
}

#[test]
fn an_interrupted_script_leaves_no_process_behind() {
    for signal in ["-TERM", "-HUP"] {
        let logs = tempdir().unwrap();
        // A command beside it, and one that it waits for, each with a child of its own.
        let text = r#"
            begin beside bash -c 'sleep 1000; true'
            bash -c 'sleep 1000 & echo $!; wait' | while read -r pid; do
                while [ "$(tree "$pid_beside" | wc -l)" != 2 ]; do sleep 0.1; done
                echo "$pid" $(tree "$pid_beside")
            done"#;
        let mut child = script(&logs, text);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pids: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(pids.len(), 3, "{line}");
        let kill = format!("kill {signal} {}", child.id());
        let sent = Command::new("bash").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
        assert!(!child.wait().unwrap().success());
        for pid in pids {
            let limit = Instant::now() + END_TIMEOUT;
            while is_running(pid) && Instant::now() < limit {
                sleep(Duration::from_millis(20));
            }
            assert!(!is_running(pid), "{signal} left it behind");
        }
    }
}

/// Whether a process runs. One that has ended may wait for its parent to look at it.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
