use std::net::Ipv6Addr;

use http::Uri;

/// Whether `url` is `http(s)://host[:port][/path]`, with a host and a port that a client can connect to.
pub fn is_http_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    let host = authority.host();
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b)),
    };
    // The host comes first: a user name and password before it would be shown wherever the address is.
    let is_port = match authority.as_str().strip_prefix(host) {
        Some("") => true,
        Some(port) => {
            port.strip_prefix(':').and_then(|port| port.parse().ok()).is_some_and(|port: u16| port > 0)
        }
        None => false,
    };
    let is_path = |b: u8| b.is_ascii_graphic() && !b"?#\"<>{}|\\^`".contains(&b);
    is_host && is_port && url.bytes().all(is_path)
}
