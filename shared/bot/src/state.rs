//! What a bot keeps of a conversation.

use std::fmt;

use onetap_idem::digest;
use onetap_store::{Batch, Error, Key, Ttl, Values};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Incoming;

/// A value that a bot keeps: of which type, under which name, and for how long after its last change.
///
/// ```
/// use std::time::Duration;
/// use onetap_bot::{State, Ttl};
///
/// #[derive(Default, serde::Serialize, serde::Deserialize)]
/// struct Count {
///     taps: u64,
/// }
///
/// const COUNT: State<Count> = State::new("count", Ttl::Of(Duration::from_secs(30 * 86_400)));
/// ```
///
/// It is kept as JSON under `user:{user_id}:{name}`, in a group or room under `user:{user_id}:{name}:{a hash of its id}`: what a user
/// said in one chat is not known in another. Without a stored value, the state is `T::default()`. If the function serves several
/// channels, the state is also one for each [named](crate::Incoming::channel_name) channel.
///
/// Read by [`Context::state`](crate::Context::state), it comes with the claim if [`Bot::reads`](crate::Bot::reads) names its
/// [`keys`](State::keys). Changed by [`Context::change`](crate::Context::change), it changes once for each event, through redeliveries,
/// races and crashes: the new value and the event's marker are one commit.
///
/// A stored value that is not a `T` is an error, and stays as it is. Give new fields `#[serde(default)]`.
pub struct State<T> {
    name: &'static str,
    ttl: TtlOf<T>,
    is_per_user: bool,
    is_lenient: bool,
}

enum TtlOf<T> {
    Fixed(Ttl),
    ByValue(fn(&T) -> Ttl),
}

impl<T> State<T> {
    /// The state under this name, kept for this long after its last change.
    pub const fn new(name: &'static str, ttl: Ttl) -> State<T> {
        State { name, ttl: TtlOf::Fixed(ttl), is_per_user: false, is_lenient: false }
    }

    /// The same, kept for as long as its value says.
    #[must_use]
    pub const fn ttl_by(self, ttl: fn(&T) -> Ttl) -> State<T> {
        State { ttl: TtlOf::ByValue(ttl), ..self }
    }

    /// The same, one for each user, in whatever chat. It is shared by the channels of one provider, in which LINE gives a user one id.
    #[must_use]
    pub const fn per_user(self) -> State<T> {
        State { is_per_user: true, ..self }
    }

    /// The same, where a stored value that is not a `T` counts as none, and is replaced.
    #[must_use]
    pub const fn lenient(self) -> State<T> {
        State { is_lenient: true, ..self }
    }

    /// Its key for the user who caused this event, in this chat; `None` if LINE does not name them.
    pub fn key(&self, incoming: &Incoming<'_>) -> Option<Key> {
        let (user, name) = (incoming.user_id()?, self.name);
        let channel = incoming.channel_name.unwrap_or_default();
        let key = match self.is_per_user || incoming.is_one_to_one() && channel.is_empty() {
            true => Key::new(format!("user:{user}:{name}")),
            false => {
                let chat = if incoming.is_one_to_one() { "" } else { incoming.chat_id()? };
                let parts = [incoming.event.source.chat.label(), chat, channel].map(str::as_bytes);
                Key::new(format!("user:{user}:{name}:{}", digest(&parts)))
            }
        };
        key.ok()
    }

    /// [`key`](State::key), for [`Bot::reads`](crate::Bot::reads).
    pub fn keys(&self, incoming: &Incoming<'_>) -> Vec<Key> {
        self.key(incoming).into_iter().collect()
    }
}

impl<T: Serialize + DeserializeOwned + Default> State<T> {
    /// The value of what is stored.
    pub fn read(&self, there: Option<&str>) -> Result<T, Error> {
        let Some(text) = there else { return Ok(T::default()) };
        match serde_json::from_str(text) {
            Ok(value) => Ok(value),
            Err(_) if self.is_lenient => Ok(T::default()),
            Err(_) => Err(Error::decode(format!("the state `{}` is not of its type", self.name))),
        }
    }

    /// The writes that keep `value` in place of what is there: none if it is there already. The type's default is kept by deleting
    /// the key.
    pub fn write(&self, writes: Batch, key: &Key, there: &Values, value: &T) -> Result<Batch, Error> {
        let json = |value: &T| {
            let wrong = |_| Error::decode(format!("the state `{}` cannot be written as JSON", self.name));
            serde_json::to_string(value).map_err(wrong)
        };
        let new = json(value)?;
        Ok(match there.get(key) {
            Some(old) if old == new => writes,
            Some(old) if new == json(&T::default())? => writes.delete(key, old),
            None if new == json(&T::default())? => writes,
            _ => {
                let ttl = match &self.ttl {
                    TtlOf::Fixed(ttl) => *ttl,
                    TtlOf::ByValue(of) => of(value),
                };
                writes.put(key, there.expect(key), new, ttl)
            }
        })
    }
}

impl<T> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("name", &self.name).finish_non_exhaustive()
    }
}
