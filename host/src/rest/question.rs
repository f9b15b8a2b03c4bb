//! Pure: reads the body of a `/query`, and says what is wrong with it.

use serde::Serialize;
use serde_json::Value;

/// Longest part of a wrong value that is repeated in an answer, in characters.
const SHOWN_MAX: usize = 80;

/// What is wrong with a request: the field, its value, the rule, and all of it in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The part of the request.
    pub field: String,
    /// What was found there, cut where it is long.
    pub value: String,
    /// What is allowed.
    pub rule: String,
    /// A sentence for people.
    pub message: String,
}

impl Fault {
    /// A fault of `field`, which holds `value` and breaks `rule`.
    pub fn new(field: &str, value: &str, rule: &str) -> Self {
        let value = shown(value);
        Fault {
            message: format!("{field} is {value}; it must be {rule}"),
            field: field.to_owned(),
            value,
            rule: rule.to_owned(),
        }
    }
}

/// The number of IPUs that a question such as `{"size": 2}` asks for. Other fields are ignored.
pub fn size(body: &[u8]) -> Result<u32, Fault> {
    const RULE: &str = "a power of two, as a number: 1, 2, 4, …";
    let text = String::from_utf8_lossy(body);
    let question: Value = serde_json::from_slice(body).map_err(|error| {
        let rule = format!("a JSON object such as {{\"size\": 2}}, but it does not parse: {error}");
        Fault::new("body", &text, &rule)
    })?;
    let Value::Object(fields) = &question else {
        let rule = "a JSON object such as {\"size\": 2}";
        return Err(Fault::new("body", &text, rule));
    };
    let Some(value) = fields.get("size") else {
        return Err(Fault::new("size", "missing", RULE));
    };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    match number {
        Some(size) if size.is_power_of_two() => Ok(size),
        _ => Err(Fault::new("size", &value.to_string(), RULE)),
    }
}

fn shown(text: &str) -> String {
    if text.is_empty() {
        return "empty".to_owned();
    }
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
