//! Pure: reads the token of an `Authorization` header.

use super::problem::{Kind, Problem};

/// Longest accepted token, in bytes. Tokens of service accounts have about one thousand.
pub(super) const TOKEN_MAX: usize = 16 << 10;

/// The challenge to a request without credentials (RFC 6750).
pub(super) const CHALLENGE: &str = "Bearer realm=\"ipu-operator\"";

/// The challenge to unreadable credentials.
const MALFORMED: &str = "Bearer realm=\"ipu-operator\", error=\"invalid_request\"";

/// The challenge to an invalid token.
pub(super) const INVALID: &str = "Bearer realm=\"ipu-operator\", error=\"invalid_token\"";

/// The token of a request with these `Authorization` headers. A problem never repeats a value,
/// which may contain a secret.
pub(super) fn token<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Result<&'a str, Problem> {
    let Some(line) = lines.next() else {
        let how = "the request has no Authorization header; send `Authorization: Bearer <token>` \
                   with a token of `kubectl create token <service account> --audience <audience>`";
        return Err(refused(how, CHALLENGE));
    };
    if lines.next().is_some() {
        let how = "the request has more than one Authorization header; send exactly one";
        return Err(refused(how, MALFORMED));
    }
    let malformed = |how| Err(refused(how, MALFORMED));
    let Ok(text) = std::str::from_utf8(line) else {
        return malformed("the Authorization header is not text; send `Bearer <token>`");
    };
    let Some((scheme, token)) = text.trim().split_once(' ') else {
        return malformed("the Authorization header is not `Bearer <token>`");
    };
    if !scheme.eq_ignore_ascii_case("bearer") {
        return malformed(
            "the scheme of the Authorization header is not Bearer; send `Bearer <token>`",
        );
    }
    let token = token.trim();
    if token.len() > TOKEN_MAX {
        return malformed(
            "the token is longer than 16384 bytes; send the token of a service account",
        );
    }
    // The characters of RFC 6750. Other tokens are refused without a request to the API server.
    let is_of_tokens = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
    };
    if token.is_empty() || !token.bytes().all(is_of_tokens) {
        return malformed(
            "the token must consist of letters, digits and -._~+/=; send `Bearer <token>`",
        );
    }
    Ok(token)
}

fn refused(how: &str, challenge: &str) -> Problem {
    Problem::new(Kind::Unauthenticated, how).with_header("www-authenticate", challenge)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&[u8]]) -> Result<String, String> {
        let problem = |problem: Problem| format!("{} {:?}", problem.detail, problem.headers);
        let token = token(lines.iter().copied());
        token.map(str::to_owned).map_err(problem)
    }

    #[test]
    fn one_bearer_token_is_read() {
        for line in ["Bearer a.b-c_d", "bearer a.b-c_d", "BEARER  a.b-c_d "] {
            assert_eq!(read(&[line.as_bytes()]).unwrap(), "a.b-c_d");
        }
    }

    #[test]
    fn anything_else_is_challenged_and_not_repeated() {
        let long = format!("Bearer {}", "x".repeat(1 << 20));
        let cases: [(&[&[u8]], &str); 9] = [
            (&[], "no Authorization header"),
            (&[b"Bearer a", b"Bearer b"], "more than one"),
            (&[b"\xff\xfe secret"], "not text"),
            (&[b"secret"], "not `Bearer"),
            (&[b""], "not `Bearer"),
            (&[b"Basic secret"], "is not Bearer"),
            (&[b"Bearer secret two"], "must consist of"),
            (&[b"Bearer \"secret\""], "must consist of"),
            (&[long.as_bytes()], "longer than 16384"),
        ];
        for (lines, expected) in cases {
            let problem = read(lines).unwrap_err();
            assert!(problem.contains(expected), "{expected}: {problem}");
            assert!(problem.contains("www-authenticate"), "{problem}");
            assert!(!problem.contains("secret") && !problem.contains("xxx"));
        }
    }
}
