//! The variables: those that are set, and what is made up where none is.

use onetap_config::Variables;
use onetap_store::lease::unique_token;

use crate::arguments::Options;

const BASE_URL: &str = "LINE_API_BASE_URL";

/// A variable that was unset, with what the runner made up.
#[derive(Clone)]
pub struct Made {
    /// Its name.
    pub name: &'static str,
    /// Its value: a secret of this run alone, so that it may be shown.
    pub value: String,
    /// Where it is used.
    pub used: &'static str,
}

impl std::fmt::Debug for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Made({})", self.name)
    }
}

/// Where each secret that can be made up is used.
const SECRETS: [(&str, &str); 4] = [
    ("LINE_CHANNEL_SECRET", "signs POST /line/webhook (x-line-signature)"),
    ("LINE_CHANNEL_ACCESS_TOKEN", "bearer token of the stub's POST /v2/bot/message/reply"),
    ("EDIT_API_TOKEN", "bearer token of /users/{user_id}/last-transaction"),
    ("JOB_EVENTS_SECRET", "signs ?token=… of GET /jobs/{job_id}/events"),
];

/// The environment, completed.
pub(crate) struct Environment<'a> {
    given: &'a Variables<'a>,
    fixed: Vec<(&'static str, String)>,
    made: Vec<Made>,
    defaults: Vec<(&'static str, String)>,
}

impl<'a> Environment<'a> {
    /// `given`, but for what the options decide, and with secrets for what is unset.
    pub(crate) fn new(given: &'a Variables<'a>, options: &Options, origin: &str) -> Environment<'a> {
        let mut fixed: Vec<_> = options.store.iter().map(|store| ("STORE", store.clone())).collect();
        if options.demo {
            // Its taps meet in weather that can be slowed down, and its replies are counted.
            fixed.push(("WEATHER_PROVIDER", "sample".to_owned()));
        }
        let unset = SECRETS.into_iter().filter(|(name, _)| given.optional(name) == Ok(None));
        let made = unset.map(|(name, used)| Made { name, value: unique_token(), used }).collect();
        let defaults = vec![
            ("STORE", "memory".to_owned()),
            ("WEATHER_PROVIDER", "sample".to_owned()),
            ("JOB_EVENTS_ALLOW_ORIGIN", origin.to_owned()),
        ];
        Environment { given, fixed, made, defaults }
    }

    /// Where replies go: to the stub at `url`, unless another place is set; the demo's always.
    pub(crate) fn line_stub(&mut self, url: String, options: &Options) -> bool {
        let stub = options.demo || self.given.optional(BASE_URL) == Ok(None);
        if stub {
            self.fixed.push((BASE_URL, url));
        }
        stub
    }

    /// All of it, as the functions read it.
    pub(crate) fn variables(&self) -> Variables<'_> {
        Variables::try_from_lookup(|name| {
            let among = |all: &[(&str, String)]| all.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            let made = || self.made.iter().find(|made| made.name == name).map(|made| made.value.clone());
            if let Some(fixed) = among(&self.fixed) {
                return Ok(Some(fixed));
            }
            Ok(self.given.optional(name)?.or_else(made).or_else(|| among(&self.defaults)))
        })
    }

    /// What was made up.
    pub(crate) fn into_made(self) -> Vec<Made> {
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_stays_and_what_is_unset_is_made_up() {
        let set = |name: &str| match name {
            "EDIT_API_TOKEN" => Some("mine".to_owned()),
            "STORE" => Some("redis".to_owned()),
            "JOB_EVENTS_SECRET" => Some(String::new()),
            _ => None,
        };
        let given = Variables::from_lookup(set);
        let environment = Environment::new(&given, &Options::default(), "http://127.0.0.1:1");
        let all = environment.variables();
        assert_eq!(all.optional("EDIT_API_TOKEN").unwrap().as_deref(), Some("mine"));
        assert_eq!(all.optional("STORE").unwrap().as_deref(), Some("redis"));
        assert_eq!(all.optional("WEATHER_PROVIDER").unwrap().as_deref(), Some("sample"));
        assert_eq!(all.optional("LINE_CHANNEL_SECRET").unwrap().map(|secret| secret.len()), Some(32));
        drop(all);
        let made: Vec<&str> = environment.into_made().iter().map(|made| made.name).collect();
        assert_eq!(made, ["LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN", "JOB_EVENTS_SECRET"]);
    }

    #[test]
    fn the_option_goes_before_the_variable() {
        let given = Variables::from_lookup(|name| (name == "STORE").then(|| "redis".to_owned()));
        let options = Options { store: Some("upstash".to_owned()), ..Options::default() };
        let environment = Environment::new(&given, &options, "http://127.0.0.1:1");
        assert_eq!(environment.variables().optional("STORE").unwrap().as_deref(), Some("upstash"));
    }
}
