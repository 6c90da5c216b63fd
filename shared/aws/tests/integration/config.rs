//! Variables, regions and the URLs of queues.

use onetap_aws::Credentials;
use onetap_aws::sqs::{Config, QueueUrl};
use onetap_config::{ConfigError, Variables};

const KEY: [(&str, &str); 3] = [
    ("AWS_REGION", "us-east-1"),
    ("AWS_ACCESS_KEY_ID", "PLANTEDID"),
    ("AWS_SECRET_ACCESS_KEY", "PLANTED/key+"),
];

/// The configuration of these variables, of which a later one counts.
fn config(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let find = |name: &str| variables.iter().rev().find(|(of, _)| *of == name);
    Config::from_variables(&Variables::from_lookup(|name| find(name).map(|(_, value)| (*value).to_owned())))
}

/// The address of SQS with these variables besides the key.
fn address(more: &[(&str, &str)]) -> Result<String, ConfigError> {
    let shown = format!("{:?}", config(&[&KEY[..], more].concat())?);
    let (_, rest) = shown.split_once("endpoint: ").expect("an endpoint");
    Ok(rest.split(',').next().unwrap().to_owned())
}

fn wrong(more: &[(&str, &str)]) -> String {
    config(&[&KEY[..], more].concat()).expect_err("wrong").to_string()
}

#[test]
fn the_address_is_that_of_the_region() {
    for (region, expected) in [
        ("us-east-1", "https://sqs.us-east-1.amazonaws.com/"),
        ("us-gov-west-1", "https://sqs.us-gov-west-1.amazonaws.com/"),
        ("cn-north-1", "https://sqs.cn-north-1.amazonaws.com.cn/"),
        ("eusc-de-east-1", "https://sqs.eusc-de-east-1.amazonaws.eu/"),
    ] {
        assert_eq!(address(&[("AWS_REGION", region)]).unwrap(), expected);
    }
    let other = address(&[("AWS_REGION", ""), ("AWS_DEFAULT_REGION", "ap-northeast-1")]);
    assert_eq!(other.unwrap(), "https://sqs.ap-northeast-1.amazonaws.com/");
}

#[test]
fn another_address_can_be_set() {
    let both =
        [("AWS_ENDPOINT_URL", "http://localhost:4566/"), ("AWS_ENDPOINT_URL_SQS", "http://[::1]:9324")];
    assert_eq!(address(&both[..1]).unwrap(), "http://localhost:4566/");
    assert_eq!(address(&both).unwrap(), "http://[::1]:9324/");
    let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
    let own = "https://sqs.us-east-1.amazonaws.com/";
    assert_eq!(address(&[both[0], both[1], ignored]).unwrap(), own);
}

#[test]
fn an_error_names_the_variable_and_not_its_value() {
    for name in ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        assert_eq!(wrong(&[(name, " ")]), format!("{name}: is not set"));
    }
    for (name, value) in [
        ("AWS_REGION", "PLANTED"),
        ("AWS_DEFAULT_REGION", "us-east-1/PLANTED"),
        ("AWS_ACCESS_KEY_ID", "PLANTED ID"),
        ("AWS_SESSION_TOKEN", "PLANTED\ntoken"),
        ("AWS_ENDPOINT_URL", "PLANTED"),
        ("AWS_ENDPOINT_URL_SQS", "https://user:PLANTED@localhost"),
        ("AWS_ENDPOINT_URL_SQS", "http://localhost/PLANTED"),
        ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "PLANTED"),
    ] {
        let no_region = [("AWS_REGION", "")];
        let first = if name == "AWS_DEFAULT_REGION" { &no_region[..] } else { &[] };
        let wrong = wrong(&[first, &[(name, value)]].concat());
        assert!(wrong.starts_with(&format!("{name}: ")) && !wrong.contains("PLANTED"), "{wrong}");
    }
    let credentials = Credentials::new("id", "secret");
    assert!(Config::new("", credentials.clone()).is_err());
    assert!(Config::new("us-east-1", credentials).unwrap().endpoint("localhost").is_err());
}

#[test]
fn a_configuration_shows_no_credential() {
    let shown = format!("{:?}", config(&[&KEY[..], &[("AWS_SESSION_TOKEN", "PLANTED")]].concat()).unwrap());
    assert!(shown.contains("us-east-1") && !shown.contains("PLANTED"), "{shown}");
}

#[test]
fn the_url_of_a_queue_names_it() {
    let long = "a".repeat(80);
    for (url, name, is_fifo) in [
        ("https://sqs.us-east-1.amazonaws.com/111122223333/answers.fifo", "answers.fifo", true),
        ("http://127.0.0.1:4566/000000000000/Jobs_1-dead", "Jobs_1-dead", false),
        (&format!("http://localhost/1/{long}"), &long, false),
        ("http://localhost:9324/queue/fifo", "fifo", false),
    ] {
        let queue = QueueUrl::new(url).unwrap_or_else(|| panic!("{url}"));
        assert_eq!((queue.as_str(), queue.name(), queue.is_fifo()), (url, name, is_fifo));
    }
    for url in [
        "",
        "answers.fifo",
        "111122223333/answers.fifo",
        "https://localhost",
        "https://sqs.us-east-1.amazonaws.com/111122223333/",
        "https://sqs.us-east-1.amazonaws.com/111122223333/.fifo",
        "https://sqs.us-east-1.amazonaws.com/111122223333/a.b",
        "https://sqs.us-east-1.amazonaws.com/111122223333/a b",
        "arn:aws:sqs:us-east-1:111122223333:answers.fifo",
        &format!("http://localhost/1/{long}a"),
    ] {
        assert!(QueueUrl::new(url).is_none(), "{url}");
    }
    let variables = Variables::from_lookup(|name| (name == "ANSWER_QUEUE_URL").then(|| "PLANTED".to_owned()));
    for (name, problem) in [("ANSWER_QUEUE_URL", "is not the URL of a queue"), ("OTHER", "is not set")] {
        let error = QueueUrl::from_variables(&variables, name).unwrap_err();
        assert_eq!(error.to_string(), format!("{name}: {problem}"));
    }
}
