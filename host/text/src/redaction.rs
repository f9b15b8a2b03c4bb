//! Pure: redacts the values of environment variables in objects and in texts.
//!
//! The copy of the object that kubectl stores in an annotation is redacted too. Each distinct value
//! has a number in its placeholder, so that equal values stay recognizable.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Value, json};

/// Placeholder of a text that cannot be parsed.
pub const REDACTED: &str = "(redacted)";

/// Annotation in which kubectl stores the applied object.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Shortest value that is redacted in texts, in bytes. `1` and `true` are not secrets, and a
/// message needs its numbers.
const SHORTEST: usize = 6;

/// The redacted values, each once, in the order of their first occurrence.
#[derive(Debug, Default)]
pub struct Values {
    hidden: Vec<String>,
    indexes: HashMap<String, usize>,
    /// Prefixes of the names of variables that keep their values.
    exempt: &'static [&'static str],
}

impl Values {
    /// Starts without values. Variables whose names have one of these prefixes keep their values.
    pub fn with_exempt(exempt: &'static [&'static str]) -> Self {
        Self {
            exempt,
            ..Self::default()
        }
    }

    /// Redacts the values of environment variables in an object, and stores them.
    pub fn redact_object(&mut self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_object(item)),
            Value::Object(fields) => {
                for (key, field) in fields {
                    match (key.as_str(), field) {
                        ("env", Value::Array(variables)) => variables
                            .iter_mut()
                            .for_each(|variable| self.redact_variable(variable)),
                        (LAST_APPLIED, applied) => self.redact_applied(applied),
                        (_, field) => self.redact_object(field),
                    }
                }
            }
            _ => {}
        }
    }

    /// Stores a value and returns its placeholder.
    pub fn placeholder(&mut self, value: &str) -> String {
        if let Some(at) = self.indexes.get(value) {
            return numbered(*at);
        }
        let at = self.hidden.len();
        self.hidden.push(value.to_owned());
        self.indexes.insert(value.to_owned(), at);
        numbered(at)
    }

    /// Redacts the stored values in a text.
    pub fn redact(&self, text: &str) -> String {
        self.redactor()(text)
    }

    /// Returns a function that redacts the stored values in texts, plain and escaped as in JSON.
    /// The longest value comes first, because one can be part of another.
    ///
    /// # Panics
    /// Never: there are far fewer values than a search can be made for.
    pub fn redactor(&self) -> impl Fn(&str) -> String + use<> {
        let values = self.hidden.iter().enumerate();
        let values = values.filter(|(_, value)| value.len() >= SHORTEST);
        let (forms, placeholders): (Vec<_>, Vec<_>) = values
            .flat_map(|(at, value)| {
                let json = json!(value).to_string();
                let inner = json[1..json.len() - 1].to_owned();
                [inner, value.clone()].map(|form| (form, numbered(at)))
            })
            .unzip();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(forms);
        let search = search.expect("there are far fewer values than a search can be made for");
        move |text| search.replace_all(text, &placeholders)
    }

    fn redact_variable(&mut self, variable: &mut Value) {
        let name = variable["name"].as_str().unwrap_or_default();
        if self.exempt.iter().any(|prefix| name.starts_with(prefix)) {
            return;
        }
        match variable.get_mut("value") {
            Some(Value::String(text)) => *text = self.placeholder(text),
            Some(other) => *other = json!(self.placeholder(&other.to_string())),
            None => self.redact_object(variable),
        }
    }

    fn redact_applied(&mut self, applied: &mut Value) {
        let text = applied.as_str().unwrap_or_default();
        *applied = match serde_json::from_str::<Value>(text) {
            Ok(mut object) => {
                self.redact_object(&mut object);
                json!(object.to_string())
            }
            Err(_) => json!(REDACTED),
        };
    }
}

fn numbered(at: usize) -> String {
    format!("(redacted {})", at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_value_is_redacted_plain_and_as_json() {
        let mut values = Values::default();
        for value in ["secret", "secret-of-all", "a\"quoted\" one", "short"] {
            values.placeholder(value);
        }
        assert_eq!(values.placeholder("secret"), "(redacted 1)");
        for (text, redacted) in [
            (
                "the secret-of-all, secret",
                "the (redacted 2), (redacted 1)",
            ),
            (r#"{"m": "a\"quoted\" one"}"#, r#"{"m": "(redacted 3)"}"#),
            ("a\"quoted\" one is short", "(redacted 3) is short"),
        ] {
            assert_eq!(values.redact(text), redacted);
        }
    }

    #[test]
    fn exempt_variables_keep_their_values() {
        let mut values = Values::with_exempt(&["IPUOF_"]);
        let mut object = json!({"env": [
            {"name": "IPUOF_ID", "value": "p-partition"},
            {"name": "OTHER", "value": "p-partition-2"},
        ]});
        values.redact_object(&mut object);
        assert_eq!(object["env"][0]["value"], "p-partition");
        assert_eq!(object["env"][1]["value"], "(redacted 1)");
        assert_eq!(values.redact("p-partition"), "p-partition");
    }
}
