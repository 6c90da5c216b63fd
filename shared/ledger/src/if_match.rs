//! `If-Match`: the value, or the transaction, that a request is meant for.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::Moment;

/// The entity tag of a stored value, in its quotes: a hash of its bytes.
pub fn etag(stored: &str) -> String {
    // 128 bits are enough to tell the values of one key apart.
    let half =
        Sha256::digest(stored.as_bytes()).iter().take(16).fold(0u128, |n, byte| n << 8 | u128::from(*byte));
    format!("\"{half:032x}\"")
}

/// The condition of an `If-Match` header: one of the named values or transactions, or with `*` any that is there.
#[derive(Clone, PartialEq, Eq)]
pub struct IfMatch {
    /// `None` stands for `*`.
    names: Option<Vec<Name>>,
}

#[derive(Clone, PartialEq, Eq)]
enum Name {
    /// A `交易ID`, with or without quotes.
    Transaction(String),
    /// An entity tag, with its quotes.
    Value(String),
}

impl fmt::Debug for IfMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IfMatch({})", self.names.as_ref().map_or("*".to_owned(), |names| names.len().to_string()))
    }
}

impl IfMatch {
    /// Reads a header. A weak tag matches nothing, as HTTP requires, and neither does what is no tag.
    pub fn parse(header: &str) -> IfMatch {
        if header.trim() == "*" {
            return IfMatch { names: None };
        }
        let name = |text: &str| match text.trim().trim_matches('"') {
            id if Moment::parse_id(id).is_some() => Name::Transaction(id.to_owned()),
            _ => Name::Value(text.trim().to_owned()),
        };
        // No tag of ours has a comma in it.
        IfMatch { names: Some(header.split(',').map(name).collect()) }
    }

    /// Whether the stored value is one of those that are named.
    pub(crate) fn holds(&self, stored: &str, id: Option<&str>) -> bool {
        let tag = etag(stored);
        self.names.as_ref().is_none_or(|names| {
            names.iter().any(|name| match name {
                Name::Transaction(named) => id == Some(named),
                Name::Value(named) => *named == tag,
            })
        })
    }

    /// Whether it names a value, not only transactions. The edit that names a value may itself have replaced it, in an
    /// earlier attempt whose reply was lost.
    pub(crate) fn names_a_value(&self) -> bool {
        self.names.iter().flatten().any(|name| matches!(name, Name::Value(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(header: &str) -> bool {
        IfMatch::parse(header).holds("stored", Some("20251129-143000"))
    }

    #[test]
    fn a_value_a_transaction_or_a_star_matches() {
        let tag = etag("stored");
        assert!(tag.len() == 34 && tag.starts_with('"') && tag.ends_with('"'));
        assert!(holds(&tag) && holds("20251129-143000") && holds("\"20251129-143000\"") && holds(" * "));
        assert!(holds(&format!("\"other\", {tag}")) && holds("\"x\",20251129-143000"));
    }

    #[test]
    fn another_value_a_weak_tag_and_nonsense_do_not() {
        let weak = format!("W/{}", etag("stored"));
        for header in [etag("older").as_str(), &weak, "20251129-143001", "", "\"\"", "W/*", ",", "stored"] {
            assert!(!holds(header), "{header}");
        }
    }
}
