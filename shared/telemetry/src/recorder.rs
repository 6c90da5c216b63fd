//! The recorder of the `metrics` facade: exports counters and histograms as Prometheus text or as lines of CloudWatch's
//! embedded metric format (EMF).

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use metrics::{
    CounterFn, Gauge, HistogramFn, Key, KeyName, Label, LocalRecorderGuard, Metadata, SharedString, Unit,
};
use serde_json::{Map, Value, json};

use crate::Service;

/// Upper bounds of the histogram buckets, in seconds: from a call of a local store to a slow forecast.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
/// EMF accepts at most 100 values of a metric in one line.
const MAX_VALUES_PER_LINE: usize = 100;
const NAMESPACE: &str = "onetap";

/// Collects the counters and histograms of the [`metrics`] facade. A clone shares them.
///
/// A program installs one for the process with [`init`](crate::init); a test can have one for its thread. Gauges and
/// descriptions are ignored: onetap has none.
#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<BTreeMap<Key, Metric>>>);

/// One metric with one set of labels.
#[derive(Clone)]
enum Metric {
    Counter(Arc<Counter>),
    Histogram(Arc<Histogram>),
}

#[derive(Default)]
struct Counter(Mutex<CounterState>);

#[derive(Default)]
struct CounterState {
    total: u64,
    /// Increments since the last EMF report. `None`: there was none, so nothing is reported. An increment by 0 is
    /// reported.
    unsent: Option<u64>,
}

#[derive(Default)]
struct Histogram(Mutex<HistogramState>);

#[derive(Default)]
struct HistogramState {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
    /// Values since the last EMF report.
    unsent: Vec<f64>,
}

impl CounterFn for Counter {
    fn increment(&self, n: u64) {
        let mut count = lock(&self.0);
        count.total += n;
        *count.unsent.get_or_insert(0) += n;
    }

    fn absolute(&self, total: u64) {
        let now = lock(&self.0).total;
        self.increment(total.saturating_sub(now));
    }
}

impl HistogramFn for Histogram {
    fn record(&self, value: f64) {
        let mut values = lock(&self.0);
        for (bucket, end) in values.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(value <= end);
        }
        values.count += 1;
        values.sum += value;
        // Only the newest values are kept for EMF. If more are recorded between two flushes, or if nothing flushes (the
        // local runner), the oldest are missing there, but not in Prometheus.
        if values.unsent.len() == MAX_VALUES_PER_LINE {
            values.unsent.remove(0);
        }
        values.unsent.push(value);
    }
}

impl metrics::Recorder for Recorder {
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        match self.metric(key, || Metric::Counter(Arc::default())) {
            Metric::Counter(counter) => metrics::Counter::from_arc(counter),
            Metric::Histogram(_) => metrics::Counter::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        match self.metric(key, || Metric::Histogram(Arc::default())) {
            Metric::Histogram(histogram) => metrics::Histogram::from_arc(histogram),
            Metric::Counter(_) => metrics::Histogram::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    /// Collects the metrics of this thread until the guard is dropped, for a test whose runtime has one thread.
    pub fn on_this_thread(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(self)
    }

    fn metric(&self, key: &Key, new: impl FnOnce() -> Metric) -> Metric {
        let mut all = lock(&self.0);
        // Most metrics exist already, and this lookup does not copy the key.
        if let Some(metric) = all.get(key) {
            return metric.clone();
        }
        all.entry(key.clone()).or_insert_with(new).clone()
    }

    /// All metrics since the start, in Prometheus' text format.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for (key, metric) in lock(&self.0).iter() {
            let (name, labels) = (key.name(), sorted(key));
            if name != last {
                let kind = if matches!(metric, Metric::Counter(_)) { "counter" } else { "histogram" };
                let _ = writeln!(text, "# TYPE {name} {kind}");
                last = name;
            }
            match metric {
                Metric::Counter(counter) => {
                    let _ = writeln!(text, "{name}{} {}", braced(&labels, None), lock(&counter.0).total);
                }
                Metric::Histogram(histogram) => {
                    let HistogramState { buckets, count, sum, .. } = &*lock(&histogram.0);
                    for (bucket, end) in buckets.iter().zip(BUCKETS) {
                        let le = end.to_string();
                        let _ = writeln!(text, "{name}_bucket{} {bucket}", braced(&labels, Some(&le)));
                    }
                    let _ = writeln!(text, "{name}_bucket{} {count}", braced(&labels, Some("+Inf")));
                    let _ = writeln!(text, "{name}_sum{} {sum}", braced(&labels, None));
                    let _ = writeln!(text, "{name}_count{} {count}", braced(&labels, None));
                }
            }
        }
        text
    }

    /// Takes the metrics since the last call, as EMF lines: a second call does not return them again.
    ///
    /// Each line has the dimension `service`, beside the metrics' labels.
    pub fn emf(&self, service: &Service) -> Vec<String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.emf_at(service, u64::try_from(now.as_millis()).unwrap_or_default())
    }

    fn emf_at(&self, service: &Service, now_ms: u64) -> Vec<String> {
        let all = lock(&self.0);
        // One line for each set of labels: the dimensions of a line apply to all of its metrics.
        let mut lines: BTreeMap<Vec<&Label>, Vec<(&str, &str, Value)>> = BTreeMap::new();
        for (key, metric) in all.iter() {
            let (unit, value) = match metric {
                Metric::Counter(counter) => ("Count", lock(&counter.0).unsent.take().map(Value::from)),
                Metric::Histogram(histogram) => {
                    let unsent = std::mem::take(&mut lock(&histogram.0).unsent);
                    ("Seconds", (!unsent.is_empty()).then(|| Value::from(unsent)))
                }
            };
            if let Some(value) = value {
                lines.entry(sorted(key)).or_default().push((key.name(), unit, value));
            }
        }
        lines.into_iter().map(|(labels, metrics)| line(now_ms, service, &labels, metrics)).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sorted(key: &Key) -> Vec<&Label> {
    let mut labels: Vec<&Label> = key.labels().collect();
    labels.sort();
    labels
}

fn line(now_ms: u64, service: &Service, labels: &[&Label], metrics: Vec<(&str, &str, Value)>) -> String {
    let dimensions = labels.iter().map(|label| (label.key(), label.value()));
    let dimensions: BTreeMap<&str, &str> = dimensions.chain([("service", service.as_str())]).collect();
    let names: Vec<&str> = dimensions.keys().copied().collect();
    let units: Vec<Value> =
        metrics.iter().map(|(name, unit, _)| json!({"Name": name, "Unit": unit})).collect();
    let directive = json!({"Namespace": NAMESPACE, "Dimensions": [names], "Metrics": units});
    let mut object = Map::new();
    object.insert("_aws".to_owned(), json!({"Timestamp": now_ms, "CloudWatchMetrics": [directive]}));
    object.extend(dimensions.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))));
    object.extend(metrics.into_iter().map(|(name, _, value)| (name.to_owned(), value)));
    Value::Object(object).to_string()
}

fn braced(labels: &[&Label], le: Option<&str>) -> String {
    let pairs = labels.iter().map(|label| (label.key(), label.value())).chain(le.map(|le| ("le", le)));
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
    use metrics::{counter, histogram};

    use super::*;

    #[test]
    fn prometheus_text_counts_from_the_beginning() {
        let recorder = Recorder::default();
        let _guard = recorder.on_this_thread();
        counter!("taps_total", "status" => "ok").increment(2);
        histogram!("latency", "operation" => "get").record(0.004);
        recorder.emf(&Service::default());
        counter!("taps_total", "status" => "ok").increment(1);
        let text = recorder.prometheus();
        assert!(text.contains("# TYPE taps_total counter\ntaps_total{status=\"ok\"} 3\n"), "{text}");
        assert!(text.contains("latency_bucket{operation=\"get\",le=\"0.0025\"} 0\n"), "{text}");
        assert!(text.contains("latency_bucket{operation=\"get\",le=\"0.005\"} 1\n"), "{text}");
        assert!(text.contains("latency_count{operation=\"get\"} 1\n"), "{text}");
    }

    #[test]
    fn emf_reports_everything_once_with_the_service_and_a_line_for_each_set_of_labels() {
        let (recorder, service) = (Recorder::default(), Service::new("shop-bot").unwrap());
        let _guard = recorder.on_this_thread();
        counter!("idem_total", "outcome" => "replayed").increment(2);
        counter!("events_total", "outcome" => "replayed").increment(5);
        histogram!("kv_get_latency").record(0.25);
        let lines: Vec<Value> =
            recorder.emf_at(&service, 1234).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["kv_get_latency"], json!([0.25]));
        assert_eq!(lines[0]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["service"]]));
        assert_eq!(lines[1]["_aws"]["Timestamp"], 1234);
        assert_eq!(lines[1]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([["outcome", "service"]]));
        assert_eq!((&lines[1]["idem_total"], &lines[1]["events_total"]), (&json!(2), &json!(5)));
        assert_eq!(lines[1]["outcome"], "replayed");
        assert!(lines.iter().all(|line| line["service"] == "shop-bot"), "{lines:?}");
        assert!(recorder.emf(&service).is_empty());
        assert!(!recorder.prometheus().contains("service"), "only CloudWatch keeps stacks apart by it");
    }

    #[test]
    fn an_increment_by_zero_is_reported_once() {
        let recorder = Recorder::default();
        let _guard = recorder.on_this_thread();
        counter!("weather_total", "outcome" => "fetched").increment(0);
        let lines = recorder.emf(&Service::default());
        let line: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!((lines.len(), &line["weather_total"]), (1, &json!(0)));
        assert!(recorder.emf(&Service::default()).is_empty(), "once");
    }

    #[test]
    fn the_order_of_labels_makes_no_difference() {
        let recorder = Recorder::default();
        let _guard = recorder.on_this_thread();
        counter!("taps_total", "status" => "ok", "event_type" => "tap").increment(1);
        counter!("taps_total", "event_type" => "tap", "status" => "ok").increment(1);
        let text = recorder.prometheus();
        assert!(text.contains("taps_total{event_type=\"tap\",status=\"ok\"} 2\n"), "{text}");
    }

    #[test]
    fn a_line_holds_the_newest_hundred_values() {
        let recorder = Recorder::default();
        let _guard = recorder.on_this_thread();
        for n in 0..150 {
            histogram!("latency").record(f64::from(n));
        }
        let line: Value = serde_json::from_str(&recorder.emf(&Service::default())[0]).unwrap();
        let values = line["latency"].as_array().unwrap();
        assert_eq!((values.len(), &values[0], &values[99]), (100, &json!(50.0), &json!(149.0)));
        assert!(recorder.prometheus().contains("latency_count 150\n"));
    }

    #[test]
    fn a_label_cannot_break_out_of_its_line() {
        let recorder = Recorder::default();
        let _guard = recorder.on_this_thread();
        counter!("odd_total", "status" => "a\"b\\c\nd").increment(1);
        assert!(recorder.prometheus().contains(r#"odd_total{status="a\"b\\c\nd"} 1"#));
    }
}
