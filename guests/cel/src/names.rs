//! Pure: checks the names in an expression, and replaces operators by those of `semantics`.
//!
//! The library resolves names only when it evaluates an expression, and panics on constructs that
//! it does not know. So both are refused with the settings.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, SelectExpr};

use crate::semantics;

/// The object of the request.
pub(crate) const OBJECT: &str = "object";
/// The object as it was before, or null.
pub(crate) const OLD_OBJECT: &str = "oldObject";
/// Attributes of the request.
pub(crate) const REQUEST: &str = "request";
/// The namespace of the object.
pub(crate) const NAMESPACE_OBJECT: &str = "namespaceObject";
/// The variables in the settings.
pub(crate) const VARIABLES: &str = "variables";

/// Functions, and the lowest and highest number of their arguments. The text before the dot is an
/// argument.
const FUNCTIONS: [(&str, usize, usize); 12] = [
    ("bytes", 1, 1),
    ("contains", 2, 2),
    ("double", 1, 1),
    ("endsWith", 2, 2),
    ("int", 1, 1),
    ("matches", 2, 2),
    ("max", 1, usize::MAX),
    ("min", 1, usize::MAX),
    ("size", 1, 1),
    ("startsWith", 2, 2),
    ("string", 1, 1),
    ("uint", 1, 1),
];

/// Functions that are not called after a dot: the library ignores what stands before it.
const GLOBAL: [&str; 7] = ["bytes", "double", "int", "max", "min", "string", "uint"];

/// Macros. The parser has replaced those with the right arguments.
const MACROS: [&str; 6] = ["has", "all", "exists", "exists_one", "map", "filter"];

/// Paths with the same fields in each request.
const FIXED: [(&[&str], &[&str]); 4] = [
    (
        &[REQUEST],
        &[
            "operation",
            "name",
            "namespace",
            "dryRun",
            "subResource",
            "userInfo",
        ],
    ),
    (&[REQUEST, "userInfo"], &["username", "groups"]),
    (&[NAMESPACE_OBJECT], &["metadata"]),
    (&[NAMESPACE_OBJECT, "metadata"], &["name", "labels"]),
];

/// Checks and prepares a parsed expression. `variables` are the names that the settings declare
/// before it. The error is the rest of a sentence about the expression.
pub(crate) fn prepare(expression: &mut IdedExpr, variables: &[&str]) -> Result<(), String> {
    let mut scope = Scope {
        variables,
        loops: Vec::new(),
    };
    scope.prepare(expression)
}

/// Whether an expression reads a variable of the request.
pub(crate) fn reads(expression: &IdedExpr, name: &str) -> bool {
    expression.references().has_variable(name)
}

/// The names at a part of an expression.
struct Scope<'a> {
    variables: &'a [&'a str],
    /// Variables of the loops around it.
    loops: Vec<String>,
}

impl Scope<'_> {
    fn prepare(&mut self, expression: &mut IdedExpr) -> Result<(), String> {
        match &mut expression.expr {
            Expr::Ident(name) => self.variable(name),
            Expr::Literal(_) => Ok(()),
            Expr::List(list) => list
                .elements
                .iter_mut()
                .try_for_each(|item| self.prepare(item)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| {
                let EntryExpr::MapEntry(entry) = &mut entry.expr else {
                    return Err(unsupported("a message"));
                };
                self.prepare(&mut entry.key)?;
                self.prepare(&mut entry.value)
            }),
            Expr::Select(select) => {
                self.field(select)?;
                if !self.is_of_settings(select) {
                    self.prepare(&mut select.operand)?;
                }
                if select.test {
                    expression.expr = Expr::Call(semantics::has(select));
                }
                Ok(())
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) => Err(unsupported("a message")),
            Expr::Unspecified => Err("is empty".to_owned()),
        }
    }

    fn variable(&self, name: &str) -> Result<(), String> {
        let of_request = [OBJECT, OLD_OBJECT, REQUEST, NAMESPACE_OBJECT];
        let is_declared =
            of_request.contains(&name) || self.loops.iter().any(|declared| declared == name);
        if is_declared {
            return Ok(());
        }
        let also = if self.variables.is_empty() {
            ""
        } else {
            ", variables.<name>"
        };
        Err(format!(
            "names the variable {name}, which does not exist; use one of {}{also}",
            of_request.join(", ")
        ))
    }

    /// Whether it reads a variable of the settings. Such a variable always has a value, or the
    /// expression fails: nothing else than its value can be used.
    fn is_of_settings(&self, select: &SelectExpr) -> bool {
        !select.test
            && !self.variables.is_empty()
            && path(&select.operand).is_some_and(|path| path == [VARIABLES])
            && !self.loops.iter().any(|declared| declared == VARIABLES)
    }

    /// Checks the field of a variable whose fields are known.
    fn field(&self, select: &SelectExpr) -> Result<(), String> {
        let Some(path) = path(&select.operand) else {
            return Ok(());
        };
        if self.loops.iter().any(|declared| declared == path[0]) {
            return Ok(());
        }
        let of_settings = (path == [VARIABLES]).then_some(self.variables);
        let mut fixed = FIXED.iter();
        let of_request = fixed.find(|(parent, _)| *parent == path);
        let Some(fields) = of_settings.or(of_request.map(|(_, fields)| *fields)) else {
            return Ok(());
        };
        // Without variables, the name itself is refused.
        if fields.contains(&select.field.as_str()) || fields.is_empty() {
            return Ok(());
        }
        let parent = path.join(".");
        Err(format!(
            "reads {parent}.{}, which does not exist; {parent} has {}",
            select.field,
            fields.join(", ")
        ))
    }

    fn call(&mut self, call: &mut CallExpr) -> Result<(), String> {
        let name = call.func_name.as_str();
        let count = call.args.len() + usize::from(call.target.is_some());
        let is_name = |character: char| character.is_alphanumeric() || character == '_';
        let is_operator = !name.chars().all(is_name) || name.starts_with('_');
        if is_operator && name.contains('?') && name != "_?_:_" {
            return Err(unsupported("an optional value"));
        }
        if !is_operator {
            function(name, count)?;
        }
        if call.target.is_some() && GLOBAL.contains(&name) {
            return Err(format!(
                "calls {name} after a dot, and it takes its values in brackets: {name}(...)"
            ));
        }
        let mut parts = call.target.as_deref_mut().into_iter().chain(&mut call.args);
        parts.try_for_each(|part| self.prepare(part))?;
        if let Some(replacement) = semantics::replacement(&call.func_name) {
            replacement.clone_into(&mut call.func_name);
        }
        Ok(())
    }

    fn comprehension(&mut self, comprehension: &mut ComprehensionExpr) -> Result<(), String> {
        if comprehension.iter_var2.is_some() {
            return Err(unsupported("a loop with two variables"));
        }
        self.prepare(&mut comprehension.iter_range)?;
        self.prepare(&mut comprehension.accu_init)?;
        let outer = self.loops.len();
        self.loops.push(comprehension.iter_var.clone());
        self.loops.push(comprehension.accu_var.clone());
        self.prepare(&mut comprehension.loop_cond)?;
        self.prepare(&mut comprehension.loop_step)?;
        self.prepare(&mut comprehension.result)?;
        self.loops.truncate(outer);
        let range = std::mem::take(&mut comprehension.iter_range);
        comprehension.iter_range.expr = Expr::Call(CallExpr {
            func_name: semantics::RANGE.to_owned(),
            target: Some(Box::new(range)),
            args: Vec::new(),
        });
        Ok(())
    }
}

fn function(name: &str, count: usize) -> Result<(), String> {
    if MACROS.contains(&name) {
        return Err(format!(
            "calls the macro {name} with other arguments than has(object.field), list.exists(item, condition), or all, \
             exists_one, map and filter like it"
        ));
    }
    let mut functions = FUNCTIONS.iter();
    let Some((_, least, most)) = functions.find(|(declared, ..)| *declared == name) else {
        let names = FUNCTIONS.map(|(declared, ..)| declared);
        return Err(format!(
            "calls the function {name}, which does not exist; there are {}",
            names.join(", ")
        ));
    };
    if (*least..=*most).contains(&count) {
        return Ok(());
    }
    Err(format!(
        "calls the function {name} with {count} arguments, counting the value before the dot, and it takes {least}"
    ))
}

fn unsupported(construct: &str) -> String {
    format!("contains {construct}, which the guest does not support; write it without")
}

/// Returns the names of a path such as `request.userInfo`.
fn path(expression: &IdedExpr) -> Option<Vec<&str>> {
    match &expression.expr {
        Expr::Ident(name) => Some(vec![name]),
        Expr::Select(select) if !select.test => {
            let mut path = path(&select.operand)?;
            path.push(&select.field);
            Some(path)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use cel::{ExecutionError, Program};

    use super::*;

    /// The library has each function of the list, so that no expression of accepted settings names
    /// a missing one.
    #[test]
    fn every_listed_function_exists() {
        let context = semantics::context();
        for (name, ..) in FUNCTIONS {
            let program = Program::compile(&format!("{name}()")).unwrap();
            let result = program.execute(&context);
            let is_missing = matches!(result, Err(ExecutionError::UndeclaredReference(_)));
            assert!(!is_missing, "{name}");
        }
    }
}
