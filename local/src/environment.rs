//! The variables: those that are set, and generated or default values for the others.

use onetap_config::Variables;
use onetap_store::lease::unique_token;

use crate::arguments::Options;

const BASE_URL: &str = "LINE_API_BASE_URL";
const DATA_BASE_URL: &str = "LINE_DATA_API_BASE_URL";

/// A secret that the runner generated for an unset variable.
#[derive(Clone)]
pub struct Generated {
    /// The name of the variable.
    pub name: &'static str,
    /// Its value. It is good for this run only, so it may be shown.
    pub value: String,
    /// Where it is used.
    pub used: &'static str,
}

impl std::fmt::Debug for Generated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generated({})", self.name)
    }
}

/// The secrets that can be generated, and where each is used.
const SECRETS: [(&str, &str); 4] = [
    ("LINE_CHANNEL_SECRET", "signs POST /line/webhook (x-line-signature)"),
    ("LINE_CHANNEL_ACCESS_TOKEN", "bearer token of the stub's POST /v2/bot/message/reply"),
    ("EDIT_API_TOKEN", "bearer token of /users/{user_id}/last-transaction and …/transactions"),
    ("JOB_EVENTS_SECRET", "signs ?token=… of GET /jobs/{job_id}/events"),
];

/// The variables that are set, completed.
pub(crate) struct Environment<'a> {
    given: &'a Variables<'a>,
    /// Values that the options decide; they go before what is set.
    fixed: Vec<(&'static str, String)>,
    generated: Vec<Generated>,
    defaults: Vec<(&'static str, String)>,
}

impl<'a> Environment<'a> {
    /// Completes `given`: the options go before it, and unset secrets are generated.
    pub(crate) fn new(given: &'a Variables<'a>, options: &Options, origin: &str) -> Environment<'a> {
        let mut fixed: Vec<_> = options.store.iter().map(|store| ("STORE", store.clone())).collect();
        if options.demo {
            // The demo slows the weather down, so that its taps meet, and takes it down. An empty value is an unset one.
            fixed.push(("WEATHER_PROVIDER", "sample".to_owned()));
            let unset = ["WEATHER_FALLBACK_PROVIDER", "WEATHER_FRESH_SECONDS", "WEATHER_STALE_SECONDS"];
            fixed.extend(unset.map(|name| (name, String::new())));
        }
        let unset = SECRETS.into_iter().filter(|(name, _)| given.optional(name) == Ok(None));
        let generated = unset.map(|(name, used)| Generated { name, value: unique_token(), used }).collect();
        let defaults = vec![
            ("STORE", "memory".to_owned()),
            ("WEATHER_PROVIDER", "sample".to_owned()),
            ("JOB_EVENTS_ALLOW_ORIGIN", origin.to_owned()),
        ];
        Environment { given, fixed, generated, defaults }
    }

    /// Sends replies to the stub at `url`, unless another address is set, and downloads, unless one for them is set; the demo's
    /// always. Returns whether replies go there.
    pub(crate) fn line_stub(&mut self, url: String, options: &Options) -> bool {
        let stub = options.demo || self.given.optional(BASE_URL) == Ok(None);
        if options.demo {
            self.fixed.push((DATA_BASE_URL, url.clone()));
        }
        if stub {
            // Downloads go there too if they have no address of their own.
            self.fixed.push((BASE_URL, url));
        }
        stub
    }

    /// The variables as the functions read them.
    pub(crate) fn variables(&self) -> Variables<'_> {
        Variables::try_from_lookup(|name| {
            let among = |all: &[(&str, String)]| all.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone());
            let generated =
                || self.generated.iter().find(|one| one.name == name).map(|one| one.value.clone());
            if let Some(fixed) = among(&self.fixed) {
                return Ok(Some(fixed));
            }
            Ok(self.given.optional(name)?.or_else(generated).or_else(|| among(&self.defaults)))
        })
    }

    /// The generated secrets.
    pub(crate) fn into_generated(self) -> Vec<Generated> {
        self.generated
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
        let generated: Vec<&str> = environment.into_generated().iter().map(|one| one.name).collect();
        assert_eq!(generated, ["LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN", "JOB_EVENTS_SECRET"]);
    }

    #[test]
    fn the_demo_asks_line_for_nothing() {
        let stub = || "http://127.0.0.1:1".to_owned();
        let addresses = |set: &[(&str, &str)], options: &Options| {
            let of = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, url)| (*url).to_owned());
            let given = Variables::from_lookup(of);
            let mut environment = Environment::new(&given, options, "http://127.0.0.1:1");
            let is_stub = environment.line_stub(stub(), options);
            let all = environment.variables();
            let address = |name| all.optional(name).unwrap().unwrap_or_default();
            (is_stub, [address("LINE_API_BASE_URL"), address("LINE_DATA_API_BASE_URL")])
        };
        let demo = Options { demo: true, ..Options::default() };
        let data = ("LINE_DATA_API_BASE_URL", "https://data.example");
        let api = ("LINE_API_BASE_URL", "https://api.example");
        assert_eq!(addresses(&[api, data], &demo), (true, [stub(), stub()]));
        let given = [api, data].map(|(_, url)| url.to_owned());
        assert_eq!(addresses(&[api, data], &Options::default()), (false, given.clone()), "what is set stays");
        let [_, data_url] = given;
        assert_eq!(addresses(&[data], &Options::default()), (true, [stub(), data_url]));
    }

    #[test]
    fn the_option_goes_before_the_variable() {
        let given = Variables::from_lookup(|name| (name == "STORE").then(|| "redis".to_owned()));
        let options = Options { store: Some("upstash".to_owned()), ..Options::default() };
        let environment = Environment::new(&given, &options, "http://127.0.0.1:1");
        assert_eq!(environment.variables().optional("STORE").unwrap().as_deref(), Some("upstash"));
    }
}
