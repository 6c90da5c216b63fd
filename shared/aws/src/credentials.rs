use onetap_config::{ConfigError, Secret, Variables};

/// AWS credentials that do not change, as Lambda sets them in the environment of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) access_key_id: Secret,
    pub(crate) secret_access_key: Secret,
    pub(crate) session_token: Option<Secret>,
}

impl Credentials {
    /// An access key.
    pub fn new(access_key_id: impl Into<Secret>, secret_access_key: impl Into<Secret>) -> Credentials {
        let (access_key_id, secret_access_key) = (access_key_id.into(), secret_access_key.into());
        Credentials { access_key_id, secret_access_key, session_token: None }
    }

    /// Adds the token that belongs to a temporary access key.
    #[must_use]
    pub fn session_token(mut self, token: impl Into<Secret>) -> Credentials {
        self.session_token = Some(token.into());
        self
    }

    /// Reads `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and, for a temporary key, `AWS_SESSION_TOKEN`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Credentials, ConfigError> {
        let id = for_header("AWS_ACCESS_KEY_ID", variables.required("AWS_ACCESS_KEY_ID")?)?;
        let credentials = Credentials::new(id, variables.required("AWS_SECRET_ACCESS_KEY")?);
        match variables.optional("AWS_SESSION_TOKEN")? {
            Some(token) => Ok(credentials.session_token(for_header("AWS_SESSION_TOKEN", token)?)),
            None => Ok(credentials),
        }
    }
}

/// A value that is sent in a header.
fn for_header(name: &str, value: String) -> Result<String, ConfigError> {
    if value.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(value)
    } else {
        Err(ConfigError::new(name, "has a space or a character outside ASCII"))
    }
}
