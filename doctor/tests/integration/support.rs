//! Examines an environment, and holds every examination to what all of them promise.

pub(crate) mod line;
pub(crate) mod tcp;
pub(crate) mod weather;

use std::io;
use std::sync::{Arc, Mutex};

use onetap_config::Variables;
use onetap_doctor::{Finding, Format, Options, Report, Status, examine};
use onetap_servers::environment::Variable;
use onetap_servers::{Environment, Fault, HttpStub};

use self::line::{Channel, TOKEN};
use self::weather::open_meteo;

const README: &str = include_str!("../../README.md");

/// Variables whose values, or parts of them, nobody may see.
const SECRET: [&str; 5] = ["SECRET", "TOKEN", "KEY", "PASSWORD", "REDIS_URL"];

/// Where a report is shown.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the doctor finds in an environment of these variables.
pub(crate) async fn examined(set: &[(&str, &str)], options: Options) -> Vec<Finding> {
    reported(set, async |variables, report| examine(variables, &options, report).await).await
}

/// What an examination finds in an environment of these variables. Asserts that neither its text nor its JSON shows a
/// secret of them or what stubs have planted in their answers, and that every finding has an id of its own that the README
/// explains, and a remedy where one is needed.
pub(crate) async fn reported(
    set: &[(&str, &str)],
    examination: impl AsyncFnOnce(&Variables<'_>, &mut Report),
) -> Vec<Finding> {
    let lookup = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    let shown = Buffer::default();
    let mut text = Report::new(Format::Text { coloured: false }, shown.clone());
    examination(&Variables::from_lookup(lookup), &mut text).await;
    let findings = text.findings().to_vec();
    text.finish();
    let mut json = Report::new(Format::Json, shown.clone());
    findings.iter().for_each(|finding| json.add(finding.clone()));
    json.finish();
    let shown = String::from_utf8(shown.0.lock().unwrap().clone()).unwrap();
    for secret in set.iter().flat_map(|(name, value)| secrets(name, value)).chain(["planted"]) {
        assert!(!shown.contains(secret), "`{secret}` is shown:\n{shown}");
    }
    for (n, finding) in findings.iter().enumerate() {
        let before = &findings[..n];
        assert!(
            before.iter().all(|it| (it.of, it.check) != (finding.of, finding.check)),
            "twice: {finding:?}"
        );
        let rows = [format!("`{} {}`", finding.of, finding.check), format!("| `{}` |", finding.check)];
        assert!(rows.iter().any(|row| README.contains(row.as_str())), "not in the README: {finding:?}");
        let needed = matches!(finding.status, Status::Warning | Status::Wrong);
        assert_eq!(finding.remedy.is_some(), needed, "{finding:?}");
    }
    findings
}

/// Variables of all four functions, with a channel of LINE and a provider of the weather that are well.
pub(crate) fn with_functions(environment: Environment) -> Environment {
    let weather = HttpStub::always(Fault::ok(open_meteo(-5, 43)));
    // They serve until the test program ends.
    let (line, weather) = &*Box::leak(Box::new((Channel::default().start(), weather)));
    environment
        .with("LINE_CHANNEL_SECRET", "s3cret-channel")
        .with("LINE_CHANNEL_ACCESS_TOKEN", TOKEN)
        .with("LINE_API_BASE_URL", line.url())
        .with("WEATHER_PROVIDER", "open-meteo")
        .with("OPEN_METEO_BASE_URL", weather.url())
        .with("EDIT_API_TOKEN", "s3cret-edit")
        .with("EVENT_SHARD_COUNT", "4")
        .with("JOB_EVENTS_SECRET", "s3cret-jobs")
        .with("JOB_EVENTS_ALLOW_ORIGIN", "*")
}

/// Method and path of every request so far.
pub(crate) fn calls(stub: &HttpStub) -> Vec<String> {
    let call = |request: &http::Request<_>| format!("{} {}", request.method(), request.uri().path());
    stub.received().iter().map(call).collect()
}

/// Waits for `examination`. As soon as a request has arrived, the time until the next timer passes at once: what is
/// not answered by then never will be.
pub(crate) async fn once_asked<T>(stub: &HttpStub, examination: impl Future<Output = T>) -> T {
    let pause = async {
        stub.until_received(1).await;
        tokio::time::pause();
        std::future::pending::<()>().await;
    };
    tokio::select! { found = examination => found, () = pause => unreachable!("it never ends") }
}

/// The same for the variables of a test's servers.
pub(crate) async fn examined_on(variables: &[Variable]) -> Vec<Finding> {
    let set: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // The machine may be busy.
    examined(&set, Options { seconds: 600, ..Options::default() }).await
}

/// The parts of a variable that are secret: of an address the user and the password.
fn secrets<'a>(name: &str, value: &'a str) -> Vec<&'a str> {
    let user_info = value.split_once("://").and_then(|(_, rest)| rest.split_once('@')).map(|(info, _)| info);
    let parts = match user_info {
        Some(info) => info.split(':').collect(),
        None if value.contains("://") => Vec::new(),
        None if SECRET.iter().any(|word| name.contains(word)) => value.split(',').collect(),
        None => Vec::new(),
    };
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

/// The finding of one check.
fn found<'a>(findings: &'a [Finding], of: &str, check: &str) -> &'a Finding {
    let found = findings.iter().find(|it| (it.of, it.check) == (of, check));
    found.unwrap_or_else(|| panic!("no {of} {check} in {findings:#?}"))
}

/// The status of one check.
pub(crate) fn status(findings: &[Finding], of: &str, check: &str) -> Status {
    found(findings, of, check).status
}

/// What one check has seen.
pub(crate) fn seen<'a>(findings: &'a [Finding], of: &str, check: &str) -> &'a str {
    &found(findings, of, check).seen
}

/// Of the findings those that ask for something: `(of, check, status)`.
pub(crate) fn faults(findings: &[Finding]) -> Vec<(&str, &str, Status)> {
    let asking = findings.iter().filter(|it| matches!(it.status, Status::Warning | Status::Wrong));
    asking.map(|it| (it.of, it.check, it.status)).collect()
}

/// The only one of them: check, status, what was seen, and the remedy.
pub(crate) fn only_fault(findings: &[Finding]) -> (&'static str, Status, String, String) {
    assert_eq!(faults(findings).len(), 1, "{findings:#?}");
    let fault = findings.iter().find(|it| matches!(it.status, Status::Warning | Status::Wrong)).unwrap();
    (fault.check, fault.status, fault.seen.clone(), fault.remedy.clone().unwrap())
}
