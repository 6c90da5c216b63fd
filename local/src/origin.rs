//! Who may use the controls: programs of this machine, and the page that the runner serves. Any web page can send
//! requests to a port of this machine; the browser names the page's origin in the headers.

use std::net::SocketAddr;

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode};

use crate::response::Refusal;

/// Refuses a request from another site's page, and one whose `Host` is not this machine's: the owner of a domain can
/// point its name here (DNS rebinding).
pub(crate) fn check(headers: &HeaderMap, address: SocketAddr) -> Result<(), Refusal> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let port = address.port();
    let hosts = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}"));
    let host = text(HOST.as_str()).unwrap_or_default();
    // Browsers leave out port 80.
    let known = hosts.iter().any(|own| own == host || port == 80 && own.strip_suffix(":80") == Some(host));
    let same_origin = text(ORIGIN.as_str()).is_none_or(|origin| origin.strip_prefix("http://") == Some(host));
    let same_site = text("sec-fetch-site").is_none_or(|site| matches!(site, "same-origin" | "none"));
    if known && same_origin && same_site {
        Ok(())
    } else {
        Err(Refusal::new(StatusCode::FORBIDDEN, "only this machine's own page may use the controls"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(pairs: &[(&'static str, &'static str)]) -> bool {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        check(&headers.collect(), SocketAddr::from(([127, 0, 0, 1], 9000))).is_ok()
    }

    #[test]
    fn the_runners_page_and_local_programs_are_allowed() {
        assert!(allowed(&[("host", "127.0.0.1:9000")]));
        assert!(allowed(&[("host", "localhost:9000"), ("origin", "http://localhost:9000")]));
        assert!(allowed(&[("host", "localhost:9000"), ("sec-fetch-site", "same-origin")]));
    }

    #[test]
    fn other_sites_are_refused() {
        for headers in [
            &[][..],
            &[("host", "evil.example")],
            &[("host", "evil.example:9000")],
            &[("host", "localhost:9001")],
            &[("host", "localhost:9000"), ("origin", "https://evil.example")],
            &[("host", "localhost:9000"), ("origin", "http://localhost:3000")],
            &[("host", "localhost:9000"), ("origin", "null")],
            &[("host", "localhost:9000"), ("sec-fetch-site", "cross-site")],
            &[("host", "localhost:9000"), ("sec-fetch-site", "same-site")],
        ] {
            assert!(!allowed(headers), "{headers:?}");
        }
    }
}
