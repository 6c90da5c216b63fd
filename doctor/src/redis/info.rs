//! What a server says of itself: the reply to INFO.

use super::{CLUSTER, EVICTION, ROLE, VERSION};
use crate::{Finding, Report};

/// `SET … NX GET`, by which a lock is taken, needs this version.
const OLDEST_MAJOR_VERSION: u64 = 7;

/// The reply to INFO: lines `name:value`.
pub(super) struct Info(String);

impl Info {
    pub(super) fn new(text: String) -> Info {
        Info(text)
    }

    /// A value, if it is there and no more than a word: it is shown.
    fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.0.lines().filter_map(|line| line.split_once(':'));
        let value = values.find(|(known, _)| *known == name)?.1.trim();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
        ((1..=40).contains(&value.len()) && value.bytes().all(plain)).then_some(value)
    }

    /// How many bytes the server may still take; none if it has no limit.
    pub(super) fn memory_left(&self) -> Option<u64> {
        let [limit, used] = ["maxmemory", "used_memory"].map(|name| self.get(name)?.parse::<u64>().ok());
        limit.filter(|limit| *limit > 0)?.checked_sub(used?).or(Some(0))
    }
}

pub(super) fn examine(of: &'static str, info: Option<&Info>, report: &mut Report) {
    let get = |name: &str| info.and_then(|info| info.get(name));
    let unknown = |check| match info {
        Some(_) => Finding::skipped(of, check, "INFO does not contain it"),
        None => Finding::skipped(of, check, "the server does not answer INFO to this user"),
    };
    let found = [
        match (get("redis_version"), get("upstash_version")) {
            (_, Some(version)) if of == "redis" => upstash(of, version),
            (Some(version), _) => judge_version(of, version),
            (None, _) => unknown(VERSION),
        },
        get("cluster_enabled").map_or_else(|| unknown(CLUSTER), |enabled| cluster(of, enabled)),
        get("role").map_or_else(|| unknown(ROLE), |name| role(of, name)),
        get("maxmemory_policy")
            .map_or_else(|| unknown_eviction(of, unknown(EVICTION)), |policy| eviction(of, policy)),
    ];
    found.into_iter().for_each(|finding| report.add(finding));
}

fn judge_version(of: &'static str, version: &str) -> Finding {
    let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
    // Upstash is a server of its own, which names the version that it is compatible with.
    if of == "redis" && major.is_some_and(|major| major < OLDEST_MAJOR_VERSION) {
        return Finding::wrong(of, VERSION, version, "Upgrade the server to Redis 7 or newer, or to Valkey.");
    }
    Finding::ok(of, VERSION, version)
}

/// Upstash answers to the Redis protocol, too, but not every command as Redis does.
fn upstash(of: &'static str, version: &str) -> Finding {
    let remedy = "Set STORE=upstash, and UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN to what Upstash's console \
                  shows for this database.";
    Finding::wrong(of, VERSION, format!("Upstash {version}, which is used over its REST API"), remedy)
}

fn cluster(of: &'static str, enabled: &str) -> Finding {
    if enabled == "0" {
        return Finding::ok(of, CLUSTER, "off");
    }
    let seen = "on: one commit writes several keys, and a cluster refuses keys of different slots";
    Finding::wrong(of, CLUSTER, seen, "Point REDIS_URL at a server with cluster mode disabled.")
}

fn role(of: &'static str, role: &str) -> Finding {
    if role == "master" {
        return Finding::ok(of, ROLE, "primary");
    }
    let seen = "a replica: it takes no writes, and what it reads may be old";
    Finding::wrong(of, ROLE, seen, "Point REDIS_URL at the primary.")
}

fn eviction(of: &'static str, policy: &str) -> Finding {
    if policy == "noeviction" {
        return Finding::ok(of, EVICTION, policy);
    }
    let seen = format!(
        "{policy}: when memory is full a marker can be evicted, and what it stands for happens again"
    );
    let remedy = match of {
        "upstash" => "Disable Eviction on the Configuration tab of the database in Upstash's console.",
        _ => "Set `maxmemory-policy noeviction` in the server's configuration.",
    };
    Finding::warning(of, EVICTION, seen, remedy)
}

fn unknown_eviction(of: &'static str, unknown: Finding) -> Finding {
    if of != "upstash" {
        return unknown;
    }
    let seen =
        format!("{}; Eviction on the Configuration tab of Upstash's console should be off", unknown.seen);
    Finding { seen, ..unknown }
}

#[cfg(test)]
mod tests {
    use crate::{Format, Status};

    use super::*;

    fn statuses(of: &'static str, info: Option<&str>) -> Vec<(&'static str, Status)> {
        let mut report = Report::new(Format::Json, std::io::sink());
        examine(of, info.map(|text| Info::new(text.to_owned())).as_ref(), &mut report);
        report.findings().iter().map(|finding| (finding.check, finding.status)).collect()
    }

    #[test]
    fn what_info_does_not_contain_is_skipped() {
        let skipped = [VERSION, CLUSTER, ROLE, EVICTION].map(|check| (check, Status::Skipped));
        assert_eq!(statuses("upstash", None), skipped);
        assert_eq!(statuses("upstash", Some("# Server\r\nupstash_version:1.2\r\n")), skipped);
    }

    #[test]
    fn a_server_that_lacks_a_command_of_ours_is_wrong() {
        let version = |of, version: &str| statuses(of, Some(&format!("redis_version:{version}\r\n")))[0].1;
        assert_eq!(version("redis", "6.2.14"), Status::Wrong);
        assert_eq!([version("redis", "7.0.15"), version("redis", "8.2.1")], [Status::Ok; 2]);
        assert_eq!(version("upstash", "6.2.6"), Status::Ok);
    }
}
