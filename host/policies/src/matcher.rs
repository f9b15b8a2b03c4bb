//! Pure: evaluates `spec.match`: whether a policy matches a request.

mod cost;
mod shape;

use std::sync::Arc;

use cel::{Context, Program, Value as CelValue};
use ipu_api::ipupolicy::{Labels, Match, MatchCondition};
use ipu_guest_host::GuestError;
use ipu_text::sanitize;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ParseExpressionError, Selector, SelectorExt};
use serde_json::Value;

use self::cost::Variables;
use self::shape::Size;
use super::large_stack;

/// Cost limit of one expression. The API server has the same limits for the `matchConditions` of webhooks
/// (`PerCallLimit` and `RuntimeCELCostBudgetMatchConditions`).
pub const EXPRESSION_LIMIT: u64 = 1_000_000;
/// Cost limit of all expressions of a policy for one request.
pub const POLICY_LIMIT: u64 = 2_500_000;

/// Cost of passing one value of a request to the library, which copies it into some hundred bytes. The policy limit
/// allows 50,000 values.
const COPY_COST: u64 = 50;

/// Deepest nesting of brackets. The library recurses, and a stack overflow ends the process.
const BRACKETS: usize = 16;

/// Most `!` and `-` in a row.
const SIGNS: usize = 4;

/// Most operators of all kinds.
const OPERATORS: usize = 150;

/// Longest reason, in bytes. The library quotes whole objects.
const REASON: usize = 256;

/// Longest quotation of an expression in a message, in bytes.
const QUOTED: usize = 200;

/// The variables of an expression.
const VARIABLES: [&str; 3] = ["object", "oldObject", "request"];

/// Error of an invalid `spec.match`.
#[derive(Debug, thiserror::Error)]
pub enum MatchError {
    /// A label selector is invalid.
    #[error("spec.match.{0} is no label selector")]
    Selector(&'static str, #[source] ParseExpressionError),
    /// A condition is no CEL expression.
    #[error("spec.match.matchConditions: {name} is no CEL expression: {reason}")]
    Condition {
        /// Name of the condition.
        name: String,
        /// The problem.
        reason: String,
    },
    /// A condition exceeds its cost limit.
    #[error(
        "spec.match.matchConditions: {name} may take {cost} steps, and the limit for an expression is \
         {EXPRESSION_LIMIT}, where each list of the request counts as 100 elements; put fewer loops in \
         one another. It is: {expression}"
    )]
    Cost {
        /// Name of the condition.
        name: String,
        /// The expression.
        expression: String,
        /// Its estimated cost.
        cost: u64,
    },
    /// All conditions together exceed the cost limit of a policy.
    #[error(
        "spec.match.matchConditions may take {cost} steps together, and the limit for a policy is \
         {POLICY_LIMIT}, where each list of the request counts as 100 elements; use fewer conditions \
         or fewer loops"
    )]
    Costs {
        /// Their estimated cost.
        cost: u64,
    },
}

/// Failure to evaluate `spec.match`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.match: {name} cannot be evaluated: {reason}")]
pub struct EvaluationError {
    /// `namespaceSelector`, or the name of a condition.
    pub name: String,
    /// The cause.
    pub reason: String,
}

/// The parts of a request that `spec.match` reads.
#[derive(Clone, Copy, Debug)]
pub struct MatchSubject<'a> {
    /// Labels of its namespace, if known.
    pub namespace_labels: Option<&'a Labels>,
    /// The variables of the conditions.
    pub input: &'a MatchInput,
}

/// The variables of match conditions.
#[derive(Clone, Debug, Default)]
pub struct MatchInput {
    /// `object`: the IPUJob. `None` for Placement.
    pub object: Option<Arc<Value>>,
    /// `oldObject`: the previous IPUJob, on update.
    pub old_object: Option<Arc<Value>>,
    /// `request`: attributes of the request.
    pub request: Arc<Value>,
}

/// The parsed `spec.match`.
#[derive(Debug, Default)]
pub struct Matcher {
    namespace: Option<Selector>,
    object: Option<Selector>,
    conditions: Vec<Condition>,
}

#[derive(Debug)]
struct Condition {
    name: String,
    program: Program,
    /// The variables in its expression.
    reads: Vec<&'static str>,
}

impl Matcher {
    /// Parses `spec.match`. Blocks.
    pub fn new(spec: Option<&Match>) -> Result<Self, MatchError> {
        let Some(spec) = spec else {
            return Ok(Self::default());
        };
        let conditions = spec.match_conditions.iter();
        let mut costs = 0_u64;
        let conditions = conditions.map(|condition| {
            let (compiled, cost) = compile(condition)?;
            costs = costs.saturating_add(cost);
            Ok(compiled)
        });
        let matcher = Self {
            namespace: selector("namespaceSelector", spec.namespace_selector.as_ref())?,
            object: selector("objectSelector", spec.object_selector.as_ref())?,
            conditions: conditions.collect::<Result<_, _>>()?,
        };
        if costs > POLICY_LIMIT {
            return Err(MatchError::Costs { cost: costs });
        }
        Ok(matcher)
    }

    /// Whether the label selectors select the request.
    pub fn selects(&self, subject: &MatchSubject<'_>) -> Result<bool, EvaluationError> {
        let of_namespace = match (&self.namespace, subject.namespace_labels) {
            (None, _) => true,
            (Some(selector), Some(labels)) => selector.matches(labels),
            (Some(_), None) => {
                return Err(EvaluationError {
                    name: "namespaceSelector".to_owned(),
                    reason: "the labels of the namespace are not known".to_owned(),
                });
            }
        };
        let object = subject.input.object.as_deref();
        let labels = || object.map(labels_of).unwrap_or_default();
        let selector = self.object.as_ref();
        Ok(of_namespace && selector.is_none_or(|selector| selector.matches(&labels())))
    }

    /// Whether it has match conditions, beside the label selectors.
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Whether all conditions are true. One false condition decides, even if others fail, as in the webhooks of
    /// Kubernetes. A condition that exceeds its cost limit fails. Takes up to some tenths of a second, and more stack
    /// than other threads have.
    pub fn evaluate(&self, input: &MatchInput) -> Result<bool, EvaluationError> {
        let read = |name: &str| {
            let mut conditions = self.conditions.iter();
            conditions.any(|condition| condition.reads.contains(&name))
        };
        let values: Vec<_> = input
            .values()
            .into_iter()
            .filter(|(name, _)| read(name))
            .collect();
        let costs = values.iter().map(|(_, value)| copy_cost(value));
        let cost = costs.fold(0, u64::saturating_add);
        let mut remaining = POLICY_LIMIT.checked_sub(cost).ok_or_else(|| EvaluationError {
            name: self.name(),
            reason: format!(
                "the request is too large for it: reading it takes {cost} steps, and the limit is \
                 {POLICY_LIMIT}"
            ),
        })?;
        let context = context(&values).map_err(|reason| EvaluationError {
            name: self.name(),
            reason: sanitize(&reason, REASON),
        })?;
        let variables = Variables::given(values);
        let mut failed = None;
        for Condition { name, program, .. } in &self.conditions {
            let cost = cost::of(program.expression(), &variables);
            let limit = EXPRESSION_LIMIT.min(remaining);
            let reason = if cost > limit {
                format!(
                    "it may take {cost} steps for this request, and {limit} of the {EXPRESSION_LIMIT} \
                     for an expression and {POLICY_LIMIT} for a policy are left"
                )
            } else {
                remaining -= cost;
                match program.execute(&context) {
                    Ok(CelValue::Bool(true)) => continue,
                    Ok(CelValue::Bool(false)) => return Ok(false),
                    Ok(other) => format!("it is {:?}, and not true or false", other.type_of()),
                    Err(error) => sanitize(&error.to_string(), REASON),
                }
            };
            let name = name.clone();
            failed.get_or_insert(EvaluationError { name, reason });
        }
        failed.map_or(Ok(true), Err)
    }

    /// Returns the name of the first condition.
    pub fn name(&self) -> String {
        let first = self.conditions.first();
        first.map_or_else(String::new, |condition| condition.name.clone())
    }
}

impl MatchInput {
    fn values(&self) -> [(&'static str, &Value); 3] {
        [
            ("object", self.object.as_deref().unwrap_or(&Value::Null)),
            (
                "oldObject",
                self.old_object.as_deref().unwrap_or(&Value::Null),
            ),
            ("request", &*self.request),
        ]
    }
}

/// Cost of passing a value to the library.
fn copy_cost(value: &Value) -> u64 {
    let size = Size::of(value);
    size.values
        .saturating_mul(COPY_COST)
        .saturating_add(size.weight())
}

fn selector(
    field: &'static str,
    selector: Option<&LabelSelector>,
) -> Result<Option<Selector>, MatchError> {
    let selector = selector.cloned().map(Selector::try_from).transpose();
    selector.map_err(|source| MatchError::Selector(field, source))
}

/// Compiles a condition, and estimates its cost for an unknown request.
fn compile(condition: &MatchCondition) -> Result<(Condition, u64), MatchError> {
    let name = condition.name.clone();
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
    if cost > EXPRESSION_LIMIT {
        return Err(MatchError::Cost {
            name,
            expression: sanitize(&condition.expression, QUOTED),
            cost,
        });
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

/// Counts the characters alone, also those in string literals: a user can split an expression that is refused for them.
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

fn context<'a>(values: &[(&'static str, &Value)]) -> Result<Context<'a, 'a>, String> {
    let mut context = Context::default();
    for (name, value) in values {
        let value = cel::to_value(value).map_err(|error| error.to_string())?;
        context.add_variable_from_value(*name, value);
    }
    Ok(context)
}

fn labels_of(object: &Value) -> Labels {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(text).collect()
}

impl From<EvaluationError> for GuestError {
    fn from(error: EvaluationError) -> Self {
        Self::MatchFailed(error.to_string())
    }
}

#[cfg(test)]
mod tests;
