//! Pure: takes the values of environment variables out of objects, and out of what is said of them.
//!
//! What kubectl keeps of the whole object in an annotation is gone through like the object itself. Values
//! are numbered in the place where they stood, so that one still sees which of them were the same.

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
    /// How the names of variables begin that keep their values.
    kept: &'static [&'static str],
}

impl Values {
    /// None yet; variables whose names begin like one of these will keep their values.
    pub fn but(kept: &'static [&'static str]) -> Self {
        let seen = Vec::new();
        Self { seen, kept }
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
        let known = self.seen.iter().position(|one| one == value);
        let at = known.unwrap_or_else(|| {
            self.seen.push(value.to_owned());
            self.seen.len() - 1
        });
        placeholder(at)
    }

    /// A text without the values that were redacted.
    pub fn told(&self, text: &str) -> String {
        self.teller()(text)
    }

    /// What takes the values that were redacted out of many texts, the longest first: one may be part
    /// of another. They are looked for as they are, and as they stand in JSON.
    pub fn teller(&self) -> impl Fn(&str) -> String + use<> {
        let values = self.seen.iter().enumerate();
        let values = values.filter(|(_, value)| value.len() >= TOLD);
        let mut forms: Vec<(String, String)> = values
            .flat_map(|(at, value)| {
                let json = json!(value).to_string();
                let inner = json[1..json.len() - 1].to_owned();
                [inner, value.clone()].map(|form| (form, placeholder(at)))
            })
            .collect();
        forms.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
        forms.dedup();
        move |text| {
            let forms = forms.iter();
            forms.fold(text.to_owned(), |text, (form, placeholder)| {
                if text.contains(form.as_str()) {
                    text.replace(form.as_str(), placeholder)
                } else {
                    text
                }
            })
        }
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
