//! Pure: takes the values of environment variables out of objects, and out of what is said of them.
//!
//! What kubectl keeps of the whole object in an annotation is gone through like the object itself. Values
//! are numbered in the place where they stood, so that one still sees which of them were the same.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Value, json};

/// What stands in the place of a text that cannot be gone through.
pub const REDACTED: &str = "(redacted)";

/// Where kubectl keeps the object as it was applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Shortest value, in bytes, that is looked for in sentences: `1` or `true` are no secrets, and a
/// message without its numbers says nothing.
const TOLD: usize = 6;

/// The values that were redacted, each once, in the order in which they were met.
#[derive(Debug, Default)]
pub struct Values {
    seen: Vec<String>,
    places: HashMap<String, usize>,
    /// How the names of variables begin that keep their values.
    kept: &'static [&'static str],
}

impl Values {
    /// None yet; variables whose names begin like one of these will keep their values.
    pub fn but(kept: &'static [&'static str]) -> Self {
        Self {
            kept,
            ..Self::default()
        }
    }

    /// Takes the values of environment variables out of an object, and notes them.
    pub fn take_from(&mut self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.take_from(item)),
            Value::Object(fields) => {
                for (key, field) in fields {
                    match (key.as_str(), field) {
                        ("env", Value::Array(variables)) => variables
                            .iter_mut()
                            .for_each(|variable| self.take_from_variable(variable)),
                        (LAST_APPLIED, applied) => self.take_from_applied(applied),
                        (_, field) => self.take_from(field),
                    }
                }
            }
            _ => {}
        }
    }

    /// What stands in the place of a value.
    pub fn hidden(&mut self, value: &str) -> String {
        if let Some(at) = self.places.get(value) {
            return placeholder(*at);
        }
        let at = self.seen.len();
        self.seen.push(value.to_owned());
        self.places.insert(value.to_owned(), at);
        placeholder(at)
    }

    /// A text without the values that were redacted.
    pub fn told(&self, text: &str) -> String {
        self.teller()(text)
    }

    /// What takes the values that were redacted out of many texts, the longest first: one may be part
    /// of another. They are looked for as they are, and as they stand in JSON.
    ///
    /// # Panics
    /// Never: there are far fewer values than a search can be made for.
    pub fn teller(&self) -> impl Fn(&str) -> String + use<> {
        let values = self.seen.iter().enumerate();
        let values = values.filter(|(_, value)| value.len() >= TOLD);
        let (forms, placeholders): (Vec<_>, Vec<_>) = values
            .flat_map(|(at, value)| {
                let json = json!(value).to_string();
                let inner = json[1..json.len() - 1].to_owned();
                [inner, value.clone()].map(|form| (form, placeholder(at)))
            })
            .unzip();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(forms);
        let search = search.expect("there are far fewer values than a search can be made for");
        move |text| search.replace_all(text, &placeholders)
    }

    fn take_from_variable(&mut self, variable: &mut Value) {
        let name = variable["name"].as_str().unwrap_or_default();
        if self.kept.iter().any(|start| name.starts_with(start)) {
            return;
        }
        match variable.get_mut("value") {
            Some(Value::String(text)) => *text = self.hidden(text),
            Some(other) => *other = json!(self.hidden(&other.to_string())),
            None => self.take_from(variable),
        }
    }

    fn take_from_applied(&mut self, applied: &mut Value) {
        let text = applied.as_str().unwrap_or_default();
        *applied = match serde_json::from_str::<Value>(text) {
            Ok(mut object) => {
                self.take_from(&mut object);
                json!(object.to_string())
            }
            Err(_) => json!(REDACTED),
        };
    }
}

fn placeholder(at: usize) -> String {
    format!("(redacted {})", at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_value_is_taken_out_as_it_is_and_as_json() {
        let mut values = Values::default();
        for value in ["secret", "secret-of-all", "a\"quoted\" one", "short"] {
            values.hidden(value);
        }
        assert_eq!(values.hidden("secret"), "(redacted 1)");
        for (text, told) in [
            (
                "the secret-of-all, secret",
                "the (redacted 2), (redacted 1)",
            ),
            (r#"{"m": "a\"quoted\" one"}"#, r#"{"m": "(redacted 3)"}"#),
            ("a\"quoted\" one is short", "(redacted 3) is short"),
        ] {
            assert_eq!(values.told(text), told);
        }
    }

    #[test]
    fn variables_that_are_kept_keep_their_values_and_are_not_looked_for() {
        let mut values = Values::but(&["IPUOF_"]);
        let mut object = json!({"env": [
            {"name": "IPUOF_ID", "value": "p-partition"},
            {"name": "OTHER", "value": "p-partition-2"},
        ]});
        values.take_from(&mut object);
        assert_eq!(object["env"][0]["value"], "p-partition");
        assert_eq!(object["env"][1]["value"], "(redacted 1)");
        assert_eq!(values.told("p-partition"), "p-partition");
    }
}
