//! Variables: what is wrong is said with the variable's name.

use std::time::Duration;

use onetap_config::{ConfigError, MAX_DURATION, Secret, Variables, is_http_url};

/// The only variable, `N`, set to `value`.
fn set(value: &str) -> Variables<'_> {
    Variables::from_lookup(move |name| (name == "N").then(|| value.to_owned()))
}

#[test]
fn a_variable_that_is_not_utf_8_is_an_error_and_not_unset() {
    use std::os::unix::ffi::OsStringExt;
    const NAME: &str = "ONETAP_TEST_VARIABLE_THAT_IS_NOT_UTF_8";
    // Only the environment of a process of its own can be set without disturbing the tests beside this one.
    if std::env::var_os(NAME).is_none() {
        let this = std::env::current_exe().unwrap();
        let value = std::ffi::OsString::from_vec(b"planted\xff".to_vec());
        let own = "a_variable_that_is_not_utf_8_is_an_error_and_not_unset";
        let again =
            std::process::Command::new(this).args(["--exact", own]).env(NAME, value).output().unwrap();
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
        return;
    }
    let variables = Variables::from_env();
    for error in [
        variables.optional(NAME).unwrap_err(),
        variables.required(NAME).unwrap_err(),
        variables.positive(NAME, 1).unwrap_err(),
        variables.base_url(NAME).unwrap_err(),
        variables.seconds(NAME, 1).unwrap_err(),
        variables.secrets(NAME).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), format!("{NAME}: is not UTF-8 text"));
    }
}

#[test]
fn empty_counts_as_unset() {
    for unset in ["", "  "] {
        assert_eq!(set(unset).optional("N"), Ok(None));
        assert_eq!(set(unset).required("N"), Err(ConfigError::new("N", "is not set")));
        assert_eq!(set(unset).positive("N", 7), Ok(7));
    }
}

#[test]
fn a_number_out_of_range_names_its_variable() {
    assert_eq!(set(" 12 ").positive("N", 1).unwrap(), 12, "spaces around a value are not part of it");
    for wrong in ["99999999999999999999", "0", "-1", "1.5", "many"] {
        let error = set(wrong).positive("N", 1).unwrap_err();
        assert_eq!(error.variable(), "N");
        assert_eq!(error.to_string(), "N: is not a whole number above 0", "{wrong}");
    }
}

#[test]
fn a_time_is_above_zero_unless_zero_is_allowed() {
    assert_eq!(set("90").seconds("N", 1), Ok(Duration::from_secs(90)));
    assert_eq!(set("90").millis("N", 1), Ok(Duration::from_millis(90)));
    let problem = |result: Result<Duration, ConfigError>| result.unwrap_err().to_string();
    assert_eq!(problem(set("0").seconds("N", 1)), "N: is not a whole number above 0");
    assert_eq!(problem(set("0").millis("N", 1)), "N: is not a whole number above 0");
    assert_eq!(set("0").seconds_or_zero("N", 1), Ok(Duration::ZERO));
    assert_eq!(set("0").millis_or_zero("N", 1), Ok(Duration::ZERO));
    assert_eq!(problem(set("-1").seconds_or_zero("N", 1)), "N: is not a whole number");
    assert_eq!(problem(set("soon").millis_or_zero("N", 1)), "N: is not a whole number");
}

#[test]
fn a_time_is_at_most_ten_years() {
    let longest = MAX_DURATION.as_secs();
    assert_eq!(set(&longest.to_string()).seconds("N", 1), Ok(MAX_DURATION));
    assert_eq!(set(&(longest * 1000).to_string()).millis("N", 1), Ok(MAX_DURATION));
    for (seconds, millis) in [(longest + 1, longest * 1000 + 1), (u64::MAX, u64::MAX)] {
        let (seconds, millis) = (seconds.to_string(), millis.to_string());
        for result in [
            set(&seconds).seconds("N", 1),
            set(&seconds).seconds_or_zero("N", 1),
            set(&millis).millis("N", 1),
            set(&millis).millis_or_zero("N", 1),
        ] {
            assert_eq!(result.unwrap_err().to_string(), "N: is more than ten years");
        }
    }
}

#[test]
fn a_list_of_secrets_has_at_least_one() {
    assert_eq!(set("one, two ,").secrets("N").unwrap(), [Secret::new("one"), Secret::new("two")]);
    for nothing in ["", ",", " , "] {
        assert_eq!(set(nothing).secrets("N").unwrap_err().to_string(), "N: is not set", "{nothing:?}");
    }
}

#[test]
fn an_alternative_name_is_used_where_only_it_is_set() {
    let name = |value: &str, other: &str| {
        let (value, other) = (value.to_owned(), other.to_owned());
        let lookup = move |name: &str| Some(if name == "N" { value.clone() } else { other.clone() });
        Variables::from_lookup(lookup).name_in_use("N", &["OTHER"]).unwrap()
    };
    assert_eq!([name("1", "2"), name("1", ""), name("", "2"), name("", "")], ["N", "N", "OTHER", "N"]);
}

#[test]
fn a_base_url_loses_the_slash_at_its_end() {
    assert_eq!(set("https://host/path/").base_url("N").unwrap().as_deref(), Some("https://host/path"));
    assert_eq!(set("").base_url("N").unwrap(), None);
    let error = set("planted").base_url("N").unwrap_err();
    assert_eq!(error.to_string(), "N: is not an http:// or https:// URL", "what it holds is not repeated");
}

#[test]
fn a_url_has_a_scheme_a_host_and_a_port_that_exists() {
    for good in ["http://host", "https://a-b.c_d.example:8443/", "http://127.0.0.1:1/path", "http://[::1]:80"]
    {
        assert!(is_http_url(good), "{good}");
    }
    for wrong in
        ["host", "//host", "ftp://host", "https://host:0", "https://name:password@host", "https://[::1"]
    {
        assert!(!is_http_url(wrong), "{wrong}");
    }
}

#[test]
fn a_secret_is_not_in_debug_output() {
    let shown = format!("{:?} {:?}", Secret::new("planted"), set("planted"));
    assert!(!shown.contains("planted"), "{shown}");
}
