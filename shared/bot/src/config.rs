//! The settings that a bot's function reads from its environment.

use std::time::Duration;

use onetap_config::{ConfigError, Secret, Variables};
use onetap_idem as idem;
use onetap_line::Message;
use serde::Deserialize;

/// How long LINE waits for an answer.
const LINE_TIMEOUT: Duration = Duration::from_secs(2);
/// A marker lives for the day in which LINE may redeliver.
const MARKER_TTL: Duration = Duration::from_secs(86_400);

/// Time limits within the two seconds that LINE waits. No variable sets them: only a caller that stands in for LINE, and
/// waits longer, sets other limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Time limit for a whole delivery.
    pub delivery: Duration,
    /// Time limit for one reply, and the time that is kept for it at the end of a delivery.
    pub reply: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times { delivery: Duration::from_millis(1800), reply: Duration::from_millis(500) }
    }
}

/// The settings of a [`Webhook`](crate::Webhook).
#[derive(Clone, Debug)]
pub struct Config {
    /// The LINE channels that the function serves, at least one.
    pub channels: Vec<Channel>,
    /// The processing lock; `None` with `PROCESSING_LOCK_ENABLED=false`.
    pub lock: Option<Lock>,
    /// Prefix and TTL of the markers of handled events.
    pub idem: idem::Config,
    /// Time limits of a delivery and its parts.
    pub times: Times,
}

/// A LINE channel.
#[derive(Clone, Debug)]
pub struct Channel {
    /// The user id of the channel's bot, which LINE names in each delivery; `None` if the function serves this channel only.
    pub destination: Option<String>,
    /// Sets its users' [states](crate::State) apart from those of other channels. A channel without a name has those that it has as the
    /// only channel.
    pub name: Option<String>,
    /// Its secrets, its token and the address of the Messaging API.
    pub line: onetap_line::Config,
}

/// The processing lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// `PROCESSING_LOCK_TIMEOUT_SECONDS`
    pub ttl: Duration,
    /// `PROCESSING_LOCK_MIN_HOLD_MS`: how long the lock is kept at least, counted from when it was taken (a cooldown).
    pub min_hold: Duration,
    /// `PROCESSING_LOCK_MESSAGE`: the reply to an event that finds the lock held, else the bot's own.
    pub message: Option<Message>,
}

impl Config {
    /// Reads `variables`.
    pub fn from_variables(variables: &Variables<'_>) -> Result<Config, ConfigError> {
        let ttl = variables.seconds("PROCESSING_LOCK_TIMEOUT_SECONDS", 5)?;
        let min_hold = variables.millis_or_zero("PROCESSING_LOCK_MIN_HOLD_MS", 0)?;
        let message = variables.optional("PROCESSING_LOCK_MESSAGE")?.map(|text| {
            let too_long = "is longer than 5000 characters (UTF-16 units)";
            Message::whole_text(text).ok_or_else(|| ConfigError::new("PROCESSING_LOCK_MESSAGE", too_long))
        });
        let message = message.transpose()?;
        let enabled = variables.parsed("PROCESSING_LOCK_ENABLED", "true or false", true)?;
        // The lease of a claim covers a delivery, and is otherwise no longer than the lock.
        let idem = idem::Config::from_variables(variables)?;
        let lease_ttl = idem.get_lease_ttl().min(ttl.max(LINE_TIMEOUT));
        Ok(Config {
            channels: channels(variables)?,
            lock: enabled.then_some(Lock { ttl, min_hold, message }),
            idem: idem.lease_ttl(lease_ttl).result_ttl(MARKER_TTL),
            times: Times::default(),
        })
    }
}

/// One channel of `LINE_CHANNELS`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedChannel {
    destination: String,
    secret: String,
    access_token: String,
    name: Option<String>,
}

/// The channels of `LINE_CHANNELS`, else the one of `LINE_CHANNEL_SECRET` and `LINE_CHANNEL_ACCESS_TOKEN`.
fn channels(variables: &Variables<'_>) -> Result<Vec<Channel>, ConfigError> {
    const NAME: &str = "LINE_CHANNELS";
    let Some(json) = variables.optional(NAME)? else {
        return Ok(vec![Channel {
            destination: None,
            name: None,
            line: onetap_line::Config::from_variables(variables)?,
        }]);
    };
    for alone in ["LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN"] {
        if variables.optional(alone)?.is_some() {
            return Err(ConfigError::new(NAME, format!("is set, and so is {alone}: set one of the two")));
        }
    }
    // The parser's own message may quote a secret.
    let wrong = |_| {
        let form =
            r#"is not JSON of the form [{"destination":"U…","secret":"…","access_token":"…","name":"…"}]"#;
        ConfigError::new(NAME, form)
    };
    let named: Vec<NamedChannel> = serde_json::from_str(&json).map_err(wrong)?;
    let mut channels: Vec<Channel> = Vec::new();
    for NamedChannel { destination, secret, access_token, name } in named {
        let n = channels.len() + 1;
        let wrong = |problem: &str| Err(ConfigError::new(NAME, format!("channel {n} {problem}")));
        let fields = [Some(&destination), Some(&secret), Some(&access_token), name.as_ref()];
        if fields.into_iter().flatten().any(|field| field.trim().is_empty()) {
            return wrong("has an empty field");
        }
        if channels.iter().any(|other| other.destination.as_deref() == Some(&destination)) {
            return wrong("has the destination of another one");
        }
        match &name {
            Some(_) if channels.iter().any(|other| other.name == name) => {
                return wrong("has the name of another one");
            }
            None if channels.iter().any(|other| other.name.is_none()) => {
                return wrong("needs a `name`: only one channel can be without");
            }
            _ => {}
        }
        // The same rules as for one channel.
        let own = |name: &str| match name {
            "LINE_CHANNEL_SECRET" => Some(secret.clone()),
            "LINE_CHANNEL_ACCESS_TOKEN" => Some(access_token.clone()),
            name => variables.optional(name).ok().flatten(),
        };
        let line = onetap_line::Config::from_variables(&Variables::from_lookup(own));
        let line = line.map_err(|error| ConfigError::new(NAME, format!("channel {n}: {error}")))?;
        channels.push(Channel { destination: Some(destination), name, line });
    }
    let shared =
        |secret: &Secret| channels.iter().filter(|channel| channel.line.secrets.contains(secret)).count() > 1;
    if channels.iter().flat_map(|channel| &channel.line.secrets).any(shared) {
        return Err(ConfigError::new(NAME, "two channels have the same secret"));
    }
    if channels.is_empty() {
        return Err(ConfigError::new(NAME, "names no channel"));
    }
    Ok(channels)
}
