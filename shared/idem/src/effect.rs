//! Keys for effects outside the store, which their receiver dedupes.

use std::fmt;
use std::sync::Arc;

use super::digest;

/// Tells these hashes from others of the same parts, for example fingerprints.
const PURPOSE: &[u8] = b"effect";

/// Makes the keys that a function sends with its effects to receivers that dedupe: Stripe's `Idempotency-Key`, LINE's
/// `X-Line-Retry-Key`. They depend on the idempotency key (with its prefix) and on a label, so they are the same in every
/// retry, in every takeover and in every version of this crate. If an owner dies between an effect and its record, the next
/// owner sends the effect again under the same key, and the receiver drops it: the effect is there once.
///
/// They are from [`Call::effect_keys`](super::Call::effect_keys), before the call is run, or from
/// [`Run::effect_keys`](super::Run::effect_keys). Both give the same keys.
///
/// ```
/// # use std::{collections::HashSet, sync::{Arc, Mutex}, time::Duration};
/// # use onetap_idem::{ClaimOutcome, EffectKey, Idempotency};
/// # use onetap_store::{Memory, Store};
/// /// A receiver that dedupes.
/// #[derive(Default)]
/// struct Bank(Mutex<HashSet<String>>);
///
/// impl Bank {
///     async fn charge(&self, key: EffectKey) -> Result<(), std::io::Error> {
///         self.0.lock().unwrap().insert(key.to_string());
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store: Arc<dyn Store> = Arc::new(Memory::new());
/// # let idem = Idempotency::new(Arc::clone(&store));
/// let bank = Bank::default();
/// # let claim = idem.call("order:42").claim()?;
/// # let answer = store.commit(&claim.batch()).await?;
/// # let ClaimOutcome::Mine(run) = claim.outcome(tokio::time::Instant::now(), answer)? else { panic!("not claimed") };
/// // An owner charges and dies before its result is recorded.
/// bank.charge(run.effect_keys().key("charge")).await?;
/// # drop(run);
///
/// // When its claim has lapsed, another takes over, and charges again.
/// let call = idem.call("order:42");
/// let effects = call.effect_keys();
/// call.execute(|| bank.charge(effects.key("charge"))).await?;
///
/// assert_eq!(bank.0.lock().unwrap().len(), 1);
/// # Ok(()) }
/// ```
///
/// A function with several effects gives each a label of its own. Payloads are not part of the key: most receivers refuse a
/// known key with another payload, so make the payload from the same input every time.
///
/// A receiver cannot read the idempotency key from these keys. They are plain hashes, without a secret: a receiver that can
/// guess the idempotency key can check its guess.
#[derive(Clone)]
pub struct EffectKeys {
    /// The whole name of the call's record.
    record: Arc<str>,
}

impl EffectKeys {
    pub(super) fn new(record: impl Into<Arc<str>>) -> EffectKeys {
        EffectKeys { record: record.into() }
    }

    /// Whether both are of calls with the same record.
    #[cfg(feature = "tower")]
    pub(super) fn are_of_the_record_of(&self, other: &EffectKeys) -> bool {
        self.record == other.record
    }

    /// The key of the effect that `label` names among the effects of this call.
    pub fn key(&self, label: &str) -> EffectKey {
        EffectKey(digest(&[PURPOSE, self.record.as_bytes(), label.as_bytes()]))
    }
}

/// A key for one effect, from [`EffectKeys`]: 64 hex digits as text, or a [UUID](EffectKey::uuid).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectKey(String);

impl EffectKey {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as a UUID (RFC 9562, version 8), for receivers that take nothing else.
    pub fn uuid(&self) -> String {
        let number = self.0.get(..32).and_then(|half| u128::from_str_radix(half, 16).ok());
        // A digest has 64 hex digits, so there is a number.
        let number = number.unwrap_or_default();
        let versioned = number & !(0xf << 76) | 0x8 << 76;
        let hex = format!("{:032x}", versioned & !(0b11 << 62) | 0b10 << 62);
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for EffectKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for EffectKeys {
    /// Without the key: keys hold user ids.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectKeys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(record: &str, label: &str) -> EffectKey {
        EffectKeys::new(record).key(label)
    }

    #[test]
    fn a_key_never_changes_between_versions() {
        let charge = key("idem:order:42", "charge");
        assert_eq!(charge.as_str(), "ef736500542b5c49ab5c9bb8fb6eeed5fab38a70355ea9961f756afa6f90b8f0");
        assert_eq!(charge.to_string(), charge.as_str());
        assert_eq!(charge.uuid(), "ef736500-542b-8c49-ab5c-9bb8fb6eeed5");
    }

    #[test]
    fn a_uuid_has_version_8_and_the_variant_of_its_rfc() {
        for n in 0..100 {
            let uuid = key("idem:order:42", &n.to_string()).uuid();
            let parts: Vec<&str> = uuid.split('-').collect();
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
            assert!(parts[2].starts_with('8') && parts[3].starts_with(['8', '9', 'a', 'b']), "{uuid}");
        }
    }

    #[test]
    fn two_labels_or_two_records_share_no_key() {
        let keys = [
            key("idem:order:42", "charge"),
            key("idem:order:42", "mail"),
            key("idem:order:42", ""),
            key("idem:order:43", "charge"),
            key("other:order:42", "charge"),
            key("idem:order:4", "2charge"),
        ];
        for (n, key) in keys.iter().enumerate() {
            assert!(keys[..n].iter().all(|other| other != key && other.uuid() != key.uuid()));
        }
    }

    #[test]
    fn debug_shows_no_idempotency_key() {
        let keys = EffectKeys::new("idem:user:7");
        assert!(!format!("{keys:?} {:?}", keys.key("mail")).contains("user"));
    }
}
