//! A share of the processor, as Lambda gives it to a function once it has started.

use std::path::{Path, PathBuf};

use crate::Result;

/// Lambda counts processor time in periods of 20 ms. A function of 1 769 MB has one core.
const PERIOD_MICROS: u64 = 20_000;
const QUOTA_MICROS: u64 = PERIOD_MICROS * 256 / 1769;

/// A control group for one process: at full speed, until it is slowed down to a seventh of a core. Removed when dropped.
#[derive(Debug)]
pub struct Share {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug)]
enum Version {
    One,
    Two,
}

impl Share {
    /// `None` where this process may not make one: that takes root, and the cpu controller.
    pub fn new() -> Option<Share> {
        let name = format!("onetap-bench-{}", std::process::id());
        let candidates = [("/sys/fs/cgroup/cpu", Version::One), ("/sys/fs/cgroup", Version::Two)];
        candidates.into_iter().find_map(|(root, version)| {
            let folder = Path::new(root).join(&name);
            // An ordinary folder would do as well, were this no file system of control groups.
            let is_controlled = |share: &Share| share.folder.join("cgroup.procs").exists();
            std::fs::create_dir(&folder).ok()?;
            Some(Share { folder, version }).filter(is_controlled).filter(|share| share.full_speed().is_ok())
        })
    }

    /// The file that takes the id of a process.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// As much as there is.
    pub fn full_speed(&self) -> Result<()> {
        match self.version {
            Version::One => self.write("cpu.cfs_quota_us", "-1"),
            Version::Two => self.write("cpu.max", "max"),
        }
    }

    /// A seventh of a core.
    pub fn slow_down(&self) -> Result<()> {
        match self.version {
            Version::One => {
                self.write("cpu.cfs_period_us", &PERIOD_MICROS.to_string())?;
                self.write("cpu.cfs_quota_us", &QUOTA_MICROS.to_string())
            }
            Version::Two => self.write("cpu.max", &format!("{QUOTA_MICROS} {PERIOD_MICROS}")),
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.folder.join(file), text)?)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // It is empty: its processes ended before.
        let _ = std::fs::remove_dir(&self.folder);
    }
}
