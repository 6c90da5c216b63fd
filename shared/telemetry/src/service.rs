//! The name under which CloudWatch keeps the metrics of one deployment apart from those of another.

/// Variables that name the service, the first one first. Lambda sets the second.
const VARIABLES: [&str; 2] = ["SERVICE_NAME", "AWS_LAMBDA_FUNCTION_NAME"];
/// CloudWatch's limit for the value of a dimension.
const MAX_NAME_BYTES: usize = 1024;

/// The value of the dimension `service` that every EMF metric has.
///
/// CloudWatch drops a metric with a dimension that it does not accept, so that there is no `Service` with such a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service(String);

impl Service {
    /// `None` if CloudWatch would not accept `name`: it takes up to 1024 printable ASCII characters that are not all blank.
    pub fn new(name: &str) -> Option<Service> {
        let printable = |c: char| c == ' ' || c.is_ascii_graphic();
        let name = name.trim();
        let accepted = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(printable);
        accepted.then(|| Service(name.to_owned()))
    }

    /// `SERVICE_NAME`, else the name of the Lambda function; `onetap` if neither is there or accepted.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Service {
        VARIABLES.iter().find_map(|name| Service::new(&lookup(name)?)).unwrap_or_default()
    }

    /// The same from the environment, with a warning if `SERVICE_NAME` is set and not used.
    pub(crate) fn from_env() -> Service {
        let lookup = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let set = lookup(VARIABLES[0]).filter(|name| !name.trim().is_empty());
        if set.is_some_and(|name| Service::new(&name).is_none()) {
            tracing::warn!("SERVICE_NAME is not 1 to 1024 printable ASCII characters and is not used");
        }
        Service::from_lookup(lookup)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Service {
    fn default() -> Service {
        Service("onetap".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(service: &str, function: Option<&str>) -> String {
        let service = Service::from_lookup(|name| match name {
            "SERVICE_NAME" => Some(service.to_owned()),
            "AWS_LAMBDA_FUNCTION_NAME" => function.map(str::to_owned),
            _ => None,
        });
        service.as_str().to_owned()
    }

    #[test]
    fn a_service_is_named_by_its_variable_else_by_its_function() {
        assert_eq!(named("shop-bot", Some("shop-bot-WebhookFunction-1")), "shop-bot");
        assert_eq!(named(" shop bot \n", None), "shop bot");
        let longest = "s".repeat(1024);
        assert_eq!(named(&longest, Some("function")), longest);
        assert_eq!(Service::from_lookup(|_| None), Service::default());
    }

    #[test]
    fn a_name_that_cloudwatch_would_refuse_is_not_used() {
        for refused in ["", "  ", "天氣", "a\tb", "a\nb", "a\u{7f}", &"s".repeat(1025)] {
            assert_eq!(named(refused, Some("function")), "function", "{refused:?}");
            assert_eq!(named(refused, Some("函式")), "onetap", "{refused:?}");
            assert_eq!(named(refused, None), "onetap", "{refused:?}");
        }
    }
}
