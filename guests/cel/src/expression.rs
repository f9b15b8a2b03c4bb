//! Pure: compiles and evaluates one expression.

use cel::common::ast::{Expr, operators};
use cel::common::value::CelVal;
use cel::objects::ValueType;
use cel::parser::Parser;
use cel::{Context, ExecutionError, IdedExpr, Value};

use crate::names;

/// Longest expression, in bytes.
pub const LENGTH: usize = 2048;

/// Deepest nesting of brackets. The library recurses on the stack of the guest.
const BRACKETS: usize = 12;

/// Most `!` and `-` in a row.
const SIGNS: usize = 4;

/// Most operators and brackets of all kinds.
const OPERATORS: usize = 150;

/// Most `?` of conditional expressions, each of which nests the next one.
const CONDITIONALS: usize = 8;

/// The types that an expression must have, in words.
const BOOL: &str = "true or false";
const TEXT: &str = "a text";

/// Longest quotation of an expression in a message, in characters.
const QUOTED: usize = 200;

/// An expression, ready to be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    source: String,
    parsed: IdedExpr,
}

/// The type that an expression must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// A text.
    Text,
    /// Any type.
    Any,
}

impl Expression {
    /// Compiles an expression of this type. `variables` are the names that the settings declare
    /// before it. The error is the rest of a sentence about the field of the expression.
    pub fn compile(source: &str, kind: Kind, variables: &[&str]) -> Result<Self, String> {
        check_size(source)?;
        let quoted = quoted(source);
        let mut parsed = Parser::default().parse(source).map_err(|errors| {
            let first = errors.errors.first();
            let reason = first.map_or_else(
                || "it is empty".to_owned(),
                |error| {
                    let (line, column) = error.pos;
                    format!("line {line}, column {column}: {}", error.msg)
                },
            );
            format!("is no CEL expression: {reason}. It is: {quoted}")
        })?;
        check_kind(&parsed, kind).map_err(|reason| format!("{reason}. It is: {quoted}"))?;
        names::prepare(&mut parsed, variables)
            .map_err(|reason| format!("{reason}. It is: {quoted}"))?;
        Ok(Self {
            source: source.to_owned(),
            parsed,
        })
    }

    /// Evaluates it. The error is a reason in words.
    pub fn evaluate(&self, context: &Context<'_>) -> Result<Value, Failure> {
        Value::resolve(&self.parsed, context).map_err(Failure::of)
    }

    /// Whether it reads this variable.
    pub fn reads(&self, variable: &str) -> bool {
        names::reads(&self.parsed, variable)
    }

    /// Returns the expression for a message, shortened.
    pub fn quoted(&self) -> String {
        quoted(&self.source)
    }
}

/// Failure to evaluate an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub reason: String,
    /// The missing key, if that is the reason.
    pub missing_key: Option<String>,
}

impl Failure {
    /// Describes an error without the values in it, which can be whole objects.
    fn of(error: ExecutionError) -> Self {
        let reason = match &error {
            ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
            ExecutionError::IndexOutOfBounds(_) => "the index is not in the list".to_owned(),
            ExecutionError::ValuesNotComparable(left, right) => {
                format!("{} and {} cannot be compared", of(left), of(right))
            }
            ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
                format!(
                    "no such overload: {operator} of {} and {}",
                    of(left),
                    of(right)
                )
            }
            ExecutionError::UnsupportedUnaryOperator(operator, value) => {
                format!("no such overload: {operator} of {}", of(value))
            }
            ExecutionError::UnsupportedKeyType(value) => {
                format!("{} cannot be a key", of(value))
            }
            ExecutionError::FunctionError { function, .. } => format!("{function} fails"),
            ExecutionError::UnexpectedType { got, want } => {
                format!("a value is {}, and not {want}", quoted(got))
            }
            ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
                "division by zero".to_owned()
            }
            ExecutionError::Overflow(..) => "a number is too large".to_owned(),
            _ => "no such overload: an operator or a function does not take a value of this type"
                .to_owned(),
        };
        let missing_key = match error {
            ExecutionError::NoSuchKey(key) => Some(key.to_string()),
            _ => None,
        };
        Self {
            reason,
            missing_key,
        }
    }
}

fn of(value: &Value) -> ValueType {
    value.type_of()
}

/// The parser and the evaluator recurse, so what nests is counted before. Characters in texts count
/// too: an admin can split an expression that is refused for them.
fn check_size(source: &str) -> Result<(), String> {
    if source.len() > LENGTH {
        return Err(format!(
            "has {} bytes, and the limit is {LENGTH}; use several validations or variables",
            source.len()
        ));
    }
    let (mut open, mut deepest, mut signs, mut most) = (0_usize, 0, 0, 0);
    let (mut operators, mut conditionals) = (0, 0);
    for character in source.chars().filter(|c| !c.is_whitespace()) {
        match character {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            '?' => conditionals += 1,
            _ => {}
        }
        deepest = deepest.max(open);
        signs = if matches!(character, '!' | '-') {
            signs + 1
        } else {
            0
        };
        most = most.max(signs);
        if !character.is_alphanumeric() && !matches!(character, '_' | '"' | '\'' | ',') {
            operators += 1;
        }
    }
    let exceeds =
        deepest > BRACKETS || most > SIGNS || operators > OPERATORS || conditionals > CONDITIONALS;
    if !exceeds {
        return Ok(());
    }
    Err(format!(
        "nests deeper than {BRACKETS} brackets or {SIGNS} signs in a row, or has more than {OPERATORS} operators or \
         {CONDITIONALS} question marks; use several validations or variables. It is: {}",
        quoted(source)
    ))
}

/// Refuses an expression that can never have the type.
fn check_kind(expression: &IdedExpr, kind: Kind) -> Result<(), String> {
    let wanted = match kind {
        Kind::Bool => BOOL,
        Kind::Text => TEXT,
        Kind::Any => return Ok(()),
    };
    match type_of(&expression.expr) {
        Some(found) if found != wanted => Err(format!("is {found}, and must be {wanted}")),
        _ => Ok(()),
    }
}

/// Returns the type of an expression that has the same type for each request, if it is obvious.
fn type_of(expression: &Expr) -> Option<&'static str> {
    match expression {
        Expr::Literal(CelVal::String(_)) => Some(TEXT),
        Expr::Literal(CelVal::Boolean(_)) => Some(BOOL),
        Expr::Literal(CelVal::Int(_) | CelVal::UInt(_) | CelVal::Double(_)) => Some("a number"),
        Expr::Literal(CelVal::Null) => Some("null"),
        Expr::List(_) => Some("a list"),
        Expr::Map(_) => Some("a map"),
        Expr::Select(select) if select.test => Some(BOOL),
        Expr::Call(call) => match call.func_name.as_str() {
            "size" | "int" | "uint" | "double" => Some("a number"),
            "string" => Some(TEXT),
            "contains" | "startsWith" | "endsWith" | "matches" => Some(BOOL),
            operators::LOGICAL_AND
            | operators::LOGICAL_NOT
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::IN
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS => Some(BOOL),
            _ => None,
        },
        _ => None,
    }
}

/// Shortens a text for a message.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
