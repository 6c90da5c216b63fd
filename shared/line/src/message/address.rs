//! Addresses, percent-encoded as LINE wants them. For one that is not, LINE refuses the whole reply or push.

/// The address that LINE gets for `text`, with the characters beyond ASCII behind its host encoded. `None` if it begins with none
/// of `schemes`, if nothing or no host follows, if a character or `%` in it is none of an address (RFC 3986), or if it is longer than
/// `max_len` then.
pub(super) fn encode(text: &str, schemes: &[&str], max_len: usize) -> Option<String> {
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme))?;
    // A host beyond ASCII has a form of its own, Punycode, which is the caller's.
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !is_host(host) {
        return None;
    }
    let mut address = text[..text.len() - path.len()].to_owned();
    for c in path.chars() {
        if c.is_ascii() {
            address.push(c);
        } else {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| address.push_str(&format!("%{byte:02X}")));
        }
    }
    (address.len() <= max_len && is_address(&address)).then_some(address)
}

/// A host, after a user and before a port where it has those; or a number to call. A host that is a number of IPv6 is none here.
fn is_host(text: &str) -> bool {
    let host = text.rsplit('@').next().unwrap_or_default();
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    !host.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_address(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#@!$&'()*+,;=%".contains(&byte);
    let is_encoded = |part: &str| part.bytes().take_while(u8::is_ascii_hexdigit).take(2).count() == 2;
    text.bytes().all(is_allowed)
        && text.split('%').skip(1).all(is_encoded)
        && text.bytes().filter(|byte| *byte == b'#').count() <= 1
}
