//! A lock for heavy tests: one at a time.

use std::fs::File;

/// Held by a test that starts many processes or keeps to real time limits: while one is held, the next waits.
///
/// Tests of one program run beside each other, and some runners start several programs at once. The lock is a file
/// beside the test programs, so that it holds between them too. It ends with its holder, however that ends.
#[derive(Debug)]
#[must_use = "the next heavy test starts when this is dropped"]
pub struct Alone {
    _lock: File,
}

/// Waits for the lock. A test takes it once: a second time would wait for the first.
pub fn alone() -> Alone {
    let programs = std::env::current_exe().unwrap();
    let lock = File::create(programs.with_file_name("alone.lock")).unwrap();
    lock.lock().unwrap();
    Alone { _lock: lock }
}
