//! Logs, alarms and the dashboard: what they name is what the functions say.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use onetap_config::{Secret, Variables};
use onetap_line::testing::MessagingApi;
use onetap_servers::HttpStub;
use onetap_telemetry::Recorder;
use onetap_tests::functions::Function;
use serde_json::{Value, json};

use super::document::{Stack, Template, number, target, text};
use super::guide::guide;
use super::stories::{STACK, Stage, Weather, deployed, environment, service};
use super::{ORIGIN, every_stack};

/// A metric's name, with its dimensions' names and values.
type Metric = (String, BTreeMap<String, String>);

/// What CloudWatch reads from the functions' logs.
async fn emitted(template: &Template) -> BTreeSet<Metric> {
    let recorder = Recorder::default();
    let _guard = recorder.on_this_thread();
    let stack = template.with(&[ORIGIN]);
    let mut lines = Vec::new();
    for function in Function::ALL {
        for weather in [Weather::Fair, Weather::Dark] {
            Stage::set(template).await.play(function, weather).await;
        }
        match function {
            Function::Webhook => refused(&stack).await,
            Function::Gateway => not_subscribed(&stack).await,
            Function::Edit | Function::Consumer => {}
        }
        lines.extend(recorder.emf(&service(&stack, function)));
    }
    metrics_in(&lines)
}

/// What these lines of EMF declare.
fn metrics_in(lines: &[String]) -> BTreeSet<Metric> {
    let mut metrics = BTreeSet::new();
    for line in lines {
        let line: Value = serde_json::from_str(line).unwrap();
        for directive in line["_aws"]["CloudWatchMetrics"].as_array().unwrap() {
            assert_eq!(directive["Namespace"], "onetap");
            let dimensions: BTreeMap<String, String> = directive["Dimensions"][0]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| (text(name), text(&line[name.as_str().unwrap()])))
                .collect();
            let names = directive["Metrics"].as_array().unwrap().iter().map(|metric| text(&metric["Name"]));
            metrics.extend(names.map(|name| (name, dimensions.clone())));
        }
    }
    metrics
}

/// LINE refuses the channel's token, and there is no forecast: nobody listens where the test says that it is.
async fn refused(stack: &Stack) {
    let line = MessagingApi::start(Secret::new("another-token")).unwrap();
    let mut variables = environment(stack, Function::Webhook);
    variables.insert("LINE_API_BASE_URL".to_owned(), line.url());
    variables.insert("OPEN_METEO_BASE_URL".to_owned(), "http://127.0.0.1:9".to_owned());
    let variables = Variables::from_lookup(|name: &str| variables.get(name).cloned());
    let webhook = webhook::from_variables(&variables).unwrap();
    let request = Function::Webhook.event("place").to_string();
    let answer = webhook.handle(lambda_http::request::from_str(&request).unwrap()).await;
    assert_eq!(answer.status(), 500);
}

/// There is pub/sub only on Redis. Here Upstash has an empty log, and refuses to be subscribed to.
async fn not_subscribed(stack: &Stack) {
    let upstash = HttpStub::serving(async |request: Request<Bytes>| {
        let status = if request.uri().path().starts_with("/subscribe/") { 503 } else { 200 };
        Response::builder().status(status).body(Full::from(r#"{"result":[]}"#)).unwrap()
    });
    let mut variables = environment(stack, Function::Gateway);
    variables.insert("UPSTASH_REDIS_REST_URL".to_owned(), upstash.url());
    let variables = Variables::from_lookup(|name: &str| variables.get(name).cloned());
    let gateway = job_events::JobEvents::from_variables(&variables).unwrap();
    let request = Function::Gateway.event("follow-a-job").to_string();
    let answer = gateway.handle(lambda_http::request::from_str(&request).unwrap()).await;
    assert_eq!(answer.status(), 200);
    let stream = answer.into_body().collect().await.unwrap().to_bytes();
    let pauses = str::from_utf8(&stream).unwrap().matches("retry:").count();
    assert_eq!(pauses, 2, "the usual pause, and that of a store that fails");
}

/// The parts of an alarm's metric, or those of each of its metrics.
pub fn metrics_of(alarm: &Value) -> Vec<(&Value, &Value, &Value)> {
    match alarm.get("Metrics") {
        None => vec![(&alarm["Namespace"], &alarm["MetricName"], &alarm["Dimensions"])],
        Some(metrics) => {
            let metrics = metrics.as_array().unwrap().iter().filter_map(|metric| metric.get("MetricStat"));
            let metrics = metrics.map(|stat| &stat["Metric"]);
            metrics
                .map(|metric| (&metric["Namespace"], &metric["MetricName"], &metric["Dimensions"]))
                .collect()
        }
    }
}

/// The dashboard's widgets.
pub fn widgets(stack: &Stack) -> Vec<Value> {
    let body = stack.properties("Dashboard")["DashboardBody"]["Fn::Sub"].as_str().unwrap();
    let body: Value = serde_json::from_str(body).expect("the dashboard is JSON");
    body["widgets"].as_array().unwrap().clone()
}

/// Our metrics on the dashboard, each with the names of its dimensions: as rows, and in searches. All are this stack's own.
fn drawn(stack: &Stack) -> BTreeSet<(String, BTreeSet<String>)> {
    let mut drawn = BTreeSet::new();
    for widget in widgets(stack) {
        for row in widget["properties"]["metrics"].as_array().unwrap() {
            let row = row.as_array().unwrap();
            if row[0] == "onetap" {
                let names: Vec<&str> = row[2..].iter().filter_map(Value::as_str).collect();
                assert!(names.chunks(2).any(|pair| pair == ["service", "${AWS::StackName}"]), "{row:?}");
                let dimensions = names.chunks(2).map(|pair| pair[0].to_owned()).collect();
                drawn.insert((text(&row[1]), dimensions));
            }
            let expression = row[0]["expression"].as_str().unwrap_or_default();
            if let Some((_, search)) = expression.split_once("SEARCH('{onetap") {
                let (dimensions, rest) = search.split_once("} MetricName=\"").expect(expression);
                let (name, rest) = rest.split_once("\" ").expect(expression);
                assert!(rest.starts_with("service=\"${AWS::StackName}\"', '"), "{expression}");
                let dimensions =
                    dimensions.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                drawn.insert((name.to_owned(), dimensions));
            }
        }
    }
    drawn
}

#[tokio::test]
async fn alarms_and_dashboard_name_what_the_functions_say_and_the_dashboard_all_of_it() {
    let template = Template::read();
    let stack = template.with(&[ORIGIN]);
    let emitted = emitted(&template).await;
    for (alarm, properties) in stack.of_type("AWS::CloudWatch::Alarm") {
        for (namespace, name, dimensions) in metrics_of(properties) {
            if namespace == "onetap" {
                let dimensions = dimensions.as_array().into_iter().flatten();
                let dimensions = dimensions.map(|of| (text(&of["Name"]), deployed(&of["Value"]))).collect();
                let metric: Metric = (text(name), dimensions);
                assert!(emitted.contains(&metric), "{alarm}: nothing says {metric:?}");
            }
        }
    }
    let said: BTreeSet<(String, BTreeSet<String>)> =
        emitted.into_iter().map(|(name, of)| (name, of.into_keys().collect())).collect();
    assert_eq!(drawn(&stack), said, "drawn, and said");
}

#[test]
fn every_function_reports_under_the_name_of_its_stack() {
    for (name, stack) in every_stack(&Template::read()) {
        for function in Function::ALL {
            assert_eq!(service(&stack, function).as_str(), STACK, "{function:?} with {name}");
        }
    }
}

#[test]
fn the_hit_rate_is_of_all_kinds_together() {
    let stack = Template::read().with(&[ORIGIN]);
    let widgets = widgets(&stack);
    let rate = widgets.iter().find(|widget| widget["properties"]["title"] == "Store: hit rate, %").unwrap();
    let rows = rate["properties"]["metrics"].as_array().unwrap();
    for (row, name) in rows[1..].iter().zip(["kv_hit_total", "kv_miss_total"]) {
        let expression = row[0]["expression"].as_str().unwrap();
        assert!(expression.starts_with("SUM(SEARCH('{onetap,kind,service}"), "{expression}");
        assert!(expression.contains(&format!("MetricName=\"{name}\"")), "{expression}");
    }
}

#[test]
fn dead_letters_malformed_events_errors_throttles_and_the_store_have_an_alarm() {
    let stack = Template::read().with(&[ORIGIN, ("AlarmEmail", "ops@example.com")]);
    let alarm = |name: &str| stack.properties(name);
    let dead = alarm("DeadLettersAlarm");
    assert_eq!(target(&dead["Dimensions"][0]["Value"]), "DeadLetters");
    assert_eq!(
        (&dead["MetricName"], &dead["Threshold"]),
        (&json!("ApproximateNumberOfMessagesVisible"), &json!(0))
    );
    // What cannot be published is told of at once: it becomes a dead letter only after it has come a hundred times.
    let malformed = alarm("MalformedEventsAlarm");
    assert_eq!((&malformed["MetricName"], &malformed["Threshold"]), (&json!("events_total"), &json!(0)));
    let dimensions = malformed["Dimensions"].as_array().unwrap();
    assert!(dimensions.contains(&json!({ "Name": "outcome", "Value": "malformed" })), "{dimensions:?}");
    for (name, metric) in [("ErrorsAlarm", "Errors"), ("ThrottlesAlarm", "Throttles")] {
        let mut watched = BTreeSet::new();
        for (namespace, name, dimensions) in metrics_of(alarm(name)) {
            assert_eq!((namespace, name), (&json!("AWS/Lambda"), &json!(metric)));
            watched.insert(target(&dimensions[0]["Value"]));
        }
        assert_eq!(watched, Function::ALL.map(|function| stack.name_of(function)).into(), "{name}");
        assert_eq!(alarm(name)["Threshold"], 0, "{name}");
    }
    assert_eq!(alarm("StoreFailuresAlarm")["Threshold"], 1, "percent");
    assert_eq!(alarm("StoreLatencyAlarm")["Threshold"], 0.05, "seconds");
    let metrics = alarm("StoreLatencyAlarm")["Metrics"].as_array().unwrap();
    let stats: Vec<&Value> = metrics.iter().filter_map(|metric| metric.pointer("/MetricStat/Stat")).collect();
    assert_eq!(stats, [&json!("p95"), &json!("p95")]);
    for (name, properties) in stack.of_type("AWS::CloudWatch::Alarm") {
        assert_eq!(properties["TreatMissingData"], "notBreaching", "{name}: a quiet night is no alarm");
        assert_eq!(properties["AlarmActions"], json!([{ "Ref": "AlarmTopic" }]), "{name}");
        expressions_name_their_metrics(name, properties);
    }
}

#[test]
fn a_refused_channel_token_answers_of_5xx_and_failing_forecasts_have_an_alarm() {
    let stack = Template::read().with(&[ORIGIN]);
    let unauthorized = stack.properties("UnauthorizedRepliesAlarm");
    assert_eq!(unauthorized["MetricName"], "line_reply_total");
    let dimensions = unauthorized["Dimensions"].as_array().unwrap();
    assert!(dimensions.contains(&json!({ "Name": "outcome", "Value": "unauthorized" })), "{dimensions:?}");
    assert_eq!(
        (&unauthorized["Statistic"], &unauthorized["Threshold"]),
        (&json!("Sum"), &json!(0)),
        "the first one raises it"
    );

    let api = stack.properties("HttpApiErrorsAlarm");
    assert_eq!((&api["Namespace"], &api["MetricName"]), (&json!("AWS/ApiGateway"), &json!("5xx")));
    assert_eq!(target(&api["Dimensions"][0]["Value"]), "HttpApi");
    assert_eq!(api["Dimensions"][0]["Name"], "ApiId");

    let forecasts = stack.properties("ForecastFailuresAlarm");
    assert_eq!(forecasts["Threshold"], 20, "percent");
    assert_eq!(forecasts["EvaluationPeriods"], 1);
    // The webhook tells all five numbers at every forecast (its own tests hold it to that), so that none is filled in.
    assert_eq!(
        forecasts["Metrics"][0]["Expression"],
        "100 * failed / (kept + fetched + fallback + stale + failed)"
    );
    for metric in forecasts["Metrics"].as_array().unwrap().iter().filter_map(|m| m.get("MetricStat")) {
        assert_eq!((&metric["Period"], &metric["Stat"]), (&json!(900), &json!("Sum")));
        assert_eq!(metric["Metric"]["MetricName"], "weather_total");
    }
}

#[test]
fn the_guide_counts_the_metrics_that_alarms_look_at() {
    let stack = Template::read().with(&[ORIGIN]);
    let metrics: usize =
        stack.of_type("AWS::CloudWatch::Alarm").iter().map(|(_, of)| metrics_of(of).len()).sum();
    let price = format!("alarms ${}.{}0 ({metrics} metrics at $0.10)", metrics / 10, metrics % 10);
    assert!(guide().contains(&price), "the guide does not say: {price}");
}

#[test]
fn the_guide_explains_every_outcome_of_a_forecast() {
    let stack = Template::read().with(&[ORIGIN]);
    for (_, _, dimensions) in metrics_of(stack.properties("ForecastFailuresAlarm")) {
        let outcome = text(&dimensions[0]["Value"]);
        assert!(guide().contains(&format!("\n| `{outcome}` | ")), "{outcome}");
    }
}

/// CloudFormation takes an expression over a metric that is not there, and the alarm then never rings.
fn expressions_name_their_metrics(name: &str, alarm: &Value) {
    let Some(metrics) = alarm["Metrics"].as_array() else { return };
    let ids: BTreeSet<String> =
        metrics.iter().filter(|m| m.get("MetricStat").is_some()).map(|m| text(&m["Id"])).collect();
    let returned: Vec<&Value> = metrics.iter().filter(|metric| metric["ReturnData"] != false).collect();
    assert_eq!(returned.len(), 1, "{name} looks at one line");
    let expression = returned[0]["Expression"].as_str().unwrap();
    let lower = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let words: BTreeSet<String> =
        expression.split(|c: char| !c.is_ascii_alphanumeric()).filter(lower).map(str::to_owned).collect();
    assert!(expression.contains("METRICS()") || words == ids, "{name}: {words:?} of {ids:?}");
}

#[test]
fn there_are_alarms_only_where_they_are_wanted() {
    let template = Template::read();
    let none = template.with(&[ORIGIN, ("Alarms", "off"), ("AlarmEmail", "ops@example.com")]);
    for kind in ["AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard", "AWS::SNS::Topic"] {
        assert!(none.of_type(kind).is_empty(), "{kind}");
    }
    let quiet = template.with(&[ORIGIN]);
    assert!(quiet.of_type("AWS::SNS::Topic").is_empty());
    assert_eq!(quiet.of_type("AWS::CloudWatch::Alarm").len(), 9);
    assert!(
        quiet.of_type("AWS::CloudWatch::Alarm").iter().all(|(_, alarm)| alarm.get("AlarmActions").is_none())
    );
}

#[test]
fn every_log_is_json_and_ends_when_the_parameter_says() {
    let template = Template::read();
    for (name, stack) in every_stack(&template) {
        let mut groups = BTreeSet::new();
        for function in Function::ALL {
            let properties = stack.function(function);
            assert_eq!(properties["LoggingConfig"]["LogFormat"], "JSON", "{function:?}");
            assert_eq!(properties["Tracing"], "Active", "{function:?}");
            groups.insert(target(&properties["LoggingConfig"]["LogGroup"]));
        }
        assert_eq!(groups.len(), Function::ALL.len(), "a log each, with {name}");
    }
    let stack = template.with(&[ORIGIN, ("LogRetentionDays", "7")]);
    let groups = stack.of_type("AWS::Logs::LogGroup");
    assert_eq!(groups.len(), Function::ALL.len() + 1);
    assert!(groups.iter().all(|(_, group)| number(&group["RetentionInDays"]) == 7));
}

#[test]
fn the_access_log_holds_nothing_about_a_person() {
    let stack = Template::read().with(&[ORIGIN]);
    let settings = &stack.properties("HttpStage")["AccessLogSettings"];
    assert_eq!(target(&settings["DestinationArn"]), "HttpLogs");
    let format: Value = serde_json::from_str(settings["Format"].as_str().unwrap()).expect("a line is JSON");
    // Everything else that API Gateway offers has an address, a path with a user id, or a header in it, or may have.
    let harmless = [
        "$context.requestId",
        "$context.requestTime",
        "$context.routeKey",
        "$context.status",
        "$context.responseLatency",
        "$context.integrationLatency",
        "$context.integrationStatus",
    ];
    for (name, value) in format.as_object().unwrap() {
        assert!(harmless.contains(&value.as_str().unwrap()), "{name}: {value}");
    }
}
