//! Pure: the admin's settings: the part of a ValidatingAdmissionPolicy that decides.

use guest_sdk::settings;
use serde_json::{Map, Value};

use crate::expression::{Expression, Kind};

/// Most validations. An answer has at most as many violations.
const VALIDATIONS: usize = 32;

/// Most variables.
const VARIABLES: usize = 32;

/// Most bytes of all expressions together. The guest parses them for each request.
const ALL_EXPRESSIONS: usize = 16 << 10;

/// Longest message, in bytes.
const MESSAGE: usize = 512;

/// Longest path of a field, in bytes.
const FIELD: usize = 253;

/// Field of a violation whose validation names none.
const DEFAULT_FIELD: &str = "spec";

/// The admin's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Values that other expressions use, in their order.
    pub variables: Vec<Variable>,
    /// The rules.
    pub validations: Vec<Validation>,
}

/// A named value: `variables.<name>`.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub expression: Expression,
}

/// A rule. An object for which its expression is not true is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// The expression.
    pub expression: Expression,
    /// The message for the user.
    pub message: Option<String>,
    /// An expression for the message, which takes precedence.
    pub message_expression: Option<Expression>,
    /// Path of the field in the violation.
    pub field_path: String,
}

impl Settings {
    /// Reads settings such as `{"validations": [{"expression": "object.spec.jobInstances < 5"}]}`,
    /// and compiles their expressions. `{}` has no rules, and admits each object. The error names
    /// the field, the value and the rule.
    pub fn parse(json: &str) -> Result<Self, String> {
        let value = settings::parse(json)?;
        let settings = fields(&value, "the settings", &["variables", "validations"])?;
        if settings.is_empty() {
            return Ok(Self::default());
        }
        let mut variables: Vec<Variable> = Vec::new();
        for (index, entry) in list(settings, "variables", VARIABLES)?.iter().enumerate() {
            let variable = variable(&format!("variables[{index}]"), entry, &variables)?;
            variables.push(variable);
        }
        let validations = list(settings, "validations", VALIDATIONS)?;
        if validations.is_empty() {
            return Err("validations has no entry; add one with an expression".to_owned());
        }
        check_total(&[list(settings, "variables", VARIABLES)?, validations])?;
        let names: Vec<&str> = variables
            .iter()
            .map(|variable| variable.name.as_str())
            .collect();
        let validations = validations.iter().enumerate();
        let validations = validations
            .map(|(index, entry)| validation(&format!("validations[{index}]"), entry, &names))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            variables,
            validations,
        })
    }
}

fn variable(at: &str, entry: &Value, earlier: &[Variable]) -> Result<Variable, String> {
    let entry = fields(entry, at, &["name", "expression"])?;
    let name = required(entry, at, "name", FIELD)?;
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    if !name.chars().all(is_name) || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(format!(
            "{at}.name is {name:?}; write letters, digits and `_`, and begin with a letter, as in maxIpus"
        ));
    }
    let names: Vec<&str> = earlier
        .iter()
        .map(|variable| variable.name.as_str())
        .collect();
    if names.contains(&name) {
        return Err(format!(
            "{at}.name is {name:?}, as of an earlier variable; give it another name"
        ));
    }
    Ok(Variable {
        name: name.to_owned(),
        expression: compiled(entry, at, "expression", Kind::Any, &names)?,
    })
}

fn validation(at: &str, entry: &Value, variables: &[&str]) -> Result<Validation, String> {
    let known = ["expression", "message", "messageExpression", "fieldPath"];
    let entry = fields(entry, at, &known)?;
    let field_path = text(entry, at, "fieldPath", FIELD)?.unwrap_or(DEFAULT_FIELD);
    if field_path.is_empty() || field_path.contains(char::is_whitespace) {
        return Err(format!(
            "{at}.fieldPath is {field_path:?}; write the path of a field, as in spec.ipusPerJobInstance"
        ));
    }
    let message_expression = entry
        .get("messageExpression")
        .map(|_| compiled(entry, at, "messageExpression", Kind::Text, variables));
    Ok(Validation {
        expression: compiled(entry, at, "expression", Kind::Bool, variables)?,
        message: text(entry, at, "message", MESSAGE)?.map(str::to_owned),
        message_expression: message_expression.transpose()?,
        field_path: field_path.to_owned(),
    })
}

/// Bounds the time that parsing takes.
fn check_total(lists: &[&[Value]]) -> Result<(), String> {
    let texts = lists.iter().copied().flatten();
    let texts = texts.flat_map(|entry| [&entry["expression"], &entry["messageExpression"]]);
    let total: usize = texts.filter_map(Value::as_str).map(str::len).sum();
    if total <= ALL_EXPRESSIONS {
        return Ok(());
    }
    Err(format!(
        "the expressions of the settings have {total} bytes together, and the limit is {ALL_EXPRESSIONS}; use \
         several IPUPolicies"
    ))
}

fn compiled(
    entry: &Map<String, Value>,
    at: &str,
    field: &str,
    kind: Kind,
    variables: &[&str],
) -> Result<Expression, String> {
    let source = required(entry, at, field, usize::MAX)?;
    Expression::compile(source, kind, variables).map_err(|error| format!("{at}.{field} {error}"))
}

/// Returns an object without unknown fields.
fn fields<'a>(
    value: &'a Value,
    at: &str,
    known: &[&str],
) -> Result<&'a Map<String, Value>, String> {
    let Some(found) = value.as_object() else {
        return Err(format!(
            "{at}: {} is not a JSON object; write one with {}",
            shown(value),
            known.join(", ")
        ));
    };
    match found.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(found),
        Some(unknown) => Err(format!(
            "{at}: there is no field {unknown:?}; use {}",
            known.join(", ")
        )),
    }
}

/// Returns a list, which is empty if it is missing.
fn list<'a>(
    settings: &'a Map<String, Value>,
    field: &str,
    most: usize,
) -> Result<&'a [Value], String> {
    let Some(value) = settings.get(field) else {
        return Ok(&[]);
    };
    let Some(entries) = value.as_array() else {
        return Err(format!("{field} is {}; write a list", shown(value)));
    };
    if entries.len() > most {
        return Err(format!(
            "{field} has {} entries, and the limit is {most}; use several IPUPolicies",
            entries.len()
        ));
    }
    Ok(entries)
}

fn required<'a>(
    entry: &'a Map<String, Value>,
    at: &str,
    field: &str,
    longest: usize,
) -> Result<&'a str, String> {
    let found = text(entry, at, field, longest)?.filter(|found| !found.trim().is_empty());
    found.ok_or_else(|| format!("{at}.{field} is missing; it is required"))
}

fn text<'a>(
    entry: &'a Map<String, Value>,
    at: &str,
    field: &str,
    longest: usize,
) -> Result<Option<&'a str>, String> {
    match entry.get(field) {
        None => Ok(None),
        Some(Value::String(found)) if found.len() > longest => Err(format!(
            "{at}.{field} has {} bytes, and the limit is {longest}; write a shorter one",
            found.len()
        )),
        Some(Value::String(found)) => Ok(Some(found)),
        Some(other) => Err(format!("{at}.{field} is {}; write a text", shown(other))),
    }
}

/// Returns a value for a message, without the contents of lists and objects.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(_) => "a text".to_owned(),
        scalar => scalar.to_string(),
    }
}
