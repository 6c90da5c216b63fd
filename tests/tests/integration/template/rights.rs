//! What the functions may do, and what they are told: exactly what their code asks for.

use std::collections::{BTreeMap, BTreeSet};

use onetap_doctor::RIGHTS;
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

/// What a call asks of IAM: each action with the partition keys that it names, which IAM calls its leading keys.
fn accesses((operation, input): &(String, Value)) -> Vec<(String, Vec<String>)> {
    let pk = |item: &Value| item["pk"]["S"].as_str().unwrap_or_else(|| panic!("{item}")).to_owned();
    // What is written has its key in `Item`, everything else in `Key`.
    let key = |of: &Value| pk(of.get("Item").unwrap_or(&of["Key"]));
    let keys = match operation.as_str() {
        "GetItem" | "PutItem" | "DeleteItem" => vec![key(input)],
        "BatchGetItem" => {
            let tables = input["RequestItems"].as_object().unwrap().values();
            tables.flat_map(|table| table["Keys"].as_array().unwrap()).map(pk).collect()
        }
        "BatchWriteItem" => {
            let tables = input["RequestItems"].as_object().unwrap().values();
            let requests = tables.flat_map(|requests| requests.as_array().unwrap());
            requests.map(|request| key(&request["DeleteRequest"])).collect()
        }
        "Query" => {
            let condition = input["KeyConditionExpression"].as_str().unwrap();
            assert!(condition.starts_with("pk = :log AND"), "{input}");
            vec![input["ExpressionAttributeValues"][":log"]["S"].as_str().unwrap().to_owned()]
        }
        "TransactWriteItems" => {
            let parts = input["TransactItems"].as_array().unwrap().iter();
            let parts = parts.flat_map(|part| part.as_object().unwrap());
            return parts.map(|(kind, part)| (format!("{kind}Item"), vec![key(part)])).collect();
        }
        other => panic!("{other} is not known here"),
    };
    vec![(operation.clone(), keys)]
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

/// Whether a statement of the function's role allows the action on all of these keys.
fn may(stack: &Stack, function: Function, action: &str, keys: &[String]) -> bool {
    statements(stack, function).iter().any(|statement| {
        let actions = statement["Action"].as_array().unwrap();
        let patterns = &statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"];
        let like = |key: &String| {
            patterns
                .as_array()
                .is_none_or(|patterns| patterns.iter().any(|pattern| is_like(pattern.as_str().unwrap(), key)))
        };
        actions.contains(&json!(format!("dynamodb:{action}"))) && keys.iter().all(like)
    })
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
            for (action, keys) in stage.proxy.calls().iter().flat_map(accesses) {
                assert!(may(&stack, function, &action, &keys), "{function:?}: {action} of {keys:?}");
                done.insert(action);
            }
        }
        let allowed = allowed(&stack, function, "dynamodb");
        assert_eq!(allowed.keys().cloned().collect::<BTreeSet<_>>(), done, "{function:?}: allowed, and done");
        let table = json!({ "Fn::GetAtt": ["Table", "Arn"] });
        assert!(allowed.values().all(|resource| *resource == table), "{function:?}");
    }
}

#[test]
fn the_doctor_tries_exactly_what_the_template_allows() {
    let stack = Template::read().with(&[ORIGIN, ("Store", "dynamodb")]);
    let texts = |list: &Value| -> BTreeSet<String> {
        list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    for (function, (name, rights)) in Function::ALL.into_iter().zip(RIGHTS) {
        assert_eq!(function.name(), name);
        let mut allowed = BTreeSet::new();
        for statement in statements(&stack, function) {
            let actions: BTreeSet<String> = texts(&statement["Action"])
                .iter()
                .filter_map(|action| action.strip_prefix("dynamodb:").map(str::to_owned))
                .collect();
            if !actions.is_empty() {
                let keys = &statement["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"];
                allowed.insert((actions, texts(keys)));
            }
        }
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
        let tried: BTreeSet<_> =
            rights.iter().map(|right| (owned(right.actions), owned(right.keys))).collect();
        assert_eq!(tried, allowed, "{name}");
    }
}

/// A key of each kind, and who uses it.
const KEYS: [(&str, &[Function]); 12] = [
    ("processing:user:U0123456789abcdef0123456789abcdef", &[Function::Webhook]),
    ("user:U0123456789abcdef0123456789abcdef:profile", &[Function::Webhook, Function::Edit]),
    ("user:U0123456789abcdef0123456789abcdef:last_transaction", &[Function::Webhook, Function::Edit]),
    ("user:U0123456789abcdef0123456789abcdef:ledger", &[Function::Webhook, Function::Edit]),
    ("user:U0123456789abcdef0123456789abcdef:ledger:2026-11", &[Function::Webhook, Function::Edit]),
    ("idem:3f2a", &[Function::Webhook, Function::Edit]),
    ("weather:cwa:新北市永和區", &[Function::Webhook]),
    ("weather:open-meteo:新北市永和區", &[Function::Webhook]),
    ("scan:job:job-1", &[Function::Consumer, Function::Gateway]),
    ("scan:state:job-1", &[Function::Consumer, Function::Gateway]),
    ("published:job-1:vision:10", &[Function::Consumer]),
    ("router:published:job-1:10", &[Function::Consumer, Function::Gateway]),
];

#[test]
fn every_key_can_be_reached_by_those_who_use_it_and_by_nobody_else() {
    let stack = Template::read().with(&[ORIGIN, ("Store", "dynamodb")]);
    for function in Function::ALL {
        let allowed = allowed(&stack, function, "dynamodb");
        for (key, users) in KEYS {
            let may = |action: &String| may(&stack, function, action, &[key.to_owned()]);
            assert_eq!(allowed.keys().any(may), users.contains(&function), "{function:?}: {key}");
        }
    }
    // What is kept of the weather is read and written.
    for action in ["BatchGetItem", "DeleteItem", "GetItem", "PutItem"] {
        assert!(may(&stack, Function::Webhook, action, &["weather:cwa:新北市永和區".to_owned()]), "{action}");
    }
    // Logs are kept of users and jobs only.
    for (key, _) in KEYS.iter().filter(|(key, _)| !key.starts_with("user:")) {
        assert!(!may(&stack, Function::Webhook, "Query", &[(*key).to_owned()]), "{key}");
        assert!(!may(&stack, Function::Webhook, "BatchWriteItem", &[(*key).to_owned()]), "{key}");
    }
    // A call that names one key too many is refused whole.
    let (own, other) = ("user:U1:profile".to_owned(), "scan:state:job-1".to_owned());
    assert!(may(&stack, Function::Webhook, "BatchGetItem", std::slice::from_ref(&own)));
    assert!(!may(&stack, Function::Webhook, "BatchGetItem", &[own, other]));
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
