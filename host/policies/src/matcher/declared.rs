//! Pure: finds names in an expression that no request has.
//!
//! The library resolves names only when it evaluates an expression, and `&&` and `||` hide the
//! error of one side. So a misspelled name would fail on some request, long after the policy became
//! active.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::{Context, ExecutionError, IdedExpr, Value as CelValue};
use serde_json::Value;

use crate::match_input::{MatchInput, VARIABLES};

/// Maps of a request whose keys depend on users.
const OPEN_MAPS: [&[&str]; 2] = [
    &["request", "nodeSelector"],
    &["namespaceObject", "metadata", "labels"],
];

/// Variables of a request with the same fields in every request of a hook.
const FIXED: [&str; 2] = ["request", "namespaceObject"];

/// A name in an expression that no request has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undeclared {
    /// A variable.
    #[error(
        "names the variable {0}, which no request has; conditions have object, oldObject, request and \
         namespaceObject, so use one of these"
    )]
    Variable(String),
    /// A variable or a field with which Kubernetes asks its authorizers.
    #[error(
        "names the variable authorizer, which the operator does not support: it asks no authorizer; use \
         request.userInfo.username or request.userInfo.groups"
    )]
    Authorizer,
    /// A function.
    #[error(
        "calls the function {0}, which the operator does not have: conditions have the functions of CEL \
         itself, without the libraries of Kubernetes; write the condition without it, or let the guest check it"
    )]
    Function(String),
    /// A field.
    #[error("reads {path}, which no request has; {parent} has {fields}, so use one of these")]
    Field {
        /// The whole path.
        path: String,
        /// The path without its last part.
        parent: String,
        /// The fields of the parent.
        fields: String,
    },
}

/// Returns the first name in an expression that the sample requests do not have. Recurses as deep
/// as the expression.
pub(super) fn first_undeclared(
    expression: &IdedExpr,
    samples: &[MatchInput],
) -> Option<Undeclared> {
    let mut guards = Vec::new();
    collect_guards(expression, &mut guards);
    let check = Check {
        context: Context::default(),
        samples,
        guards,
    };
    check.find(expression, &Scope::Outer)
}

/// The variables of loops around an expression.
enum Scope<'s> {
    Outer,
    Loop(Vec<&'s str>, &'s Scope<'s>),
}

impl Scope<'_> {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::Outer => false,
            Self::Loop(names, outer) => names.contains(&name) || outer.has(name),
        }
    }
}

struct Check<'a> {
    context: Context<'static, 'static>,
    samples: &'a [MatchInput],
    /// Paths that the expression tests with `has`.
    guards: Vec<Vec<&'a str>>,
}

impl<'a> Check<'a> {
    fn find(&self, expression: &'a IdedExpr, scope: &Scope<'_>) -> Option<Undeclared> {
        let mut parts = parts(&expression.expr).into_iter();
        self.field(expression, scope)
            // The target of a call comes before its function, which depends on it.
            .or_else(|| parts.find_map(|part| self.find(part, scope)))
            .or_else(|| match &expression.expr {
                Expr::Ident(name) => self.variable(name, scope),
                Expr::Call(call) => self.function(call),
                Expr::Comprehension(comprehension) => self.in_loop(comprehension, scope),
                _ => None,
            })
    }

    fn in_loop(
        &self,
        comprehension: &'a ComprehensionExpr,
        outer: &Scope<'_>,
    ) -> Option<Undeclared> {
        let ComprehensionExpr {
            iter_range,
            iter_var,
            iter_var2,
            accu_var,
            accu_init,
            loop_cond,
            loop_step,
            result,
        } = comprehension;
        let mut names = vec![iter_var.as_str(), accu_var.as_str()];
        names.extend(iter_var2.as_deref());
        let inner = Scope::Loop(names, outer);
        let mut around = [iter_range, accu_init].into_iter();
        let mut within = [loop_cond, loop_step, result].into_iter();
        around
            .find_map(|part| self.find(part, outer))
            .or_else(|| within.find_map(|part| self.find(part, &inner)))
    }

    fn variable(&self, name: &str, scope: &Scope<'_>) -> Option<Undeclared> {
        let relative = name.trim_start_matches('.');
        let is_declared = scope.has(name)
            || VARIABLES.contains(&relative)
            || !self.is_undeclared(Expr::Ident(name.to_owned()));
        match (is_declared, relative) {
            (true, _) => None,
            (false, "authorizer") => Some(Undeclared::Authorizer),
            (false, _) => Some(Undeclared::Variable(relative.to_owned())),
        }
    }

    /// Calls the function without arguments: one that exists has no such overload.
    fn function(&self, call: &CallExpr) -> Option<Undeclared> {
        if is_operator(&call.func_name) {
            return None;
        }
        let null = || Expr::Literal(LiteralValue::Null);
        let target = call.target.is_some().then(|| Box::new(node(null())));
        let tried = Expr::Call(CallExpr {
            func_name: call.func_name.clone(),
            target,
            args: Vec::new(),
        });
        self.is_undeclared(tried)
            .then(|| Undeclared::Function(call.func_name.clone()))
    }

    fn is_undeclared(&self, name: Expr) -> bool {
        let resolved = CelValue::resolve(&node(name), &self.context);
        matches!(resolved, Err(ExecutionError::UndeclaredReference(_)))
    }

    /// Checks a path such as `request.userInfo.username` against the samples.
    fn field(&self, expression: &'a IdedExpr, scope: &Scope<'_>) -> Option<Undeclared> {
        let path = path(expression)?;
        let is_fixed = FIXED.contains(&path[0]) && !scope.has(path[0]);
        let is_guarded = self.guards.iter().any(|guard| path.starts_with(guard));
        if !is_fixed || is_guarded {
            return None;
        }
        let missing = self.samples.iter().map(|sample| missing(sample, &path));
        // A field of one kind of request is a field.
        missing.min_by_key(Option::is_some)?
    }
}

/// Returns the first part of a path that a sample does not have.
fn missing(sample: &MatchInput, path: &[&str]) -> Option<Undeclared> {
    let values = sample.values();
    let &(_, mut value) = values.iter().find(|(name, _)| *name == path[0])?;
    for (at, part) in path.iter().enumerate().skip(1) {
        let Value::Object(fields) = value else {
            return None;
        };
        if OPEN_MAPS.contains(&&path[..at]) {
            return None;
        }
        let Some(field) = fields.get(*part) else {
            let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
            names.sort_unstable();
            return Some(Undeclared::Field {
                path: path[..=at].join("."),
                parent: path[..at].join("."),
                fields: names.join(", "),
            });
        };
        value = field;
    }
    None
}

/// Collects the paths that an expression tests with `has`.
fn collect_guards<'a>(expression: &'a IdedExpr, guards: &mut Vec<Vec<&'a str>>) {
    if let Expr::Select(select) = &expression.expr
        && select.test
        && let Some(mut path) = path(&select.operand)
    {
        path.push(&select.field);
        guards.push(path);
    }
    let looped = match &expression.expr {
        Expr::Comprehension(comprehension) => vec![
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ],
        other => parts(other),
    };
    for part in looped {
        collect_guards(part, guards);
    }
}

/// Returns the parts of a path of names, such as `request.userInfo` or `request["userInfo"]`.
fn path(expression: &IdedExpr) -> Option<Vec<&str>> {
    match &expression.expr {
        Expr::Ident(name) => Some(vec![name.trim_start_matches('.')]),
        Expr::Select(select) if !select.test => {
            let mut path = path(&select.operand)?;
            path.push(&select.field);
            Some(path)
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let [operand, key] = call.args.as_slice() else {
                return None;
            };
            let Expr::Literal(LiteralValue::String(key)) = &key.expr else {
                return None;
            };
            let mut path = path(operand)?;
            path.push(key.inner());
            Some(path)
        }
        _ => None,
    }
}

/// Returns the direct parts of an expression outside loops.
fn parts(expression: &Expr) -> Vec<&IdedExpr> {
    match expression {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Comprehension(_) => {
            Vec::new()
        }
        Expr::Call(call) => call
            .target
            .as_deref()
            .into_iter()
            .chain(&call.args)
            .collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Map(map) => {
            let entries = map.entries.iter();
            entries
                .flat_map(|entry| parts_of_entry(&entry.expr))
                .collect()
        }
        Expr::Struct(of_type) => {
            let entries = of_type.entries.iter();
            entries
                .flat_map(|entry| parts_of_entry(&entry.expr))
                .collect()
        }
    }
}

fn parts_of_entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

/// Whether a function is an operator in functional form, such as `_&&_`.
fn is_operator(name: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || matches!(character, '_' | '.');
    !name.chars().all(is_name)
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}
