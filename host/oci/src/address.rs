//! Pure: addresses of registries: redirects, pages of lists, and the server of an address.

use http::Uri;
use http::uri::{Authority, Scheme};

/// Resolves the `Location` of a response against an address. `None` if it is invalid.
pub(super) fn leads_to(from: &Uri, location: &str) -> Option<Uri> {
    let target = if let Some(rest) = location.strip_prefix("//") {
        format!("{}://{rest}", from.scheme_str()?)
    } else if location.starts_with('/') {
        format!("{}://{}{location}", from.scheme_str()?, from.authority()?)
    } else if location.contains("://") {
        location.to_owned()
    } else {
        let (folder, _) = from.path().rsplit_once('/')?;
        format!(
            "{}://{}{folder}/{location}",
            from.scheme_str()?,
            from.authority()?
        )
    };
    let uri: Uri = target.split('#').next()?.parse().ok()?;
    // A part before the host would be a user name and a password.
    let is_plain = |authority: &Authority| !authority.as_str().contains('@');
    uri.authority().is_some_and(is_plain).then_some(uri)
}

/// Returns the address of the next page of a list, from a header `Link` such as
/// `</v2/x?last=y>; rel="next"`.
pub(super) fn next_page(from: &Uri, link: &str) -> Option<Uri> {
    let targets = link
        .split('<')
        .skip(1)
        .filter_map(|part| part.split_once('>'));
    let mut next = targets.filter(|(_, said)| said.replace('"', "").contains("rel=next"));
    leads_to(from, next.next()?.0)
}

/// Whether two addresses have the same server.
pub(super) fn same_origin(one: &Uri, other: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    one.scheme() == other.scheme() && host(one) == host(other) && port(one) == port(other)
}

/// Whether the client may use an address: without TLS only if the registry is configured without
/// TLS.
pub(super) fn may_be_asked(uri: &Uri, plain_http: bool) -> bool {
    let scheme = uri.scheme();
    scheme == Some(&Scheme::HTTPS) || (plain_http && scheme == Some(&Scheme::HTTP))
}

/// Adds parameters to the query of an address.
pub(super) fn with_query(uri: &Uri, pairs: &[(&str, &str)]) -> Option<Uri> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    let query = query.finish();
    let joint = match uri.query() {
        Some("") => "",
        Some(_) => "&",
        None => "?",
    };
    let address = format!("{uri}{joint}{query}");
    address.parse().ok()
}

fn port(uri: &Uri) -> Option<u16> {
    uri.port_u16().or(match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn a_redirect_leads_where_browsers_would_go() {
        let from = uri("https://r.io:5000/v2/a/blobs/b?x=1");
        for (location, to) in [
            ("https://cdn.io/b?s=1#part", Some("https://cdn.io/b?s=1")),
            ("//cdn.io/b", Some("https://cdn.io/b")),
            ("/v2/c", Some("https://r.io:5000/v2/c")),
            ("c?y=2", Some("https://r.io:5000/v2/a/blobs/c?y=2")),
            ("", Some("https://r.io:5000/v2/a/blobs/")),
            ("https://user:password@cdn.io/b", None),
            ("https://", None),
            ("/a b", None),
        ] {
            let found = leads_to(&from, location).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), to, "{location}");
        }
    }

    #[test]
    fn the_next_page_is_found_among_other_links() {
        let from = uri("https://r.io/v2/a/referrers/b");
        for (link, to) in [
            (
                "</v2/a/referrers/b?n=2>; rel=\"next\"",
                Some("https://r.io/v2/a/referrers/b?n=2"),
            ),
            (
                "<b?n=2>;rel=next",
                Some("https://r.io/v2/a/referrers/b?n=2"),
            ),
            (
                "<x>; rel=\"prev\", <y>; rel=\"next\"",
                Some("https://r.io/v2/a/referrers/y"),
            ),
            ("<x>; rel=\"prev\"", None),
            ("x; rel=\"next\"", None),
            ("", None),
        ] {
            let found = next_page(&from, link).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), to, "{link}");
        }
    }

    #[test]
    fn a_server_is_known_by_scheme_host_and_port() {
        let one = uri("https://r.io/v2/");
        for (other, is_same) in [
            ("https://R.io:443/x", true),
            ("http://r.io:443/x", false),
            ("https://r.io:444/x", false),
            ("https://a.r.io/x", false),
        ] {
            assert_eq!(same_origin(&one, &uri(other)), is_same, "{other}");
        }
    }

    #[test]
    fn without_tls_is_only_asked_who_is_known_to_be_without() {
        for (address, plain_http, may) in [
            ("https://r.io/", false, true),
            ("https://r.io/", true, true),
            ("http://r.io/", false, false),
            ("http://r.io/", true, true),
            ("ftp://r.io/", true, false),
        ] {
            assert_eq!(may_be_asked(&uri(address), plain_http), may, "{address}");
        }
    }

    #[test]
    fn a_query_grows() {
        let pairs = [("digest", "sha256:1"), ("a", "b c&d")];
        let more = "digest=sha256%3A1&a=b+c%26d";
        for (address, joint) in [
            ("https://r.io/u", "?"),
            ("https://r.io/u?x=1", "&"),
            ("https://r.io/u?", ""),
        ] {
            let found = with_query(&uri(address), &pairs).unwrap();
            assert_eq!(found.to_string(), format!("{address}{joint}{more}"));
        }
    }
}
