use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};
use std::thread;

type SpawnRequest = (Command, mpsc::Sender<io::Result<Child>>);

/// A command for a program that dies with this process, even when this process is killed outright. It must be
/// started by [`spawn`].
pub(crate) fn bound_to_this_process(program: impl AsRef<OsStr>) -> Command {
    // setpriv turns into the program, so the child's process id is the program's.
    if on_path("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// Starts a command from a thread that lives as long as the process.
///
/// The kernel sends the death signal when the *thread* that spawned the child ends, and a test's thread ends
/// with its test. So one thread spawns for all.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<SpawnRequest>();
        thread::spawn(move || {
            for (mut command, reply) in requests {
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, child) = mpsc::channel();
    spawner.send((command, reply)).expect("the spawner lives as long as the process");
    child.recv().expect("the spawner answers every request")
}

/// Whether a program of this name is installed.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}
