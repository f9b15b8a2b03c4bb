//! Pure: compiles one match condition, and tries it on sample requests.

use cel::{Context, ExecutionError, Program, Value as CelValue};
use ipu_api::ipupolicy::{Hook, MatchCondition};
use ipu_text::sanitize;

use super::cost::{self, Variables};
use super::declared::{Undeclared, first_undeclared};
use super::{EXPRESSION_LIMIT, MatchError, REASON, context};
use crate::large_stack;
use crate::match_input::{MatchInput, VARIABLES};
use crate::match_samples::samples;

/// Deepest nesting of brackets. The library recurses, and a stack overflow ends the process.
pub(super) const BRACKETS: usize = 16;

/// Most `!` and `-` in a row.
pub(super) const SIGNS: usize = 4;

/// Most operators of all kinds.
pub(super) const OPERATORS: usize = 150;

/// Longest quotation of an expression in a message, in bytes.
const QUOTED: usize = 200;

/// A condition, ready to be evaluated.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) name: String,
    pub(super) program: Program,
    /// The variables in its expression.
    pub(super) reads: Vec<&'static str>,
}

impl Condition {
    /// Evaluates the expression. Returns why it is neither true nor false.
    pub(super) fn execute(&self, context: &Context<'_, '_>) -> Result<bool, String> {
        match self.program.execute(context) {
            Ok(CelValue::Bool(value)) => Ok(value),
            Ok(other) => Err(no_boolean(&other)),
            Err(error) => Err(sanitize(&error.to_string(), REASON)),
        }
    }
}

/// A problem that an expression has with every request.
enum Problem {
    Undeclared(Undeclared),
    Unevaluable(String),
}

/// Compiles a condition, and estimates its cost for an unknown request.
pub(super) fn compile(
    hook: Hook,
    condition: &MatchCondition,
) -> Result<(Condition, u64), MatchError> {
    let name = condition.name.clone();
    let expression = || sanitize(&condition.expression, QUOTED);
    if nests_too_deep(&condition.expression) {
        let reason = format!(
            "it nests deeper than {BRACKETS} brackets or {SIGNS} signs in a row, or has more than \
             {OPERATORS} operators; use several conditions"
        );
        return Err(MatchError::Condition { name, reason });
    }
    let (program, cost) = match parse(&condition.expression) {
        Ok(parsed) => parsed,
        Err(reason) => return Err(MatchError::Condition { name, reason }),
    };
    // Only an expression within the limit is tried.
    if cost > EXPRESSION_LIMIT {
        return Err(MatchError::Cost {
            name,
            expression: expression(),
            cost,
        });
    }
    let samples = samples(hook);
    match large_stack::run(|| problem(&program, &samples)) {
        Ok(None) => {}
        Ok(Some(Problem::Undeclared(undeclared))) => {
            return Err(MatchError::Undeclared {
                name,
                expression: expression(),
                undeclared,
            });
        }
        Ok(Some(Problem::Unevaluable(reason))) | Err(reason) => {
            return Err(MatchError::Unevaluable {
                name,
                expression: expression(),
                reason,
            });
        }
    }
    let references = program.references();
    let variables = VARIABLES.into_iter();
    let reads = variables
        .filter(|name| references.has_variable(*name))
        .collect();
    let condition = Condition {
        name,
        program,
        reads,
    };
    Ok((condition, cost))
}

fn parse(expression: &str) -> Result<(Program, u64), String> {
    large_stack::run(|| {
        let program = Program::compile(expression).map_err(|error| error.to_string())?;
        let cost = cost::of(program.expression(), &Variables::assumed(VARIABLES));
        Ok((program, cost))
    })?
}

/// Counts the characters alone, also those in string literals: a user can split an expression that
/// is refused for them.
fn nests_too_deep(expression: &str) -> bool {
    let (mut open, mut deepest, mut signs, mut most, mut operators) = (0_usize, 0, 0, 0, 0);
    for character in expression.chars().filter(|c| !c.is_whitespace()) {
        match character {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
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
    deepest > BRACKETS || most > SIGNS || operators > OPERATORS
}

/// Returns the reason why an expression is not true or false.
fn no_boolean(value: &CelValue) -> String {
    format!("it is {:?}, and not true or false", value.type_of())
}

/// Returns the problem of an expression that no request can avoid. A field that the sample lacks
/// can be in an object.
fn problem(program: &Program, samples: &[MatchInput]) -> Option<Problem> {
    if let Some(undeclared) = first_undeclared(program.expression(), samples) {
        return Some(Problem::Undeclared(undeclared));
    }
    let mut mismatches = Vec::new();
    for sample in samples {
        let context = match context(&sample.values()) {
            Ok(context) => context,
            Err(reason) => return Some(Problem::Unevaluable(sanitize(&reason, REASON))),
        };
        match program.execute(&context) {
            Ok(CelValue::Bool(_)) => {}
            Ok(other) => return Some(Problem::Unevaluable(no_boolean(&other))),
            Err(error @ ExecutionError::UndeclaredReference(_)) => {
                return Some(Problem::Unevaluable(sanitize(&error.to_string(), REASON)));
            }
            Err(
                error @ (ExecutionError::NoSuchOverload(_)
                | ExecutionError::UnexpectedType { .. }
                | ExecutionError::ValuesNotComparable(..)),
            ) => mismatches.push(error),
            Err(_) => {}
        }
    }
    // `oldObject.spec` fails at a creation, and not at an update.
    let is_hopeless = mismatches.len() == samples.len();
    let first = mismatches.first().filter(|_| is_hopeless)?;
    Some(Problem::Unevaluable(sanitize(&first.to_string(), REASON)))
}

#[cfg(test)]
mod tests;
