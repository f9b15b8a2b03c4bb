//! Pure: authorizes requests to the server. The server has the rights of its user, and every
//! program and every web page on the machine can reach its port.

/// Content-Security-Policy of every response: nothing but what this server serves.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                                           img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                                           frame-ancestors 'none'";

/// Headers of every response, with those of refusals.
pub const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    // The path contains the secret.
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Requirements of a request.
#[derive(Clone)]
pub struct Guard {
    token: String,
    hosts: Vec<String>,
}

/// The parts of a request that the guard reads.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its path.
    pub path: &'a str,
    /// The host of its URL, if that is not a path alone.
    pub authority: Option<&'a str>,
    /// Its headers `Host`. Text that is not ASCII is empty.
    pub hosts: &'a [&'a str],
}

/// Reason for the refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A web page used DNS rebinding: its host name resolves to this machine.
    #[error(
        "this server answers requests for its own address alone: open the URL that kubectl ipu dashboard printed"
    )]
    Host,
    /// The secret is missing or wrong.
    #[error(
        "there is nothing here: open the URL that kubectl ipu dashboard printed, with its secret"
    )]
    Token,
    /// It is not a read.
    #[error("this server only reads: use GET")]
    Method,
}

impl Guard {
    /// A guard for the server on an address and port, whose paths begin with the token.
    pub fn new(token: &str, address: &str, port: u16) -> Self {
        let names = [format!("localhost:{port}"), format!("127.0.0.1:{port}")];
        let mut hosts = Vec::from(names);
        hosts.push(address.to_owned());
        // Browsers leave out the port of HTTP.
        let bare = hosts.iter().filter_map(|host| host.strip_suffix(":80"));
        let bare: Vec<_> = bare.map(ToOwned::to_owned).collect();
        hosts.extend(bare);
        Self {
            token: token.to_owned(),
            hosts,
        }
    }

    /// Whether a request may be answered.
    pub fn check(&self, head: RequestHead<'_>) -> Result<(), Refusal> {
        let is_own = |host: &str| {
            let mut hosts = self.hosts.iter();
            hosts.any(|own| own.eq_ignore_ascii_case(host))
        };
        let [host] = head.hosts else {
            return Err(Refusal::Host);
        };
        if !is_own(host) || !head.authority.is_none_or(is_own) {
            return Err(Refusal::Host);
        }
        let first = head.path.split('/').nth(1).unwrap_or_default();
        if !is_equal(first, &self.token) {
            return Err(Refusal::Token);
        }
        if head.method == "GET" {
            Ok(())
        } else {
            Err(Refusal::Method)
        }
    }
}

/// Compares in constant time.
fn is_equal(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    let difference = pairs.fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head<'a>(path: &'a str, hosts: &'a [&'a str]) -> RequestHead<'a> {
        RequestHead {
            method: "GET",
            path,
            authority: None,
            hosts,
        }
    }

    #[test]
    fn only_its_own_address_with_the_secret_is_answered() {
        let guard = Guard::new("secret", "127.0.0.1:8001", 8001);
        let own = ["127.0.0.1:8001"];
        for (path, hosts, expected) in [
            ("/secret/", &own[..], Ok(())),
            ("/secret/api/queue", &own, Ok(())),
            ("/secret", &own, Ok(())),
            ("/secret/", &["localhost:8001"], Ok(())),
            ("/secret/", &["LOCALHOST:8001"], Ok(())),
            ("/secret/", &[], Err(Refusal::Host)),
            ("/secret/", &["127.0.0.1"], Err(Refusal::Host)),
            ("/secret/", &["127.0.0.1:80"], Err(Refusal::Host)),
            ("/secret/", &["evil.example:8001"], Err(Refusal::Host)),
            ("/secret/", &[own[0], "evil.example"], Err(Refusal::Host)),
            ("/", &own, Err(Refusal::Token)),
            ("", &own, Err(Refusal::Token)),
            ("//secret/", &own, Err(Refusal::Token)),
            ("/secre/", &own, Err(Refusal::Token)),
            ("/secret2/", &own, Err(Refusal::Token)),
            ("/Secret/", &own, Err(Refusal::Token)),
        ] {
            let found = guard.check(head(path, hosts));
            assert_eq!(found, expected, "{path} {hosts:?}");
        }
        let written = RequestHead {
            method: "POST",
            ..head("/secret/", &own)
        };
        assert_eq!(guard.check(written), Err(Refusal::Method));
        let through = RequestHead {
            authority: Some("evil.example"),
            ..head("/secret/", &own)
        };
        assert_eq!(guard.check(through), Err(Refusal::Host));
    }

    #[test]
    fn the_port_of_http_may_be_missing() {
        let guard = Guard::new("secret", "127.0.0.1:80", 80);
        for (host, expected) in [
            ("127.0.0.1", Ok(())),
            ("localhost:80", Ok(())),
            ("localhost:8080", Err(Refusal::Host)),
        ] {
            assert_eq!(guard.check(head("/secret/", &[host])), expected, "{host}");
        }
    }

    #[test]
    fn an_address_of_ipv6_has_brackets() {
        let guard = Guard::new("secret", "[::1]:8001", 8001);
        assert_eq!(guard.check(head("/secret/", &["[::1]:8001"])), Ok(()));
    }
}
