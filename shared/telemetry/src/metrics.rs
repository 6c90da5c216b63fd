//! Counters and measurements, in this process.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

/// Upper ends of Prometheus' buckets, in seconds: from a store on the same machine to a forecast that is late.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
/// EMF takes at most so many values of one metric a line.
const VALUES: usize = 100;
const NAMESPACE: &str = "onetap";

type Labels = Vec<(&'static str, String)>;

#[derive(Default)]
pub(crate) struct Registry(Mutex<BTreeMap<(&'static str, Labels), Metric>>);

enum Metric {
    /// Nothing unsent is not the same as 0: CloudWatch is told what was added, be it 0.
    Counter {
        total: u64,
        unsent: Option<u64>,
    },
    Histogram {
        buckets: [u64; BUCKETS.len()],
        count: u64,
        sum: f64,
        unsent: Vec<f64>,
    },
}

impl Registry {
    fn metrics(&self) -> MutexGuard<'_, BTreeMap<(&'static str, Labels), Metric>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, name: &'static str, labels: &[(&'static str, &str)], n: u64) {
        let new = || Metric::Counter { total: 0, unsent: None };
        if let Metric::Counter { total, unsent } =
            self.metrics().entry((name, owned(labels))).or_insert_with(new)
        {
            *total += n;
            *unsent.get_or_insert(0) += n;
        }
    }

    pub(crate) fn observe(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        let new =
            || Metric::Histogram { buckets: [0; BUCKETS.len()], count: 0, sum: 0.0, unsent: Vec::new() };
        if let Metric::Histogram { buckets, count, sum, unsent } =
            self.metrics().entry((name, owned(labels))).or_insert_with(new)
        {
            for (bucket, end) in buckets.iter_mut().zip(BUCKETS) {
                *bucket += u64::from(value <= end);
            }
            *count += 1;
            *sum += value;
            // Where nobody takes them (the local runner), the newest are enough.
            if unsent.len() == VALUES {
                unsent.remove(0);
            }
            unsent.push(value);
        }
    }

    pub(crate) fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for ((name, labels), metric) in self.metrics().iter() {
            if *name != last {
                let kind = if matches!(metric, Metric::Counter { .. }) { "counter" } else { "histogram" };
                let _ = writeln!(text, "# TYPE {name} {kind}");
                last = name;
            }
            match metric {
                Metric::Counter { total, .. } => {
                    let _ = writeln!(text, "{name}{} {total}", braced(labels, None));
                }
                Metric::Histogram { buckets, count, sum, .. } => {
                    for (bucket, end) in buckets.iter().zip(BUCKETS) {
                        let le = end.to_string();
                        let _ = writeln!(text, "{name}_bucket{} {bucket}", braced(labels, Some(&le)));
                    }
                    let _ = writeln!(text, "{name}_bucket{} {count}", braced(labels, Some("+Inf")));
                    let _ = writeln!(text, "{name}_sum{} {sum}", braced(labels, None));
                    let _ = writeln!(text, "{name}_count{} {count}", braced(labels, None));
                }
            }
        }
        text
    }

    pub(crate) fn emf(&self, now_ms: u64) -> Vec<String> {
        // One line for each set of labels: a line's dimensions hold for all its metrics.
        let mut lines: BTreeMap<Labels, Vec<(&'static str, &'static str, Value)>> = BTreeMap::new();
        for ((name, labels), metric) in self.metrics().iter_mut() {
            let (unit, value) = match metric {
                Metric::Counter { unsent, .. } => ("Count", unsent.take().map(Value::from)),
                Metric::Histogram { unsent, .. } => {
                    ("Seconds", Some(std::mem::take(unsent)).filter(|v| !v.is_empty()).map(Value::from))
                }
            };
            if let Some(value) = value {
                lines.entry(labels.clone()).or_default().push((name, unit, value));
            }
        }
        lines.into_iter().map(|(labels, metrics)| line(now_ms, &labels, metrics)).collect()
    }
}

fn line(now_ms: u64, labels: &Labels, metrics: Vec<(&'static str, &'static str, Value)>) -> String {
    let names: Vec<&str> = labels.iter().map(|(name, _)| *name).collect();
    let units: Vec<Value> =
        metrics.iter().map(|(name, unit, _)| json!({"Name": name, "Unit": unit})).collect();
    let directive = json!({"Namespace": NAMESPACE, "Dimensions": [names], "Metrics": units});
    let mut object = Map::new();
    object.insert("_aws".to_owned(), json!({"Timestamp": now_ms, "CloudWatchMetrics": [directive]}));
    object.extend(labels.iter().map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str()))));
    object.extend(metrics.into_iter().map(|(name, _, value)| (name.to_owned(), value)));
    Value::Object(object).to_string()
}

fn owned(labels: &[(&'static str, &str)]) -> Labels {
    let mut labels: Labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    labels.sort();
    labels
}

fn braced(labels: &Labels, le: Option<&str>) -> String {
    let pairs = labels.iter().map(|(name, value)| (*name, value.as_str())).chain(le.map(|le| ("le", le)));
    let pairs: Vec<String> = pairs
        .map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        })
        .collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_text_counts_from_the_beginning() {
        let registry = Registry::default();
        registry.add("taps_total", &[("status", "ok")], 2);
        registry.observe("latency", &[("operation", "get")], 0.004);
        registry.emf(0);
        registry.add("taps_total", &[("status", "ok")], 1);
        let text = registry.prometheus();
        assert!(text.contains("# TYPE taps_total counter\ntaps_total{status=\"ok\"} 3\n"), "{text}");
        assert!(text.contains("latency_bucket{operation=\"get\",le=\"0.0025\"} 0\n"), "{text}");
        assert!(text.contains("latency_bucket{operation=\"get\",le=\"0.005\"} 1\n"), "{text}");
        assert!(text.contains("latency_count{operation=\"get\"} 1\n"), "{text}");
    }

    #[test]
    fn emf_tells_everything_once_and_a_line_for_each_set_of_labels() {
        let registry = Registry::default();
        registry.add("idem_total", &[("outcome", "replayed")], 2);
        registry.add("events_total", &[("outcome", "replayed")], 5);
        registry.observe("kv_get_latency", &[], 0.25);
        let lines: Vec<Value> =
            registry.emf(1234).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["kv_get_latency"], json!([0.25]));
        assert_eq!(lines[0]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([[]]));
        assert_eq!(lines[1]["_aws"]["Timestamp"], 1234);
        assert_eq!(lines[1]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["outcome"]]));
        assert_eq!((&lines[1]["idem_total"], &lines[1]["events_total"]), (&json!(2), &json!(5)));
        assert_eq!(lines[1]["outcome"], "replayed");
        assert!(registry.emf(1235).is_empty());
    }

    #[test]
    fn nothing_more_is_told_as_0_where_it_was_said() {
        let registry = Registry::default();
        registry.add("weather_total", &[("outcome", "fetched")], 0);
        let lines = registry.emf(1234);
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((lines.len(), &line["weather_total"]), (1, &json!(0)));
        assert!(registry.emf(1235).is_empty(), "once");
    }

    #[test]
    fn a_label_cannot_break_out_of_its_line() {
        let registry = Registry::default();
        registry.add("odd_total", &[("status", "a\"b\\c\nd")], 1);
        assert!(registry.prometheus().contains(r#"odd_total{status="a\"b\\c\nd"} 1"#));
    }
}
