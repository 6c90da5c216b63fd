//! What a process takes of the machine.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// What processes have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, in KiB.
    pub memory_kib: usize,
    /// Open descriptors.
    pub descriptors: usize,
}

impl Usage {
    /// What this process has taken.
    pub fn of(process: u32) -> Usage {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        let memory_kib = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it is ours").count();
        Usage { memory_kib, descriptors }
    }

    /// What these have taken together.
    pub fn of_all(processes: &[u32]) -> Usage {
        processes.iter().map(|process| Usage::of(*process)).fold(Usage::default(), |sum, one| Usage {
            memory_kib: sum.memory_kib + one.memory_kib,
            descriptors: sum.descriptors + one.descriptors,
        })
    }
}

/// What a time under load has cost some processes.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Before it, and after the warm-up.
    pub before: Usage,
    /// After it.
    pub after: Usage,
}

impl Cost {
    /// Looks until no more descriptors are open than before and `more` (connections take a moment to close), or for long
    /// enough that they will never close.
    pub async fn since(before: Usage, processes: &[u32], more: Usage) -> Cost {
        let start = Instant::now();
        loop {
            let after = Usage::of_all(processes);
            let settled = after.descriptors <= before.descriptors + more.descriptors;
            if settled || start.elapsed() > Duration::from_secs(30) {
                return Cost { before, after };
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Nothing has grown by more than `more`.
    pub fn assert_within(&self, more: Usage, what: &str) {
        let Cost { before, after } = self;
        assert!(
            after.descriptors <= before.descriptors + more.descriptors,
            "{what}: descriptors leak: {self:?}"
        );
        assert!(after.memory_kib <= before.memory_kib + more.memory_kib, "{what}: memory grows: {self:?}");
    }
}
