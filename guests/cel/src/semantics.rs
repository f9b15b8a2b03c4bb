//! Pure: operators that this version of the library evaluates differently from CEL and from the
//! operator's match conditions: a missing key is an error, `in` searches no text, and only lists
//! and maps have elements.
//!
//! Guests are compiled with Rust 1.85, and the library of the operator needs 1.86. With a newer
//! compiler, this file and the calls of it in `names` are not needed.

use cel::common::ast::{CallExpr, Expr, SelectExpr, operators};
use cel::common::value::CelVal;
use cel::extractors::This;
use cel::objects::Key;
use cel::{Context, ExecutionError, IdedExpr, ResolveResult, Value};

/// Replaces the indexing of lists and maps.
pub(crate) const INDEX: &str = "@index";

/// Replaces the operator `in`.
pub(crate) const IN: &str = "@member_of";

/// Checks the range of a loop.
pub(crate) const RANGE: &str = "@range";

/// Replaces the macro `has`.
const HAS: &str = "@has";

/// Returns the call that replaces a test of a field.
pub(crate) fn has(select: &mut SelectExpr) -> CallExpr {
    let field = IdedExpr {
        id: select.operand.id,
        expr: Expr::Literal(CelVal::String(std::mem::take(&mut select.field))),
    };
    CallExpr {
        func_name: HAS.to_owned(),
        target: None,
        args: vec![std::mem::take(&mut *select.operand), field],
    }
}

/// Returns the function that replaces an operator.
pub(crate) fn replacement(operator: &str) -> Option<&'static str> {
    match operator {
        operators::INDEX => Some(INDEX),
        operators::IN => Some(IN),
        _ => None,
    }
}

/// A context with the functions of CEL and the replacements.
pub(crate) fn context() -> Context<'static> {
    let mut context = Context::default();
    context.add_function(INDEX, index);
    context.add_function(IN, is_in);
    context.add_function(RANGE, range);
    context.add_function(HAS, has_field);
    context.add_function("contains", contains);
    context.add_function("int", int);
    context.add_function("size", size);
    context.add_function("uint", uint);
    context
}

fn index(container: Value, index: Value) -> ResolveResult {
    match (container, index) {
        (Value::List(items), Value::Int(at)) => {
            let item = usize::try_from(at).ok().and_then(|at| items.get(at));
            let missing = || ExecutionError::IndexOutOfBounds(Value::Int(at));
            item.cloned().ok_or_else(missing)
        }
        (Value::Map(map), index) => {
            let key = key(index)?;
            let missing = || ExecutionError::no_such_key(&key.to_string());
            map.get(&key).cloned().ok_or_else(missing)
        }
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

fn is_in(item: Value, container: Value) -> ResolveResult {
    match container {
        Value::List(items) => Ok(items.contains(&item).into()),
        Value::Map(map) => Ok(map.get(&key(item)?).is_some().into()),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// Only a map has fields.
fn has_field(container: Value, field: Value) -> ResolveResult {
    match container {
        Value::Map(map) => Ok(map.get(&key(field)?).is_some().into()),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// Only a text contains another one.
fn contains(This(whole): This<Value>, part: Value) -> ResolveResult {
    match (whole, part) {
        (Value::String(whole), Value::String(part)) => Ok(whole.contains(part.as_str()).into()),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// Converts a finite number in the range of the type. A NaN is an error.
fn int(value: Value) -> ResolveResult {
    let number = match value {
        Value::Int(number) => Some(number),
        Value::UInt(number) => i64::try_from(number).ok(),
        Value::Float(number) => whole(number).and_then(|number| i64::try_from(number).ok()),
        Value::String(text) => text.parse().ok(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    number.map(Value::Int).ok_or_else(|| no_number("int"))
}

fn uint(value: Value) -> ResolveResult {
    let number = match value {
        Value::UInt(number) => Some(number),
        Value::Int(number) => u64::try_from(number).ok(),
        Value::Float(number) => whole(number).and_then(|number| u64::try_from(number).ok()),
        Value::String(text) => text.parse().ok(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    number.map(Value::UInt).ok_or_else(|| no_number("uint"))
}

/// Cuts the fraction of a number. `None` for a NaN and numbers of more than 64 bits.
fn whole(number: f64) -> Option<i128> {
    let is_small = number.abs() < 1.9e19;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the fraction is cut, and the number is small enough"
    )]
    is_small.then_some(number as i128)
}

fn no_number(function: &str) -> ExecutionError {
    ExecutionError::FunctionError {
        function: function.to_owned(),
        message: "the value is not a number in the range of the type".to_owned(),
    }
}

fn range(This(value): This<Value>) -> ResolveResult {
    match value {
        Value::List(_) | Value::Map(_) => Ok(value),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// The length of a text is its number of characters.
fn size(This(value): This<Value>) -> ResolveResult {
    let size = match value {
        Value::List(items) => items.len(),
        Value::Map(map) => map.map.len(),
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn key(value: Value) -> Result<Key, ExecutionError> {
    let key: Result<Key, Value> = value.try_into();
    key.map_err(ExecutionError::UnsupportedKeyType)
}
