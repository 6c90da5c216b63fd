//! What the functions may do, and what they are told: exactly what their code asks for.

use std::collections::{BTreeMap, BTreeSet};

use onetap_tests::functions::Function;
use serde_json::{Value, json};

use super::document::{Stack, Template, target, visit};
use super::stories::{LAMBDAS_OWN, Stage, Weather, asked, environment};
use super::{ORIGIN, every_stack};

/// The statements of the role that a function has.
fn statements(stack: &Stack, function: Function) -> Vec<Value> {
    let role = stack.properties(target(&stack.function(function)["Role"]));
    let policies = role["Policies"].as_array().unwrap().iter();
    policies.flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().unwrap().clone()).collect()
}

/// What a role allows of a service, each action with the resource it is allowed on.
fn allowed(stack: &Stack, function: Function, service: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for statement in statements(stack, function) {
        assert_eq!(statement["Effect"], "Allow");
        for action in statement["Action"].as_array().unwrap() {
            let (of, name) = action.as_str().unwrap().split_once(':').unwrap();
            if of == service {
                all.insert(name.to_owned(), statement["Resource"].clone());
            }
        }
    }
    all
}

/// What IAM asks for a call: a transaction needs the right to each of its parts.
fn actions((operation, input): &(String, Value)) -> Vec<String> {
    match operation.as_str() {
        "TransactWriteItems" => {
            let items = input["TransactItems"].as_array().unwrap().iter();
            items
                .flat_map(|item| item.as_object().unwrap().keys().map(|kind| format!("{kind}Item")))
                .collect()
        }
        "TransactGetItems" => vec!["GetItem".to_owned()],
        _ => vec![operation.clone()],
    }
}

#[tokio::test]
async fn every_function_may_do_to_the_table_exactly_what_its_code_does() {
    let template = Template::read();
    let stack = template.with(&[ORIGIN, ("Store", "dynamodb")]);
    for function in Function::ALL {
        let mut done = BTreeSet::new();
        for weather in [Weather::Fair, Weather::Lossy(0), Weather::Lossy(1), Weather::Dark] {
            let stage = Stage::set(&template).await;
            let answers = stage.play(function, weather).await;
            if let Weather::Fair = weather {
                assert!(answers.iter().all(|(_, answer)| *answer < 500), "{function:?}: {answers:?}");
            }
            done.extend(stage.proxy.calls().iter().flat_map(actions));
        }
        let allowed = allowed(&stack, function, "dynamodb");
        assert_eq!(allowed.keys().cloned().collect::<BTreeSet<_>>(), done, "{function:?}: allowed, and done");
        let table = json!({ "Fn::GetAtt": ["Table", "Arn"] });
        assert!(allowed.values().all(|resource| *resource == table), "{function:?}");
    }
}

/// The partition keys that a call names: what IAM calls its leading keys.
fn leading_keys((operation, input): &(String, Value)) -> Vec<String> {
    let key = match operation.as_str() {
        "GetItem" => &input["Key"]["pk"]["S"],
        "BatchWriteItem" => {
            let tables = input["RequestItems"].as_object().unwrap().values();
            let requests = tables.flat_map(|requests| requests.as_array().unwrap());
            return requests.map(|request| text(&request["DeleteRequest"]["Key"]["pk"]["S"])).collect();
        }
        "Query" => {
            assert!(
                input["KeyConditionExpression"].as_str().unwrap().starts_with("pk = :log AND"),
                "{input}"
            );
            &input["ExpressionAttributeValues"][":log"]["S"]
        }
        other => panic!("{other} is not known here"),
    };
    vec![text(key)]
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// IAM's `StringLike`, for patterns with `*` only.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, rest)) => text.strip_prefix(before).is_some_and(|text| {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| is_like(rest, &text[at..]))
        }),
    }
}

/// The patterns of the leading keys that a function is limited to in the one statement that allows these actions.
fn leading_key_patterns(stack: &Stack, function: Function, actions: &[&str]) -> Vec<String> {
    let actions = json!(actions.iter().map(|action| format!("dynamodb:{action}")).collect::<Vec<_>>());
    let statements = statements(stack, function);
    let mut limited = statements.iter().filter(|statement| statement["Action"] == actions);
    let condition = &limited.next().unwrap_or_else(|| panic!("{function:?} has no {actions}"))["Condition"];
    let patterns = condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"].as_array().unwrap();
    patterns.iter().map(text).collect()
}

#[tokio::test]
async fn only_the_logs_of_users_are_read_and_swept_by_those_who_keep_the_ledger() {
    let template = Template::read();
    let stack = template.with(&[ORIGIN, ("Store", "dynamodb")]);
    for (function, actions) in
        [(Function::Webhook, &["BatchWriteItem", "Query"][..]), (Function::Edit, &["Query"])]
    {
        let patterns = leading_key_patterns(&stack, function, actions);
        let stage = Stage::set(&template).await;
        stage.play(function, Weather::Fair).await;
        let calls = stage.proxy.calls();
        let limited = calls.iter().filter(|(operation, _)| actions.contains(&operation.as_str()));
        let keys: Vec<String> = limited.flat_map(leading_keys).collect();
        assert!(!keys.is_empty(), "{function:?}");
        for key in keys {
            assert!(patterns.iter().any(|pattern| is_like(pattern, &key)), "{function:?}: {key}");
        }
        for key in ["processing:user:U0123456789abcdef0123456789abcdef", "idem:3f2a", "scan:job:job-1"] {
            assert!(!patterns.iter().any(|pattern| is_like(pattern, key)), "{function:?}: {key}");
        }
    }
}

#[tokio::test]
async fn the_gateway_may_read_what_is_of_jobs_and_nothing_else() {
    let template = Template::read();
    let stack = template.with(&[ORIGIN, ("Store", "dynamodb")]);
    let patterns = leading_key_patterns(&stack, Function::Gateway, &["GetItem", "Query"]);
    let allowed = |key: &str| patterns.iter().any(|pattern| is_like(pattern, key));

    let stage = Stage::set(&template).await;
    stage.play(Function::Gateway, Weather::Fair).await;
    let calls = stage.proxy.calls();
    assert!(calls.len() > 3, "{calls:?}");
    for key in calls.iter().flat_map(leading_keys) {
        assert!(allowed(&key), "{key}");
    }
    let others = [
        "processing:user:U0123456789abcdef0123456789abcdef",
        "user:U0123456789abcdef0123456789abcdef:last_transaction",
        "user:U0123456789abcdef0123456789abcdef:profile",
        "user:U0123456789abcdef0123456789abcdef:ledger:2026-11",
        "idem:3f2a",
        "published:job-1:vision:10",
        "router:published:job-1:10",
    ];
    for key in others {
        assert!(!allowed(key), "{key}");
    }
}

#[test]
fn without_a_table_nobody_has_a_right_to_one() {
    let stack = Template::read().with(&[ORIGIN, ("Store", "upstash")]);
    assert!(stack.of_type("AWS::DynamoDB::Table").is_empty());
    for function in Function::ALL {
        assert!(allowed(&stack, function, "dynamodb").is_empty(), "{function:?}");
    }
}

#[test]
fn every_function_has_a_role_of_its_own_that_writes_to_its_own_log() {
    for (name, stack) in every_stack(&Template::read()) {
        let mut roles = BTreeSet::new();
        for function in Function::ALL {
            let properties = stack.function(function);
            roles.insert(target(&properties["Role"]));
            let logs = target(&properties["LoggingConfig"]["LogGroup"]);
            let logs = json!({ "Fn::GetAtt": [logs, "Arn"] });
            let expected =
                ["CreateLogStream", "PutLogEvents"].map(|action| (action.to_owned(), logs.clone()));
            assert_eq!(allowed(&stack, function, "logs"), expected.into(), "{function:?} with {name}");
            let queue = json!({ "Fn::GetAtt": ["Queue", "Arn"] });
            let expected = ["DeleteMessage", "GetQueueAttributes", "ReceiveMessage"];
            let expected = expected.map(|action| (action.to_owned(), queue.clone()));
            let expected = if function == Function::Consumer { expected.into() } else { BTreeMap::new() };
            assert_eq!(allowed(&stack, function, "sqs"), expected, "{function:?} with {name}");
            let services: BTreeSet<String> = statements(&stack, function)
                .iter()
                .flat_map(|statement| statement["Action"].as_array().unwrap())
                .map(|action| action.as_str().unwrap().split(':').next().unwrap().to_owned())
                .collect();
            assert!(
                services.iter().all(|of| ["dynamodb", "logs", "sqs"].contains(&of.as_str())),
                "{services:?}"
            );
        }
        assert_eq!(roles.len(), Function::ALL.len(), "one role each");
        for (role, properties) in stack.of_type("AWS::IAM::Role") {
            assert!(roles.contains(role), "{role} is nobody's");
            let trusted = &properties["AssumeRolePolicyDocument"]["Statement"];
            assert_eq!(trusted.as_array().unwrap().len(), 1);
            assert_eq!(trusted[0]["Principal"], json!({ "Service": "lambda.amazonaws.com" }), "{role}");
            assert_eq!(properties["ManagedPolicyArns"], json!([{ "Ref": "WriteTraces" }]), "{role}");
        }
    }
}

#[test]
fn only_traces_are_allowed_on_everything() {
    let template = Template::read();
    let mut wide = Vec::new();
    visit(template.at("/Resources"), &mut |key, value| {
        if key == "Statement" {
            for statement in value.as_array().unwrap() {
                let stars = |key: &str| statement[key].to_string().contains('*');
                if stars("Resource") || stars("Action") || stars("NotAction") || stars("Principal") {
                    wide.push(statement.clone());
                }
            }
        }
    });
    // X-Ray's two actions have no resource that could be named.
    let traces = template.at("/Resources/WriteTraces/Properties/PolicyDocument/Statement/0");
    assert_eq!(wide, std::slice::from_ref(traces));
    assert_eq!(traces["Action"], json!(["xray:PutTelemetryRecords", "xray:PutTraceSegments"]));
}

#[test]
fn every_function_is_told_exactly_what_it_asks_for() {
    for (name, stack) in every_stack(&Template::read()) {
        for function in Function::ALL {
            let variables = environment(&stack, function);
            let (asked, error) = asked(function, &variables);
            assert_eq!(error, None, "{function:?} does not start with {name}");
            let unread: Vec<_> = variables.keys().filter(|variable| !asked.contains(*variable)).collect();
            assert!(unread.is_empty(), "{function:?} reads no {unread:?} with {name}");
            let own: Vec<_> =
                variables.keys().filter(|name| LAMBDAS_OWN.iter().any(|(own, _)| own == name)).collect();
            assert!(own.is_empty(), "{own:?} is Lambda's to set");
        }
    }
}

#[test]
fn every_secret_is_looked_up_and_none_is_a_parameter() {
    let template = Template::read();
    let reference = "{{resolve:secretsmanager:${SecretName}:SecretString:";
    let secret = |name: &str| ["SECRET", "TOKEN", "KEY", "PASSWORD"].iter().any(|word| name.contains(word));
    let mut looked_up = BTreeSet::new();
    visit(template.at(""), &mut |key, value| {
        if key == "Variables" {
            for (name, value) in value.as_object().unwrap() {
                // Behind a condition or not, it is one reference.
                let value = value["Fn::If"].get(1).unwrap_or(value);
                let expected = format!("{reference}{name}::${{SecretVersion}}}}}}");
                if value["Fn::Sub"] == json!(expected) {
                    looked_up.insert(name.clone());
                } else {
                    assert!(!secret(name), "{name} is in plain: {value}");
                    assert!(!value.to_string().contains("resolve:"), "{name} is another secret's: {value}");
                }
            }
        }
    });
    let documented = template.at("/Parameters/SecretName/Description").as_str().unwrap();
    let words: BTreeSet<String> = documented
        .split(|c: char| !(c.is_ascii_uppercase() || c == '_'))
        .filter(|word| word.contains('_'))
        .map(str::to_owned)
        .collect();
    assert_eq!(looked_up, words, "what is looked up, and what the parameter says to put there");
    for (name, parameter) in template.at("/Parameters").as_object().unwrap() {
        assert!(parameter.get("NoEcho").is_none(), "{name} is a secret");
        assert!(
            !secret(&name.to_uppercase())
                || name.starts_with("SecretName")
                || name.starts_with("SecretVersion"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn the_table_sweeps_by_what_the_code_writes() {
    let template = Template::read();
    let stack = template.with(&[ORIGIN, ("Store", "dynamodb")]);
    let table = stack.properties("Table");
    assert_eq!(table["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true);
    assert_eq!(table["SSESpecification"]["SSEEnabled"], true);
    assert_eq!(table["TimeToLiveSpecification"]["Enabled"], true);
    assert_eq!(stack.resources["Table"]["DeletionPolicy"], "Retain");
    let sweeps = table["TimeToLiveSpecification"]["AttributeName"].as_str().unwrap();

    let mut items = Vec::new();
    for function in [Function::Webhook, Function::Edit, Function::Consumer] {
        let stage = Stage::set(&template).await;
        stage.play(function, Weather::Fair).await;
        for (operation, input) in stage.proxy.calls() {
            match operation.as_str() {
                "PutItem" => items.push(input["Item"].clone()),
                "TransactWriteItems" => {
                    let puts =
                        input["TransactItems"].as_array().unwrap().iter().filter_map(|item| item.get("Put"));
                    items.extend(puts.map(|put| put["Item"].clone()));
                }
                _ => {}
            }
        }
    }
    // A log's records are removed another TTL after their end, so that no reader misses one that it could still see.
    let longest = |item: &Value| match item["pk"]["S"].as_str().unwrap().contains(":ledger") {
        true => 2 * 1095 + 1,
        false => 60,
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut swept = 0;
    for item in &items {
        let whole = |name: &str| item.get(name).map(|n| n["N"].as_str().unwrap().parse::<u64>().unwrap());
        match (whole("x"), whole(sweeps)) {
            // Seconds, as DynamoDB reads it, and not before the end.
            (Some(end), Some(sweep)) => {
                swept += 1;
                assert!(sweep >= end / 1000 && sweep < now + longest(item) * 24 * 3600, "{item}");
            }
            (None, None) => {
                assert!(item["pk"]["S"].as_str().unwrap().ends_with(":profile"), "only profiles stay: {item}")
            }
            _ => panic!("an end and no sweep, or the reverse: {item}"),
        }
    }
    assert!(swept > 20, "{swept} items with an end");
}
