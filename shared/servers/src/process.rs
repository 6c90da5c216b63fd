use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};
use std::thread;

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts a program that dies with this process, even when this process is killed outright.
///
/// The kernel sends the death signal when the *thread* that spawned the child ends, and a test's thread ends
/// with its test. So one thread, which lives as long as the process, spawns for all.
pub(crate) fn spawn_bound_to_this_process(program: &str, arguments: &[&str]) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in orders {
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });

    // setpriv turns into the program, so the child's process id is the program's.
    let mut command = if on_path("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]);
        command
    } else {
        Command::new(program)
    };
    command.args(arguments).stdin(null()).stdout(null()).stderr(null());

    let (reply, child) = mpsc::channel();
    spawner.send((command, reply)).expect("the spawner lives as long as the process");
    child.recv().expect("the spawner answers every order")
}

/// Whether a program of this name is installed.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}

fn null() -> std::process::Stdio {
    std::process::Stdio::null()
}
