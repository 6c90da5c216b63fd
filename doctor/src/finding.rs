//! What a check has found.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, and something about it should be known or changed.
    Warning,
    /// It does not work, or not as promised.
    Wrong,
    /// Not checked: it is not used, it cannot be seen, or a check that it needs has failed.
    Skipped,
}

impl Status {
    /// All of them, in the order of the sum.
    pub const ALL: [Status; 4] = [Status::Ok, Status::Warning, Status::Wrong, Status::Skipped];

    /// The word for it, in text and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Wrong => "wrong",
            Status::Skipped => "skipped",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The result of one check. No field holds a secret or anything of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked: `store`, `redis`, `line`, a function, …
    pub of: &'static str,
    /// The check: an id that does not change, unique with `of`.
    pub check: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was seen, or why nothing was.
    pub seen: String,
    /// What to do: one sentence that names the variable, the console page or the command.
    pub remedy: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(of: &'static str, check: &'static str, seen: impl Into<String>) -> Finding {
        Finding { of, check, status: Status::Ok, seen: seen.into(), remedy: None }
    }

    /// Something to know or to change.
    pub fn warning(
        of: &'static str,
        check: &'static str,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { of, check, status: Status::Warning, seen: seen.into(), remedy: Some(remedy.into()) }
    }

    /// A fault.
    pub fn wrong(
        of: &'static str,
        check: &'static str,
        seen: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { status: Status::Wrong, ..Finding::warning(of, check, seen, remedy) }
    }

    /// Not checked, and why.
    pub fn skipped(of: &'static str, check: &'static str, why: impl Into<String>) -> Finding {
        Finding { of, check, status: Status::Skipped, seen: why.into(), remedy: None }
    }

    /// Not checked, because the check `needed` has failed.
    pub fn needs(of: &'static str, check: &'static str, needed: &Finding) -> Finding {
        Finding::skipped(of, check, format!("needs {} {}", needed.of, needed.check))
    }
}

/// The finding of a check, or that it took longer than `limit`.
pub async fn limited(
    of: &'static str,
    check: &'static str,
    limit: Duration,
    finding: impl Future<Output = Finding>,
) -> Finding {
    tokio::time::timeout(limit, finding).await.unwrap_or_else(|_| {
        Finding::wrong(
            of,
            check,
            format!("not finished after {} s", limit.as_secs_f32()),
            format!(
                "Look at the status page and the load of the service behind {of}, and at the network between."
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_check_that_takes_too_long_is_wrong() {
        let never = std::future::pending();
        let finding = limited("store", "reachable", Duration::from_secs(5), never).await;
        assert_eq!((finding.status, finding.seen.as_str()), (Status::Wrong, "not finished after 5 s"));
        let quick = async { Finding::ok("store", "reachable", "at once") };
        assert_eq!(limited("store", "reachable", Duration::ZERO, quick).await.status, Status::Ok);
    }
}
