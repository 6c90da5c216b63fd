//! A limit on heavy tests that run at the same time.

use std::fs::File;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

/// How often a waiting test looks for a free slot.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A slot for a test that starts many processes or keeps to real time limits. There are as many slots as processors; the
/// next test waits.
///
/// Tests of one program run beside each other, and so do the programs. A slot is a locked file beside the test programs, so
/// that the limit holds between programs too. It is free again when its holder ends, however that ends.
#[derive(Debug)]
#[must_use = "the slot is free again when this is dropped"]
pub struct HeavyTest {
    _slot: File,
}

/// Waits for a free slot. A test asks once: its second request could wait for its first.
pub fn heavy_test() -> HeavyTest {
    let programs = std::env::current_exe().unwrap();
    let slots = available_parallelism().map_or(1, usize::from);
    loop {
        for slot in 0..slots {
            let slot = File::create(programs.with_file_name(format!("heavy-{slot}.lock"))).unwrap();
            if slot.try_lock().is_ok() {
                return HeavyTest { _slot: slot };
            }
        }
        sleep(LOOK_INTERVAL);
    }
}
