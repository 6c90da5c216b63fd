//! The template against the code: what `sam validate --lint` and cfn-lint cannot know.
#![allow(unreachable_pub, reason = "modules of one test")]

mod costs;
mod document;
mod following;
mod guide;
mod limits;
mod neighbours;
mod rights;
mod stories;
mod tools;
mod walk;
mod watching;

use std::collections::BTreeSet;

use document::{Stack, Template, conditions, number, references, target, text};
use onetap_tests::functions::{Function, root};
use serde_json::{Value, json};

/// What has no default.
const ORIGIN: (&str, &str) = ("JobEventsAllowOrigin", "https://example.com");

/// Every stack that the choices among the parameters can make, with a name for messages.
fn every_stack(template: &Template) -> Vec<(String, Stack)> {
    let choices: [(&str, &[&str]); 8] = [
        ("Store", &["upstash", "dynamodb"]),
        ("WeatherProvider", &["cwa", "open-meteo", "sample"]),
        ("WeatherFallbackProvider", &["", "cwa", "open-meteo", "sample"]),
        ("QueueType", &["standard", "fifo"]),
        ("Architecture", &["arm64", "x86_64"]),
        ("Alarms", &["on", "off"]),
        ("AlarmEmail", &["", "ops@example.com"]),
        ("JobEventsConcurrency", &["0", "5"]),
    ];
    let mut sets = vec![vec![ORIGIN]];
    for (name, values) in choices {
        let more = |set: &Vec<(_, _)>, value| set.iter().copied().chain([(name, value)]).collect();
        sets = sets.iter().flat_map(|set| values.iter().map(move |value| more(set, *value))).collect();
    }
    sets.retain(|set| template.accepts(set));
    sets.iter().map(|set| (format!("{set:?}"), template.with(set))).collect()
}

#[test]
fn a_provider_is_not_its_own_fallback() {
    let template = Template::read();
    let fallbacks = template.at("/Parameters/WeatherFallbackProvider/AllowedValues").as_array().unwrap();
    for provider in template.at("/Parameters/WeatherProvider/AllowedValues").as_array().unwrap() {
        for fallback in fallbacks {
            let set = [("WeatherProvider", text(provider)), ("WeatherFallbackProvider", text(fallback))];
            let set = set.each_ref().map(|(name, value)| (*name, value.as_str()));
            assert_eq!(template.accepts(&[&set[..], &[ORIGIN]].concat()), provider != fallback, "{set:?}");
        }
    }
    assert!(template.accepts(&[ORIGIN]), "by default there is none");
}

#[test]
fn every_reference_names_something() {
    let template = Template::read();
    let parameters = template.names("Parameters");
    let resources = template.names("Resources");
    let pseudo =
        ["AccountId", "NoValue", "Partition", "Region", "StackName"].map(|name| format!("AWS::{name}"));
    // SAM makes it of a function that has a URL.
    let made = ["JobEventsFunctionUrl".to_owned()];
    let known: BTreeSet<String> =
        parameters.iter().chain(&resources).chain(&pseudo).chain(&made).cloned().collect();
    let used = references(template.at(""));
    let unknown: Vec<_> = used.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?} is nothing");
    let idle: Vec<_> = parameters.difference(&used).collect();
    assert!(idle.is_empty(), "the parameters {idle:?} change nothing");
    assert_eq!(conditions(template.at("")), template.names("Conditions"), "conditions asked for, and there");
}

#[test]
fn what_exists_under_a_condition_is_referred_to_only_under_it() {
    for (name, stack) in every_stack(&Template::read()) {
        let mut used = references(&Value::Object(stack.resources.clone()));
        used.extend(references(&Value::Object(stack.outputs.clone())));
        used.retain(|name| !name.starts_with("AWS::") && name != "JobEventsFunctionUrl");
        let missing: Vec<_> = used.iter().filter(|name| !stack.resources.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?} is not there with {name}");
    }
}

#[test]
fn every_parameter_says_what_it_is_and_what_it_takes() {
    let template = Template::read();
    for (name, parameter) in template.at("/Parameters").as_object().unwrap() {
        assert!(parameter["Description"].as_str().is_some_and(|text| text.len() > 20), "{name} is described");
        let bounded = ["AllowedValues", "AllowedPattern", "MinValue"]
            .iter()
            .any(|limit| parameter.get(limit).is_some());
        assert!(bounded, "{name} takes anything");
    }
    let groups = template.at("/Metadata/AWS::CloudFormation::Interface/ParameterGroups").as_array().unwrap();
    let grouped: Vec<String> =
        groups.iter().flat_map(|group| group["Parameters"].as_array().unwrap()).map(text).collect();
    assert_eq!(grouped.len(), template.names("Parameters").len());
    assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), template.names("Parameters"));
}

#[test]
fn the_four_functions_are_the_workspaces_programs() {
    let stack = Template::read().with(&[ORIGIN]);
    let metadata = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let built = metadata["workspace_default_members"].as_array().unwrap();
    let targets = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| built.contains(&package["id"]))
        .flat_map(|package| package["targets"].as_array().unwrap());
    let programs: BTreeSet<&str> = targets
        .filter(|target| target["kind"] == json!(["bin"]))
        .map(|target| target["name"].as_str().unwrap())
        .collect();
    assert_eq!(programs, Function::ALL.map(Function::name).into(), "what cargo-lambda builds");
    let resources =
        stack.resources.values().filter(|resource| resource["Type"] == "AWS::Serverless::Function");
    let mut built = BTreeSet::new();
    for resource in resources {
        assert_eq!(resource["Metadata"]["BuildMethod"], "rust-cargolambda");
        built.insert(resource["Metadata"]["BuildProperties"]["Binary"].as_str().unwrap());
        let code = root().join(resource["Properties"]["CodeUri"].as_str().unwrap());
        let manifest = std::fs::read_to_string(code.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"), "cargo-lambda builds in the workspace");
    }
    assert_eq!(built, programs);
}

#[test]
fn every_function_runs_on_the_chosen_processor() {
    let template = Template::read();
    for architecture in ["arm64", "x86_64"] {
        let stack = template.with(&[ORIGIN, ("Architecture", architecture)]);
        for function in Function::ALL {
            let properties = stack.function(function);
            assert_eq!(properties["Architectures"], json!([architecture]), "{function:?}");
            assert_eq!(properties["Runtime"], "provided.al2023", "{function:?}");
            assert_eq!(properties["Handler"], "bootstrap", "{function:?}");
        }
    }
    assert_eq!(template.at("/Parameters/Architecture/Default"), "arm64");
}

#[test]
fn every_route_leads_to_a_function_that_may_be_called_by_it() {
    let stack = Template::read().with(&[ORIGIN]);
    let mut routes = BTreeSet::new();
    for (name, route) in stack.of_type("AWS::ApiGatewayV2::Route") {
        let key = route["RouteKey"].as_str().unwrap();
        let (method, path) = key.split_once(' ').unwrap();
        let integration = references(&route["Target"]).into_iter().next().unwrap();
        assert_eq!(
            route["Target"],
            json!({ "Fn::Sub": format!("integrations/${{{integration}}}") }),
            "{name}"
        );
        let integration = stack.properties(&integration);
        assert_eq!(integration["IntegrationType"], "AWS_PROXY", "{name}");
        assert_eq!(integration["PayloadFormatVersion"], "2.0", "{name}");
        let function = target(&integration["IntegrationUri"]);
        let method = if method == "ANY" { "*" } else { method };
        let caller = format!(
            "arn:${{AWS::Partition}}:execute-api:${{AWS::Region}}:${{AWS::AccountId}}:${{HttpApi}}/*/{method}{path}"
        );
        let permitted = stack.of_type("AWS::Lambda::Permission").into_iter().any(|(_, permission)| {
            target(&permission["FunctionName"]) == function
                && permission["Action"] == "lambda:InvokeFunction"
                && permission["Principal"] == "apigateway.amazonaws.com"
                && permission["SourceArn"] == json!({ "Fn::Sub": caller })
        });
        assert!(permitted, "{name} may not call {function}");
        assert_eq!(target(&route["ApiId"]), "HttpApi");
        routes.insert((key.to_owned(), function.to_owned()));
    }
    let expected = [
        ("POST /line/webhook", Function::Webhook),
        ("ANY /users/{user_id}/last-transaction", Function::Edit),
        ("ANY /users/{user_id}/transactions", Function::Edit),
        ("GET /openapi.json", Function::Edit),
    ];
    assert_eq!(
        routes,
        expected.map(|(key, function)| (key.to_owned(), stack.name_of(function).to_owned())).into()
    );
    let permissions = stack.of_type("AWS::Lambda::Permission").len();
    assert_eq!(permissions, expected.len(), "no permission without a route");
    assert_eq!(
        stack.outputs["WebhookUrl"]["Value"],
        json!({ "Fn::Sub": "${HttpApi.ApiEndpoint}/line/webhook" })
    );
}

#[test]
fn each_route_is_throttled_by_itself_as_the_parameters_say() {
    let stack = Template::read().with(&[
        ORIGIN,
        ("ApiRateLimit", "7"),
        ("ApiBurstLimit", "9"),
        ("WebhookRateLimit", "70"),
        ("WebhookBurstLimit", "90"),
    ]);
    let stages = stack.of_type("AWS::ApiGatewayV2::Stage");
    assert_eq!(stages.len(), 1);
    let (stage, properties) = stages[0];
    let limits = |of: &Value| (number(&of["ThrottlingRateLimit"]), number(&of["ThrottlingBurstLimit"]));
    assert_eq!(limits(&properties["DefaultRouteSettings"]), (7, 9));
    let routes = stack.of_type("AWS::ApiGatewayV2::Route");
    let settings = properties["RouteSettings"].as_object().unwrap();
    assert_eq!(settings.len(), routes.len(), "no setting without a route");
    for (name, route) in routes {
        let key = route["RouteKey"].as_str().unwrap();
        let expected = if key == "POST /line/webhook" { (70, 90) } else { (7, 9) };
        assert_eq!(limits(&settings[key]), expected, "{key}");
        assert!(stack.waits_for(stage, name), "a stage takes settings only for routes that exist: {name}");
    }
    assert_eq!(properties["StageName"], "$default", "the paths have no stage before them");
    assert_eq!(properties["AutoDeploy"], true);
}

#[test]
fn forged_posts_need_more_than_the_limit_of_the_other_routes_to_turn_line_away() {
    let stack = Template::read().with(&[ORIGIN]);
    let settings = &stack.properties("HttpStage")["RouteSettings"];
    let rate = |key: &str| number(&settings[key]["ThrottlingRateLimit"]);
    assert!(rate("POST /line/webhook") >= 5 * rate("ANY /users/{user_id}/last-transaction"));
}

#[test]
fn job_events_are_streamed_from_a_url_whose_caller_the_function_checks() {
    let stack = Template::read().with(&[ORIGIN]);
    let url = &stack.function(Function::Gateway)["FunctionUrlConfig"];
    assert_eq!(url["InvokeMode"], "RESPONSE_STREAM");
    assert_eq!(url["AuthType"], "NONE");
    assert!(
        url.get("Cors").is_none(),
        "the function sends these headers itself, and twice is once too often"
    );
    for function in [Function::Webhook, Function::Edit, Function::Consumer] {
        assert!(
            stack.function(function).get("FunctionUrlConfig").is_none(),
            "{function:?} has no door of its own"
        );
    }
    assert_eq!(
        target(&stack.outputs["JobEventsUrl"]["Value"]),
        format!("{}Url", stack.name_of(Function::Gateway))
    );
    let limited = Template::read().with(&[ORIGIN, ("JobEventsConcurrency", "5")]);
    assert_eq!(number(&limited.function(Function::Gateway)["ReservedConcurrentExecutions"]), 5);
    assert!(stack.function(Function::Gateway).get("ReservedConcurrentExecutions").is_none());
}
