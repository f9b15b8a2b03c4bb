//! Pure: estimates the cost of an expression from the expression and the values of its variables.
//!
//! An evaluation cannot be stopped, so the estimate is an upper bound. A loop counts for each
//! element of its list, both branches count, and a copy or comparison of a value counts with the
//! size of the value.

use std::collections::HashMap;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use serde_json::Value;

use super::shape::{Shape, TEXT};

/// Cost of compiling a regular expression, and of each of its bytes, without and with Unicode
/// classes, which have hundreds of ranges.
const REGEX: u64 = 100;
const REGEX_BYTE: u64 = 5;
const REGEX_CLASS: u64 = 300;

/// Cost of compiling the largest regular expression that the library accepts.
const REGEX_MAX: u64 = 400_000;

/// States of a regular expression per unit of cost, for each [`TEXT`] bytes of text. Kubernetes has
/// the same numbers.
const STATES: u64 = 4;

/// The shapes of the variables of an expression.
#[derive(Debug, Default)]
pub(super) struct Variables<'a>(HashMap<&'static str, Shape<'a>>);

impl<'a> Variables<'a> {
    /// Variables with these values.
    pub(super) fn given(values: impl IntoIterator<Item = (&'static str, &'a Value)>) -> Self {
        let given = values.into_iter();
        let shapes = given.map(|(name, value)| (name, Shape::given(value)));
        Self(shapes.collect())
    }

    /// Variables with unknown values.
    pub(super) fn assumed(names: impl IntoIterator<Item = &'static str>) -> Self {
        let assumed = names.into_iter();
        Self(assumed.map(|name| (name, Shape::assumed())).collect())
    }
}

/// Estimates the cost of an expression.
pub(super) fn of(expression: &IdedExpr, variables: &Variables<'_>) -> u64 {
    let scope = Scope {
        variables,
        inner: None,
    };
    let found = estimate(expression, &scope);
    found.cost.saturating_add(found.weight())
}

/// Estimate of an expression.
struct Estimate<'a> {
    shape: Shape<'a>,
    cost: u64,
}

impl Estimate<'_> {
    fn scalar(cost: u64) -> Self {
        let shape = Shape::scalar();
        Self { shape, cost }
    }

    fn weight(&self) -> u64 {
        self.shape.size().weight()
    }
}

/// The variables in scope. Those of loops shadow the outer ones.
struct Scope<'s, 'a> {
    variables: &'s Variables<'a>,
    inner: Option<(&'s str, Shape<'a>, &'s Scope<'s, 'a>)>,
}

impl<'a> Scope<'_, 'a> {
    fn get(&self, name: &str) -> Shape<'a> {
        let mut scope = self;
        while let Some((variable, shape, outer)) = &scope.inner {
            if *variable == name {
                return shape.clone();
            }
            scope = outer;
        }
        let known = self.variables.0.get(name.trim_start_matches('.'));
        known.cloned().unwrap_or_else(Shape::scalar)
    }

    fn with<'i>(&'i self, name: &'i str, shape: Shape<'a>) -> Scope<'i, 'a> {
        Scope {
            variables: self.variables,
            inner: Some((name, shape, self)),
        }
    }
}

fn estimate<'a>(expression: &IdedExpr, scope: &Scope<'_, 'a>) -> Estimate<'a> {
    match &expression.expr {
        Expr::Unspecified => Estimate::scalar(1),
        Expr::Literal(literal) => Estimate {
            shape: of_literal(literal),
            cost: 1,
        },
        Expr::Ident(name) => Estimate {
            shape: scope.get(name),
            cost: 1,
        },
        Expr::Select(select) => {
            let operand = estimate(&select.operand, scope);
            let cost = operand.cost.saturating_add(1);
            if select.test {
                return Estimate::scalar(cost);
            }
            let shape = operand.shape.field(&select.field);
            Estimate { shape, cost }
        }
        Expr::List(list) => collected(list.elements.iter(), scope),
        Expr::Map(map) => collected(map.entries.iter().flat_map(|one| parts(&one.expr)), scope),
        Expr::Struct(one) => collected(one.entries.iter().flat_map(|one| parts(&one.expr)), scope),
        Expr::Call(call) => called(call, scope),
        Expr::Comprehension(comprehension) => repeated(comprehension, scope),
    }
}

fn of_literal<'a>(literal: &LiteralValue) -> Shape<'a> {
    match literal {
        LiteralValue::String(text) => Shape::text(text.inner().len() as u64),
        LiteralValue::Bytes(bytes) => Shape::text(bytes.inner().len() as u64),
        _ => Shape::scalar(),
    }
}

fn parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

/// Estimates a list or map literal, which copies its parts.
fn collected<'a, 'e>(
    parts: impl Iterator<Item = &'e IdedExpr>,
    scope: &Scope<'_, 'a>,
) -> Estimate<'a> {
    let (mut cost, mut shapes) = (1, Vec::new());
    for part in parts {
        let part = estimate(part, scope);
        cost = sum([cost, part.cost, part.weight()]);
        shapes.push(part.shape);
    }
    Estimate {
        shape: Shape::list(shapes),
        cost,
    }
}

/// Estimates a call of a function or an operator. Its target is the first operand.
fn called<'a>(call: &CallExpr, scope: &Scope<'_, 'a>) -> Estimate<'a> {
    let expressions = call.target.as_deref().into_iter().chain(&call.args);
    let operands: Vec<_> = expressions.map(|one| estimate(one, scope)).collect();
    let weights = || sum(operands.iter().map(Estimate::weight));
    let shape = |at: usize| {
        let operand = operands.get(at).map(|one| one.shape.clone());
        operand.unwrap_or_else(Shape::scalar)
    };
    let (result, own) = match call.func_name.as_str() {
        operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::NOT_STRICTLY_FALSE => (Shape::scalar(), 0),
        // The characters of a text are counted.
        "size" => (Shape::scalar(), shape(0).text_bytes().div_ceil(TEXT)),
        operators::CONDITIONAL => (Shape::either(shape(1), shape(2)), 0),
        operators::INDEX => (at_index(call, &shape(0)), 0),
        // The found part is copied.
        operators::OPT_INDEX | operators::OPT_SELECT => (shape(0).element(), weights()),
        operators::EQUALS | operators::NOT_EQUALS => {
            let weights = operands.iter().map(Estimate::weight);
            (Shape::scalar(), weights.min().unwrap_or(1))
        }
        operators::IN => (Shape::scalar(), shape(1).search()),
        operators::ADD => (Shape::joined(&shape(0), &shape(1)), weights()),
        "matches" => {
            let text = shape(0).text_bytes().div_ceil(TEXT).max(1);
            let pattern = Pattern::of(call.args.last(), &shape(operands.len().saturating_sub(1)));
            let steps = text.saturating_mul(pattern.states.div_ceil(STATES));
            (Shape::scalar(), steps.saturating_add(pattern.compiling))
        }
        "contains" | "startsWith" | "endsWith" => (Shape::scalar(), weights()),
        _ => (
            Shape::of_result(operands.iter().map(|one| one.shape.size())),
            weights(),
        ),
    };
    let operands = sum(operands.iter().map(|one| one.cost));
    Estimate {
        shape: result,
        cost: sum([1, operands, own]),
    }
}

fn at_index<'a>(call: &CallExpr, operand: &Shape<'a>) -> Shape<'a> {
    match call.args.get(1).map(|index| &index.expr) {
        Some(Expr::Literal(LiteralValue::String(key))) => operand.field(key.inner()),
        _ => operand.element(),
    }
}

/// A regular expression, which is compiled for each match.
struct Pattern {
    /// Most states.
    states: u64,
    /// Cost of compiling it.
    compiling: u64,
}

impl Pattern {
    /// Reads the pattern of a literal or of the request. Of any other pattern only the length is
    /// known.
    fn of(expression: Option<&IdedExpr>, shape: &Shape<'_>) -> Self {
        if let Some(Expr::Literal(LiteralValue::String(pattern))) = expression.map(|one| &one.expr)
        {
            return Self::read(pattern.inner());
        }
        let states = match shape.texts() {
            Some(texts) => texts.map(|text| Self::read(text).states).max().unwrap_or(1),
            None => shape.text_bytes(),
        };
        Self {
            states,
            compiling: REGEX_MAX,
        }
    }

    fn read(pattern: &str) -> Self {
        let mut states = pattern.len().max(1) as u64;
        // A count in braces repeats the expression before it. Nested counts multiply.
        for count in pattern.split('{').skip(1) {
            let numbers = count.split('}').next().unwrap_or_default().split(',');
            let largest = numbers.filter_map(|number| number.trim().parse::<u64>().ok());
            states = states.saturating_mul(largest.max().unwrap_or(1).max(1));
        }
        let names_classes =
            pattern.contains(['\\', '.']) || pattern.contains("[^") || pattern.contains("(?");
        let byte = if names_classes || !pattern.is_ascii() {
            REGEX_CLASS
        } else {
            REGEX_BYTE
        };
        let compiling = states.saturating_mul(byte).saturating_add(REGEX);
        Self {
            states: states.min(REGEX_MAX),
            compiling: compiling.min(REGEX_MAX),
        }
    }
}

/// Estimates a loop: it evaluates the list once and the rest for each element, and copies each
/// element.
fn repeated<'a>(comprehension: &ComprehensionExpr, scope: &Scope<'_, 'a>) -> Estimate<'a> {
    let range = estimate(&comprehension.iter_range, scope);
    let start = estimate(&comprehension.accu_init, scope);
    let outer = scope.with(&comprehension.accu_var, start.shape.clone());
    let inner = outer.with(&comprehension.iter_var, range.shape.iterated());
    let condition = estimate(&comprehension.loop_cond, &inner);
    let step = estimate(&comprehension.loop_step, &inner);
    let length = range.shape.size().length;
    let each = sum([condition.cost, step.cost, 3]);
    // `map` and `filter` append what each step makes; the other loops make a number or a truth
    // value.
    let ended = scope.with(&comprehension.accu_var, step.shape.repeated(length));
    let result = estimate(&comprehension.result, &ended);
    Estimate {
        cost: sum([
            range.cost,
            range.weight(),
            start.cost,
            length.saturating_mul(each),
            result.cost,
            result.weight(),
        ]),
        shape: result.shape,
    }
}

fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
