//! CloudWatch's embedded metric format, checked line by line.
//!
//! CloudWatch drops a metric it cannot read and says so nowhere a function would notice. These are the rules of its
//! specification as far as a document that declares metrics can break them, and one of ours: every metric has the dimension
//! `service`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Units that CloudWatch knows.
const UNITS: [&str; 27] = [
    "Seconds",
    "Microseconds",
    "Milliseconds",
    "Bytes",
    "Kilobytes",
    "Megabytes",
    "Gigabytes",
    "Terabytes",
    "Bits",
    "Kilobits",
    "Megabits",
    "Gigabits",
    "Terabits",
    "Percent",
    "Count",
    "Bytes/Second",
    "Kilobytes/Second",
    "Megabytes/Second",
    "Gigabytes/Second",
    "Terabytes/Second",
    "Bits/Second",
    "Kilobits/Second",
    "Megabits/Second",
    "Gigabits/Second",
    "Terabits/Second",
    "Count/Second",
    "None",
];
const MAX_LINE: usize = 256 * 1024;
const MAX_METRICS: usize = 100;
const MAX_DIMENSIONS: usize = 30;
const MAX_VALUES: usize = 100;
const MAX_NAME: usize = 1024;
const MAX_DIMENSION_NAME: usize = 250;
/// Two weeks back and two hours ahead is what CloudWatch takes.
const PAST_MS: u64 = 14 * 24 * 3600 * 1000;
const AHEAD_MS: u64 = 2 * 3600 * 1000;

/// What lines of log have declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// The metrics' names.
    pub metrics: BTreeSet<String>,
    /// The names of all their dimensions.
    pub dimensions: BTreeSet<String>,
    /// The values of the dimension `service`.
    pub services: BTreeSet<String>,
}

impl Declared {
    /// Adds what a line declares, which is nothing if it is a line of log. `now_ms` is the time of day.
    ///
    /// An error says what CloudWatch would not take.
    pub fn add(&mut self, line: &str, now_ms: u64) -> Result<(), String> {
        let line = declared(line, now_ms)?;
        self.metrics.extend(line.metrics);
        self.dimensions.extend(line.dimensions);
        self.services.extend(line.services);
        Ok(())
    }
}

fn declared(line: &str, now_ms: u64) -> Result<Declared, String> {
    let root: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let root = root.as_object().ok_or("not an object")?;
    let Some(meta) = root.get("_aws") else {
        return Ok(Declared::default());
    };
    if line.len() > MAX_LINE {
        return Err(format!("a line of {} bytes", line.len()));
    }
    let meta = meta.as_object().ok_or("_aws is not an object")?;
    let time = meta.get("Timestamp").and_then(Value::as_u64).ok_or("Timestamp is not a whole number")?;
    if time < now_ms.saturating_sub(PAST_MS) || time > now_ms + AHEAD_MS {
        return Err(format!("Timestamp {time} is not in milliseconds, or not of today"));
    }
    let directives = meta.get("CloudWatchMetrics").and_then(Value::as_array);
    let directives =
        directives.filter(|d| !d.is_empty()).ok_or("CloudWatchMetrics is not an array of some")?;
    let mut declared = Declared::default();
    for directive in directives {
        let directive = directive.as_object().ok_or("a directive is not an object")?;
        only(directive, &["Namespace", "Dimensions", "Metrics"])?;
        namespace(directive)?;
        declared.dimensions.append(&mut dimensions(directive, root)?);
        declared.metrics.append(&mut metrics(directive, root)?);
    }
    declared.services.extend(root.get("service").and_then(Value::as_str).map(str::to_owned));
    Ok(declared)
}

fn only(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("{name} is no member of a directive")),
        None => Ok(()),
    }
}

fn namespace(directive: &Map<String, Value>) -> Result<(), String> {
    let name = directive.get("Namespace").and_then(Value::as_str).ok_or("Namespace is not a string")?;
    let good = |c: char| c.is_ascii_alphanumeric() || ".-_/#:".contains(c);
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(good) || name.starts_with("AWS/") {
        return Err(format!("{name:?} is no namespace"));
    }
    Ok(())
}

fn dimensions(directive: &Map<String, Value>, root: &Map<String, Value>) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    let sets = directive.get("Dimensions").and_then(Value::as_array);
    for set in sets.filter(|sets| !sets.is_empty()).ok_or("Dimensions is not an array of some")? {
        let set = set.as_array().ok_or("a set of dimensions is not an array")?;
        if set.len() > MAX_DIMENSIONS {
            return Err(format!("{} dimensions", set.len()));
        }
        if !set.iter().any(|name| name == "service") {
            return Err(format!("{set:?} mixes with the metrics of other stacks"));
        }
        for name in set {
            let name = name.as_str().ok_or("a dimension's name is not a string")?;
            let value = root.get(name).and_then(Value::as_str);
            let value = value.ok_or_else(|| format!("dimension {name} is no string at the root"))?;
            let printable = |text: &str| text.is_ascii() && !text.chars().any(|c| c.is_ascii_control());
            if name.is_empty() || name.len() > MAX_DIMENSION_NAME || name.starts_with(':') || !printable(name)
            {
                return Err(format!("{name:?} is no dimension"));
            }
            if value.trim().is_empty() || value.len() > MAX_NAME || !printable(value) {
                return Err(format!("{value:?} is no value of dimension {name}"));
            }
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

fn metrics(directive: &Map<String, Value>, root: &Map<String, Value>) -> Result<BTreeSet<String>, String> {
    let metrics = directive.get("Metrics").and_then(Value::as_array);
    let metrics = metrics.filter(|metrics| !metrics.is_empty()).ok_or("Metrics is not an array of some")?;
    if metrics.len() > MAX_METRICS {
        return Err(format!("{} metrics", metrics.len()));
    }
    let mut names = BTreeSet::new();
    for metric in metrics {
        let metric = metric.as_object().ok_or("a metric is not an object")?;
        only(metric, &["Name", "Unit", "StorageResolution"])?;
        let name = metric.get("Name").and_then(Value::as_str).ok_or("a metric has no name")?;
        if name.trim().is_empty() || name.len() > MAX_NAME {
            return Err(format!("{name:?} is no metric's name"));
        }
        let unit = metric.get("Unit").map_or(Some("None"), Value::as_str);
        if !unit.is_some_and(|unit| UNITS.contains(&unit)) {
            return Err(format!("the unit of {name} is none that CloudWatch knows"));
        }
        if !metric.get("StorageResolution").is_none_or(|resolution| *resolution == 1 || *resolution == 60) {
            return Err(format!("the resolution of {name} is neither 1 nor 60"));
        }
        let good = match root.get(name) {
            Some(Value::Number(_)) => true,
            Some(Value::Array(values)) => {
                (1..=MAX_VALUES).contains(&values.len()) && values.iter().all(Value::is_number)
            }
            _ => false,
        };
        if !good {
            return Err(format!("{name} is no number at the root, nor 1 to {MAX_VALUES} of them"));
        }
        if !names.insert(name.to_owned()) {
            return Err(format!("{name} is declared twice"));
        }
    }
    Ok(names)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_794_801_600_000;

    fn good() -> Value {
        json!({
            "_aws": { "Timestamp": NOW, "CloudWatchMetrics": [{
                "Namespace": "onetap", "Dimensions": [["outcome", "service"], ["service"]],
                "Metrics": [{ "Name": "taps", "Unit": "Count" }, { "Name": "took" }],
            }] },
            "outcome": "done", "service": "shop", "taps": 2, "took": [0.5, 1.0],
        })
    }

    #[test]
    fn a_good_line_is_taken_and_its_metrics_named() {
        let mut declared = Declared::default();
        declared.add(&good().to_string(), NOW).unwrap();
        declared.add(r#"{"level":"INFO"}"#, NOW).unwrap();
        assert_eq!(declared.metrics, ["taps", "took"].map(String::from).into());
        assert_eq!(declared.dimensions, ["outcome", "service"].map(String::from).into());
        assert_eq!(declared.services, ["shop"].map(String::from).into());
    }

    #[test]
    fn whatever_cloudwatch_would_drop_is_refused() {
        let directive = "/_aws/CloudWatchMetrics/0";
        let many: Vec<Value> = (0..101).map(|n| json!({ "Name": format!("m{n}") })).collect();
        let wide: Vec<String> = (0..31).map(|n| format!("d{n}")).chain(["service".to_owned()]).collect();
        for (place, value) in [
            ("/_aws/Timestamp".to_owned(), json!("now")),
            ("/_aws/Timestamp".to_owned(), json!(NOW / 1000)),
            ("/_aws/CloudWatchMetrics".to_owned(), json!([])),
            (format!("{directive}/Namespace"), json!("")),
            (format!("{directive}/Namespace"), json!("AWS/Lambda")),
            (format!("{directive}/Dimensions"), json!([])),
            (format!("{directive}/Dimensions"), json!(["outcome"])),
            (format!("{directive}/Dimensions"), json!([["elsewhere", "service"]])),
            (format!("{directive}/Dimensions"), json!([["service"], ["outcome"]])),
            (format!("{directive}/Dimensions"), json!([[]])),
            (format!("{directive}/Dimensions"), json!([wide])),
            (format!("{directive}/Metrics"), json!(many)),
            (format!("{directive}/Metrics"), json!([])),
            (format!("{directive}/Metrics/0/Unit"), json!("Taps")),
            (format!("{directive}/Metrics/0/Name"), json!("missing")),
            (format!("{directive}/Metrics/0/Name"), json!("took")),
            ("/outcome".to_owned(), json!(1)),
            ("/outcome".to_owned(), json!("")),
            ("/service".to_owned(), json!(" ")),
            ("/service".to_owned(), json!("天氣")),
            ("/taps".to_owned(), json!("2")),
            ("/took".to_owned(), json!([])),
            ("/took".to_owned(), json!(vec![1; 101])),
        ] {
            let mut line = good();
            *line.pointer_mut(&place).unwrap() = value.clone();
            assert!(declared(&line.to_string(), NOW).is_err(), "{place} = {value}");
        }
        assert!(declared("{", NOW).is_err());
        assert!(declared("[]", NOW).is_err());
    }
}
