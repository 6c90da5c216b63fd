//! Two stacks in one account and region: nothing of one is the other's.

use std::collections::BTreeSet;

use serde_json::Value;

use super::document::{Stack, Template, text, visit};
use super::every_stack;
use super::watching::{metrics_of, widgets};

/// What CloudFormation makes of a stack of this name, as far as names go: the stack's name is put in, and what refers to
/// a resource is that resource of this stack.
fn deployed(value: &Value, stack: &str) -> String {
    let text = value.to_string();
    let text = text.replace("${AWS::StackName}", stack).replace(r#"{"Ref":"AWS::StackName"}"#, stack);
    // What is the same in every stack of an account and a region.
    let text = text.replace("${AWS::", "(").replace(r#"{"Ref":"AWS::"#, "(");
    text.replace("${", &format!("${{{stack}/"))
        .replace(r#"{"Ref":""#, &format!(r#"{{"Ref":"{stack}/"#))
        .replace(r#"{"Fn::GetAtt":[""#, &format!(r#"{{"Fn::GetAtt":["{stack}/"#))
}

/// The names that the template gives to resources. All others are made up by CloudFormation, from the stack's.
fn given_names(stack: &Stack) -> Vec<Value> {
    let mut names = Vec::new();
    for resource in stack.resources.values() {
        let kind = text(&resource["Type"]);
        // A permission names its function, and a stage belongs to its API.
        if ["AWS::Lambda::Permission", "AWS::ApiGatewayV2::Stage"].contains(&kind.as_str()) {
            continue;
        }
        let properties = resource["Properties"].as_object().into_iter().flatten();
        names.extend(
            properties
                .filter(|(key, _)| key.ends_with("Name") && *key != "MetricName")
                .map(|(_, name)| name.clone()),
        );
    }
    names
}

/// What the roles reach, where messages come from and end, and where logs go. Traces belong to no resource.
fn reached(stack: &Stack) -> Vec<Value> {
    let mut reached = Vec::new();
    for resource in stack.resources.values() {
        visit(&resource["Properties"], &mut |key, value| {
            if ["Resource", "Queue", "deadLetterTargetArn", "LogGroup"].contains(&key) && *value != "*" {
                reached.extend((!value.is_object() || value.get("Type").is_none()).then(|| value.clone()));
            }
        });
    }
    reached
}

/// The metrics that the alarms and the dashboard look at.
fn watched(stack: &Stack) -> Vec<Value> {
    let alarms = stack.of_type("AWS::CloudWatch::Alarm");
    let mut watched: Vec<Value> = alarms
        .iter()
        .flat_map(|(_, alarm)| metrics_of(alarm))
        .map(|(namespace, name, dimensions)| {
            Value::from(vec![namespace.clone(), name.clone(), dimensions.clone()])
        })
        .collect();
    let dashboard = stack.resources.contains_key("Dashboard").then(|| widgets(stack));
    for widget in dashboard.into_iter().flatten() {
        for metric in widget["properties"]["metrics"].as_array().unwrap() {
            // An expression over other metrics of the widget has none of its own.
            let expression = metric[0]["expression"].as_str();
            if expression.is_none_or(|expression| expression.contains("SEARCH(")) {
                watched.push(metric.clone());
            }
        }
    }
    watched
}

#[test]
fn two_stacks_have_no_name_no_resource_and_no_metric_in_common() {
    let template = Template::read();
    for (set, stack) in every_stack(&template) {
        for (what, values) in
            [("names", given_names(&stack)), ("rights", reached(&stack)), ("metrics", watched(&stack))]
        {
            let of = |name: &str| values.iter().map(|value| deployed(value, name)).collect::<BTreeSet<_>>();
            let (one, other) = (of("one"), of("other"));
            let common: Vec<_> = one.intersection(&other).collect();
            assert!(common.is_empty(), "{set}: {what} of both: {common:?}");
            assert!(!one.is_empty() || set.contains(r#"("Alarms", "off")"#), "{set}: no {what}");
        }
    }
}
