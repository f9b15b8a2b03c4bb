//! Pure: problems of requests, as problem+json (RFC 9457) and in the format of Graphcore's proxy.

use schemars::JsonSchema;
use serde::Serialize;

/// Longest part of an invalid value in an answer, in characters.
const SHOWN_MAX: usize = 80;

/// Longest name of a field in an answer, in characters: some contain a key of the client.
const FIELD_MAX: usize = 160;

/// Longest rule in an answer, in characters: some quote what a parser says of the body.
const RULE_MAX: usize = 512;

/// Most faults in one answer. A client that sends a thousand has made one mistake.
const FAULTS_MAX: usize = 16;

/// One part of a request that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ProblemError")]
pub struct Fault {
    /// The part of the request.
    pub field: String,
    /// Found content, truncated if it is long.
    pub value: String,
    /// Allowed content.
    pub rule: String,
    /// All of it in a sentence for users.
    #[serde(skip)]
    pub message: String,
}

impl Fault {
    /// A fault of `field`, which holds `value` and breaks `rule`.
    pub fn new(field: &str, value: &str, rule: &str) -> Self {
        let (field, rule) = (truncate(field, FIELD_MAX), truncate(rule, RULE_MAX));
        let value = shown(value);
        Fault {
            message: format!("{field} is {value}; it must be {rule}"),
            field,
            value,
            rule,
        }
    }
}

/// Kind of a problem; each has one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The request violates a rule.
    Malformed,
    /// The client is not authenticated.
    Unauthenticated,
    /// The client lacks a right.
    Forbidden,
    /// The object or path does not exist.
    Absent,
    /// The path does not support this method.
    WrongMethod,
    /// The request did not arrive in time.
    Slow,
    /// The object already exists, or has changed meanwhile.
    Conflict,
    /// The body is too long.
    TooLarge,
    /// The body has an unsupported content type.
    WrongType,
    /// The API server refused the object.
    Refused,
    /// Too many requests in too short a time.
    TooMany,
    /// The proxy cannot answer now.
    Unavailable,
    /// The data for the answer did not arrive in time.
    Late,
}

impl Kind {
    /// The HTTP status, the last part of the URI that names the kind, and a short sentence.
    const fn described(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Malformed => (400, "malformed", "The request violates a rule"),
            Self::Unauthenticated => (401, "unauthenticated", "The client is not authenticated"),
            Self::Forbidden => (403, "forbidden", "The client lacks a right"),
            Self::Absent => (404, "absent", "The object or path does not exist"),
            Self::WrongMethod => (405, "wrong-method", "The path does not support this method"),
            Self::Slow => (408, "slow", "The request did not arrive in time"),
            Self::Conflict => (
                409,
                "conflict",
                "The object already exists, or has changed meanwhile",
            ),
            Self::TooLarge => (413, "too-large", "The body is too long"),
            Self::WrongType => (
                415,
                "wrong-type",
                "The body has an unsupported content type",
            ),
            Self::Refused => (422, "refused", "The API server refused the object"),
            Self::TooMany => (429, "too-many", "Too many requests"),
            Self::Unavailable => (503, "unavailable", "The proxy cannot answer now"),
            Self::Late => (504, "late", "The answer took too long"),
        }
    }

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        self.described().0
    }

    /// A short sentence, the same for every problem of the kind.
    pub const fn title(self) -> &'static str {
        self.described().2
    }

    /// Last part of the URI that names the kind.
    const fn slug(self) -> &'static str {
        self.described().1
    }
}

/// Answer to a request that is refused or fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind of the problem.
    pub kind: Kind,
    /// The problem, and its fix.
    pub detail: String,
    /// The parts of the request that break a rule.
    pub faults: Vec<Fault>,
    /// Header lines that belong to the answer, such as `Retry-After`.
    pub headers: Vec<(&'static str, String)>,
}

impl Problem {
    /// A problem without faults.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            faults: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// A problem of fields of the request. It contains the first faults, and the number of the
    /// others.
    pub fn of_request(kind: Kind, mut faults: Vec<Fault>) -> Self {
        let more = faults.len().saturating_sub(FAULTS_MAX);
        faults.truncate(FAULTS_MAX);
        let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
        let mut detail = messages.join("; ");
        if more > 0 {
            detail = format!("{detail}; and {more} more parts break a rule");
        }
        Self {
            kind,
            detail,
            faults,
            headers: Vec::new(),
        }
    }

    /// A problem of one field of the request.
    pub fn of_field(kind: Kind, field: &str, value: &str, rule: &str) -> Self {
        Self::of_request(kind, vec![Fault::new(field, value, rule)])
    }

    /// The problem with one more header line.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The format of port 8443; `instance` is the requested path.
    pub fn document(&self, instance: &str) -> ProblemDocument {
        ProblemDocument {
            kind: format!("urn:ipu-operator:problem:{}", self.kind.slug()),
            title: self.kind.title().to_owned(),
            status: self.kind.status(),
            detail: self.detail.clone(),
            instance: shown(instance),
            errors: self.faults.clone(),
        }
    }

    /// The format of port 8080.
    pub fn plain(&self) -> PlainError {
        let fault = self.faults.first();
        PlainError {
            field: fault.map(|fault| fault.field.clone()),
            value: fault.map(|fault| fault.value.clone()),
            rule: fault.map(|fault| fault.rule.clone()),
            message: fault.map_or_else(|| self.detail.clone(), |fault| fault.message.clone()),
        }
    }
}

/// An error of port 8443, by RFC 9457.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemDocument {
    /// A URI that names the kind of problem; it leads nowhere.
    #[serde(rename = "type")]
    pub kind: String,
    /// A short sentence, the same for every problem of the kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The problem, and its fix.
    pub detail: String,
    /// The path that was asked for.
    pub instance: String,
    /// The parts of the request that break a rule.
    pub errors: Vec<Fault>,
}

/// An error of port 8080, in the format of Graphcore's proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct PlainError {
    /// The part of the request that breaks a rule, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Found content, truncated if it is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Allowed content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// A sentence for users.
    pub message: String,
}

/// Truncates a text for an answer.
pub fn shown(text: &str) -> String {
    if text.is_empty() {
        return "empty".to_owned();
    }
    truncate(text, SHOWN_MAX)
}

fn truncate(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
