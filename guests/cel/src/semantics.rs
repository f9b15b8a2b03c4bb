//! Pure: operators that this version of the library evaluates differently from CEL and from the operator's match
//! conditions: a missing key is an error, `in` searches no text, and only lists and maps have elements.
//!
//! Guests are compiled with Rust 1.85, and the library of the operator needs 1.86. With a newer compiler, this file and
//! the calls of it in `names` are not needed.

use cel::common::ast::operators;
use cel::extractors::This;
use cel::objects::Key;
use cel::{Context, ExecutionError, ResolveResult, Value};

/// Replaces the indexing of lists and maps.
pub(crate) const INDEX: &str = "@index";

/// Replaces the operator `in`.
pub(crate) const IN: &str = "@member_of";

/// Checks the range of a loop.
pub(crate) const RANGE: &str = "@range";

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
    context.add_function("size", size);
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
