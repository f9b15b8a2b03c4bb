//! Pure: redacts credentials in texts: tokens, passwords in addresses, and values with a name like
//! a secret. In doubt it redacts.

use ipu_text::redaction::REDACTED;

/// Parts of the names of options and fields that have a secret value.
const SECRET_NAMES: [&str; 9] = [
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "apikey",
    "api-key",
    "api_key",
    "private",
];

/// Words before a credential in a header.
const SCHEMES: [&str; 3] = ["Bearer", "bearer", "Basic"];

/// Quotes, also escaped ones.
const QUOTES: [&str; 4] = ["\\\"", "\\'", "\"", "'"];

/// Expectation about the next word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing.
    Any,
    /// It may be the `:` or `=` after a name of a secret.
    MayAssign,
    /// It is a secret.
    Secret,
}

/// A text without credentials.
pub(super) fn scrubbed(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let (mut rest, mut next) = (text, Next::Any);
    while let Some(first) = rest.chars().next() {
        if next == Next::Secret
            && let Some((secret, after)) = quoted(rest)
        {
            let quote = &rest[..(rest.len() - after.len() - secret.len()) / 2];
            clean += &[quote, REDACTED, quote].concat();
            (rest, next) = (after, Next::Any);
        } else if ends_a_word(first) {
            if first == '\n' {
                next = Next::Any;
            }
            clean.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let (word, after) = rest.split_at(rest.find(ends_a_word).unwrap_or(rest.len()));
            let (shown, then) = scrubbed_word(word, next);
            clean += &shown;
            (rest, next) = (after, then);
        }
    }
    clean
}

/// Whether an option or field of this name has a secret value.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// Splits a text into its quoted beginning and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = QUOTES.iter().find(|quote| text.starts_with(**quote))?;
    text[quote.len()..].split_once(quote)
}

fn ends_a_word(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '(' | ')' | '{' | '}' | '[' | ']' | '\\')
}

/// Redacts a word. Returns it with the expectation about the next word.
fn scrubbed_word(word: &str, expected: Next) -> (String, Next) {
    let same = || word.to_owned();
    let is_assignment = matches!(word, ":" | "=");
    match expected {
        Next::Secret if is_assignment || SCHEMES.contains(&word) => return (same(), Next::Secret),
        Next::Secret => return (REDACTED.to_owned(), Next::Any),
        Next::MayAssign if is_assignment => return (same(), Next::Secret),
        Next::MayAssign | Next::Any => {}
    }
    // Tokens of service accounts, and others of that form.
    if word.starts_with("eyJ") && word.len() > 20 {
        return (REDACTED.to_owned(), Next::Any);
    }
    if SCHEMES.contains(&word) {
        return (same(), Next::Secret);
    }
    if let Some((scheme, rest)) = word.split_once("://") {
        return (
            format!("{}://{}", assigned(scheme), address(rest)),
            Next::Any,
        );
    }
    let name = word.trim_end_matches([':', '=']);
    let names_a_secret = is_secret(name) && !name.contains([':', '=']);
    let next = match names_a_secret {
        true if name.len() < word.len() || word.starts_with('-') => Next::Secret,
        true => Next::MayAssign,
        false => Next::Any,
    };
    (assigned(word), next)
}

/// The rest of an address without user, password, and parameters whose names suggest secrets.
fn address(rest: &str) -> String {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = assigned(path);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{REDACTED}@{host}{path}"),
        None => format!("{authority}{path}"),
    }
}

/// `name=value` and `name:value`, without the value if the name is that of a secret. Several may be
/// joined, as in the query of an address.
fn assigned(word: &str) -> String {
    let pieces = word.split_inclusive(['?', '&', ';']);
    let shown = pieces.map(|piece| {
        let end = piece.trim_end_matches(['?', '&', ';']).len();
        let (assignment, joint) = piece.split_at(end);
        match assignment.split_once(['=', ':']) {
            Some((name, value)) if is_secret(name) && !value.is_empty() => {
                let sign = &assignment[name.len()..=name.len()];
                format!("{name}{sign}{REDACTED}{joint}")
            }
            _ => piece.to_owned(),
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_texts_are_known_by_their_form() {
        for (text, clean) in [
            (
                "Authorization: Bearer abc.def",
                "Authorization: Bearer (redacted)",
            ),
            (
                "got \"eyJhbGciOiJSUzI1NiIsImtpZCI6\" back",
                "got \"(redacted)\" back",
            ),
            (
                "https://u:p@h.example.com/a?b",
                "https://(redacted)@h.example.com/a?b",
            ),
            ("http://u:p,w@h/", "http://(redacted)@h/"),
            (
                "https://h/?a=1&token=x&b=2",
                "https://h/?a=1&token=(redacted)&b=2",
            ),
            (
                "password=a token=b limit=3",
                "password=(redacted) token=(redacted) limit=3",
            ),
            ("password=a,b c", "password=(redacted) c"),
            (
                "train --password hunter2 --epochs 3",
                "train --password (redacted) --epochs 3",
            ),
            (
                "--password=\"hunter two\" on",
                "--password=\"(redacted)\" on",
            ),
            ("TOKEN='abc' run", "TOKEN='(redacted)' run"),
            (
                "{\"password\": \"x y\", \"n\": 1}",
                "{\"password\": \"(redacted)\", \"n\": 1}",
            ),
            (
                r#"{\"password\": \"x y\"}"#,
                r#"{\"password\": \"(redacted)\"}"#,
            ),
            ("apikey: x\nlimit: 3", "apikey: (redacted)\nlimit: 3"),
            ("apiKey:x", "apiKey:(redacted)"),
        ] {
            assert_eq!(scrubbed(text), clean, "{text}");
        }
    }

    #[test]
    fn what_is_no_credential_stays() {
        for text in [
            "pod1.example.com:8090:ipunode=pod1\n",
            "partition  p-1 (Ready), ok",
            "the token was refused; try again",
            "http://[::1]:8080/stats?size=4",
            "ä \"ö\" 'ü' \\ ",
            "",
        ] {
            assert_eq!(scrubbed(text), text);
        }
    }
}
