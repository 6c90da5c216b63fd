//! The template as CloudFormation would see it: short forms written out, parameters and conditions resolved.

use std::collections::{BTreeMap, BTreeSet};

use onetap_tests::functions::{Function, root};
use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value, json};

/// The file.
pub struct Template(Value);

impl Template {
    pub fn read() -> Template {
        let text = std::fs::read_to_string(root().join("template.yaml")).unwrap();
        let documents = Yaml::load_from_str(&text).unwrap();
        assert_eq!(documents.len(), 1, "one document");
        Template(plain(&documents[0]))
    }

    /// The whole of it, or the part under this path.
    pub fn at(&self, pointer: &str) -> &Value {
        self.0.pointer(pointer).unwrap_or_else(|| panic!("there is no {pointer}"))
    }

    /// The names of a section, `Parameters` for one.
    pub fn names(&self, section: &str) -> BTreeSet<String> {
        self.0[section].as_object().unwrap().keys().cloned().collect()
    }

    /// Whether the template's rules let these parameters be deployed.
    pub fn accepts(&self, set: &[(&str, &str)]) -> bool {
        let resolving = self.resolving(set);
        let rules = self.0["Rules"].as_object().unwrap().values();
        let mut assertions = rules.flat_map(|rule| rule["Assertions"].as_array().unwrap());
        assertions.all(|assertion| resolving.holds(&assertion["Assert"]))
    }

    /// What is deployed with these parameters, and every other as it is by default.
    pub fn with(&self, set: &[(&str, &str)]) -> Stack {
        let resolving = self.resolving(set);
        let defaults = resolving.value(&self.0["Globals"]["Function"]).unwrap();
        let mut resources = Map::new();
        for (name, resource) in self.0["Resources"].as_object().unwrap() {
            if resource.get("Condition").is_some_and(|condition| !resolving.holds(condition)) {
                continue;
            }
            let mut resource = resolving.value(resource).unwrap();
            if resource["Type"] == "AWS::Serverless::Function" {
                resource["Properties"] = merged(&defaults, &resource["Properties"]);
            }
            resources.insert(name.clone(), resource);
        }
        let outputs = self.0["Outputs"].as_object().unwrap().iter();
        let outputs = outputs
            .filter(|(_, output)| output.get("Condition").is_none_or(|condition| resolving.holds(condition)))
            .map(|(name, output)| (name.clone(), resolving.value(output).unwrap()));
        Stack { resources, outputs: outputs.collect() }
    }

    fn resolving(&self, set: &[(&str, &str)]) -> Resolving<'_> {
        let mut parameters: BTreeMap<String, String> = BTreeMap::new();
        for (name, parameter) in self.0["Parameters"].as_object().unwrap() {
            let default = parameter.get("Default").map(text);
            let set = set.iter().find(|(known, _)| known == name).map(|(_, value)| (*value).to_owned());
            parameters
                .insert(name.clone(), set.or(default).unwrap_or_else(|| panic!("{name} has no default")));
        }
        for (name, _) in set {
            assert!(parameters.contains_key(*name), "{name} is no parameter");
        }
        Resolving { parameters, conditions: &self.0["Conditions"] }
    }
}

/// What a set of parameters makes of the template.
pub struct Stack {
    pub resources: Map<String, Value>,
    pub outputs: Map<String, Value>,
}

impl Stack {
    /// The properties of a resource.
    pub fn properties(&self, name: &str) -> &Value {
        &self.resources.get(name).unwrap_or_else(|| panic!("there is no {name}"))["Properties"]
    }

    /// Whether CloudFormation is told to make `other` before `name`.
    pub fn waits_for(&self, name: &str, other: &str) -> bool {
        let names = self.resources[name]["DependsOn"].as_array();
        names.into_iter().flatten().any(|name| name == other)
    }

    /// The resources of a type, by name.
    pub fn of_type(&self, kind: &str) -> Vec<(&str, &Value)> {
        let all = self.resources.iter().filter(|(_, resource)| resource["Type"] == kind);
        all.map(|(name, resource)| (name.as_str(), &resource["Properties"])).collect()
    }

    /// The logical name of a function: it builds that program.
    pub fn name_of(&self, function: Function) -> &str {
        let builds = |resource: &Value| resource["Metadata"]["BuildProperties"]["Binary"] == function.name();
        let mut found = self.resources.iter().filter(|(_, resource)| builds(resource));
        let (name, _) = found.next().unwrap_or_else(|| panic!("nothing builds {}", function.name()));
        assert!(found.next().is_none(), "{} is built twice", function.name());
        name
    }

    /// The properties of a function, with what it has from `Globals`.
    pub fn function(&self, function: Function) -> &Value {
        self.properties(self.name_of(function))
    }

    /// One of its variables, as text.
    pub fn variable(&self, function: Function, name: &str) -> String {
        text(&self.function(function)["Environment"]["Variables"][name])
    }
}

/// What a parameter can be: numbers come as text or as numbers.
pub fn number(value: &Value) -> u64 {
    text(value).parse().unwrap_or_else(|_| panic!("{value} is no number"))
}

/// A scalar as text.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => panic!("{value} is no scalar"),
    }
}

/// The logical name that a `Ref` or `GetAtt` is about.
pub fn target(value: &Value) -> &str {
    let name = value.get("Ref").or_else(|| value["Fn::GetAtt"].get(0));
    name.and_then(Value::as_str).unwrap_or_else(|| panic!("{value} refers to nothing"))
}

/// Every name that is referred to: by `Ref`, by `GetAtt`, and inside a `Sub`.
pub fn references(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    visit(value, &mut |key, value| match key {
        "Ref" => found.extend(value.as_str().map(str::to_owned)),
        "Fn::GetAtt" => found.extend(value[0].as_str().map(str::to_owned)),
        "Fn::Sub" => found.extend(placeholders(value.as_str().expect("Sub with a text")).map(str::to_owned)),
        _ => {}
    });
    found
}

/// Every condition that is asked for.
pub fn conditions(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    visit(value, &mut |key, value| match key {
        "Condition" => found.extend(value.as_str().map(str::to_owned)),
        "Fn::If" => found.extend(value[0].as_str().map(str::to_owned)),
        _ => {}
    });
    found
}

/// Every member of every object in it.
pub fn visit(value: &Value, see: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            see(key, value);
            visit(value, see);
        }),
        Value::Array(items) => items.iter().for_each(|item| visit(item, see)),
        _ => {}
    }
}

/// The names in `${…}`, without their attributes.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("${").skip(1);
    parts.map(|part| part.split_once('}').expect("a closed placeholder").0.split('.').next().unwrap())
}

struct Resolving<'a> {
    parameters: BTreeMap<String, String>,
    conditions: &'a Value,
}

impl Resolving<'_> {
    /// `None` is `AWS::NoValue`.
    fn value(&self, value: &Value) -> Option<Value> {
        match value {
            Value::Object(members) => match members.iter().next() {
                Some((key, of)) if key == "Ref" => match of.as_str().unwrap() {
                    "AWS::NoValue" => None,
                    name => Some(self.parameters.get(name).map_or_else(|| value.clone(), |v| json!(v))),
                },
                Some((key, of)) if key == "Fn::If" => self.value(&of[if self.holds(&of[0]) { 1 } else { 2 }]),
                Some((key, of)) if key == "Fn::Sub" => {
                    let mut text = of.as_str().unwrap().to_owned();
                    for (name, value) in &self.parameters {
                        text = text.replace(&format!("${{{name}}}"), value);
                    }
                    Some(if text.contains("${") { json!({ "Fn::Sub": text }) } else { json!(text) })
                }
                _ => {
                    let members =
                        members.iter().filter_map(|(key, value)| Some((key.clone(), self.value(value)?)));
                    Some(Value::Object(members.collect()))
                }
            },
            Value::Array(items) => {
                Some(Value::Array(items.iter().filter_map(|item| self.value(item)).collect()))
            }
            _ => Some(value.clone()),
        }
    }

    fn holds(&self, condition: &Value) -> bool {
        if let Some(name) = condition.as_str() {
            let named = self.conditions.get(name);
            return self.holds(named.unwrap_or_else(|| panic!("there is no condition {name}")));
        }
        let (key, of) = condition.as_object().unwrap().iter().next().unwrap();
        match key.as_str() {
            "Condition" => self.holds(of),
            "Fn::Equals" => text(&self.value(&of[0]).unwrap()) == text(&self.value(&of[1]).unwrap()),
            "Fn::Not" => !self.holds(&of[0]),
            "Fn::Or" => of.as_array().unwrap().iter().any(|of| self.holds(of)),
            "Fn::And" => of.as_array().unwrap().iter().all(|of| self.holds(of)),
            _ => panic!("{key} is no condition"),
        }
    }
}

/// `Globals` under a function's own: maps are merged, everything else is the function's own.
fn merged(defaults: &Value, own: &Value) -> Value {
    match (defaults, own) {
        (Value::Object(defaults), Value::Object(own)) => {
            let mut all = defaults.clone();
            for (key, value) in own {
                let value = defaults.get(key).map_or_else(|| value.clone(), |default| merged(default, value));
                all.insert(key.clone(), value);
            }
            Value::Object(all)
        }
        _ => own.clone(),
    }
}

/// YAML as JSON, with `!Ref x` as `{"Ref": "x"}` and so on.
fn plain(yaml: &Yaml<'_>) -> Value {
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(truth)) => json!(truth),
        Yaml::Value(Scalar::Integer(number)) => json!(number),
        Yaml::Value(Scalar::FloatingPoint(number)) => json!(number.into_inner()),
        Yaml::Value(Scalar::String(text)) => json!(text),
        Yaml::Sequence(items) => items.iter().map(plain).collect(),
        Yaml::Mapping(members) => {
            let members = members.iter().map(|(key, value)| (text(&plain(key)), plain(value)));
            Value::Object(members.collect())
        }
        Yaml::Tagged(tag, value) => match (tag.suffix.as_str(), plain(value)) {
            (tag @ ("Ref" | "Condition"), value) => json!({ tag: value }),
            ("GetAtt", Value::String(path)) => {
                let (name, attribute) = path.split_once('.').expect("a name and an attribute");
                json!({ "Fn::GetAtt": [name, attribute] })
            }
            (tag, value) => json!({ format!("Fn::{tag}"): value }),
        },
        _ => panic!("{yaml:?} is nothing that a template has"),
    }
}
