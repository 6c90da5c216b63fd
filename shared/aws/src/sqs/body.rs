//! What the body of a message may hold.

use serde::Serialize;

/// Characters that JSON allows unescaped, and SQS in no body. The other ones that SQS refuses are the control characters, which
/// JSON escapes itself.
const NONCHARACTERS: [char; 2] = ['\u{fffe}', '\u{ffff}'];

/// A value as JSON that SQS takes as a body: the characters that SQS refuses are escaped. They can be in any text that
/// people write.
pub fn json_body<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
    let json = serde_json::to_string(value)?;
    // Both can only be in strings, where an escape means the character.
    Ok(if json.contains(NONCHARACTERS) {
        json.replace(NONCHARACTERS[0], "\\ufffe").replace(NONCHARACTERS[1], "\\uffff")
    } else {
        json
    })
}

/// Whether SQS takes a body with this character.
pub(super) fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}
