//! What is kept for a user: the saved places, the last ones asked for, and whether the user is here.

use std::fmt;
use std::time::Duration;

use onetap_bot::{Change, Context, Messages, State};
use onetap_ledger::chat::Habits;
use onetap_store::{Batch, Edit, Ttl};
use onetap_weather::Place;
use onetap_weather::places::by_name;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::weather::Saved;

/// The number of recent places that are kept.
const MAX_RECENT: usize = 5;
/// How long the profile of a user who has left is kept: from the unfollow, or from the last change that the user made
/// to it in a group after that.
const TTL_AFTER_UNFOLLOW: Duration = Duration::from_secs(30 * 86_400);

/// The profile of a user, in whatever chat. What cannot be read is as good as none: it holds nothing that the user could not say
/// again.
pub const PROFILE: State<Profile> =
    State::new("profile", Ttl::Forever).ttl_by(Profile::ttl).per_user().lenient();

/// A profile, as JSON under `user:{user_id}:profile`. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    home: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    office: Option<String>,
    #[serde(default)]
    recent: Vec<String>,
    #[serde(default = "yes")]
    active: bool,
    /// When the user came or left, in milliseconds since 1970; unknown in a profile of an earlier version. LINE may
    /// deliver what happened before that later, and then it no longer says whether the user is here.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    /// How the user keeps books.
    #[serde(default, deserialize_with = "lenient_habits", skip_serializing_if = "Habits::is_empty")]
    habits: Habits,
    /// What a newer version keeps beside these.
    #[serde(flatten)]
    more: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// A number; anything else reads as `None`.
fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(Value::deserialize(deserializer)?.as_i64())
}

/// Habits; anything else reads as none.
fn lenient_habits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Habits, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            home: None,
            office: None,
            recent: Vec::new(),
            active: true,
            since: None,
            habits: Habits::default(),
            more: Map::new(),
        }
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Profile(…)")
    }
}

/// A change of a profile.
#[derive(Clone, Debug)]
pub enum ProfileChange {
    /// This place is saved.
    Save(Saved, &'static Place),
    /// This place was asked for.
    Visit(&'static Place),
    /// The user wrote to the bot alone, as only a follower can. All times are in milliseconds since 1970.
    Here(i64),
    /// The user followed the bot.
    Activate(i64),
    /// The user left.
    Deactivate(i64),
}

impl Profile {
    /// How long it is kept: as long as its user is here, and a while longer.
    pub fn ttl(&self) -> Ttl {
        if self.active { Ttl::Forever } else { Ttl::Of(TTL_AFTER_UNFOLLOW) }
    }

    /// The saved place, if there is one that still exists.
    pub fn saved(&self, saved: Saved) -> Option<&'static Place> {
        let name = match saved {
            Saved::Home => self.home.as_deref(),
            Saved::Office => self.office.as_deref(),
        };
        name.and_then(by_name)
    }

    /// The places that were asked for, the latest first.
    pub fn recent(&self) -> Vec<&'static Place> {
        self.recent.iter().filter_map(|name| by_name(name)).take(MAX_RECENT).collect()
    }

    /// How the user keeps books.
    pub fn habits(&self) -> &Habits {
        &self.habits
    }

    /// With these habits.
    #[must_use]
    pub fn with_habits(self, habits: Habits) -> Profile {
        Profile { habits, ..self }
    }

    /// With `change` made.
    #[must_use]
    pub fn with(mut self, change: &ProfileChange) -> Profile {
        match change {
            ProfileChange::Save(Saved::Home, place) => self.home = Some(place.name()),
            ProfileChange::Save(Saved::Office, place) => self.office = Some(place.name()),
            ProfileChange::Visit(place) => {
                let name = place.name();
                self.recent.retain(|other| *other != name);
                self.recent.insert(0, name);
                self.recent.truncate(MAX_RECENT);
            }
            ProfileChange::Here(_) if self.active => {}
            ProfileChange::Here(at) | ProfileChange::Activate(at) => self.turn(true, *at),
            ProfileChange::Deactivate(at) => self.turn(false, *at),
        }
        self
    }

    /// The user came or left at this time, unless a later time is known.
    fn turn(&mut self, active: bool, at: i64) {
        if self.since.is_none_or(|since| since <= at) {
            (self.active, self.since) = (active, Some(at));
        }
    }
}

/// The change of the user's profile by `changes`, and the messages that are right once it is made; `None` if LINE does not name the
/// user.
pub(crate) fn change(
    context: &Context<'_>,
    changes: Vec<ProfileChange>,
    messages: Option<Messages>,
) -> Option<Change> {
    let key = PROFILE.key(context.incoming())?;
    let change = Change::new(Edit::of(&key), move |there| {
        // Without a profile, an unfollow writes nothing.
        let is_needless =
            there.get(&key).is_none() && matches!(changes.as_slice(), [ProfileChange::Deactivate(_)]);
        let profile = changes.iter().fold(PROFILE.read(there.get(&key))?, Profile::with);
        let writes = match is_needless {
            true => Batch::new(),
            false => PROFILE.write(Batch::new(), &key, there, &profile)?,
        };
        Ok((writes, messages.clone()))
    });
    Some(change.repeatable())
}
