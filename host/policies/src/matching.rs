//! Pure: whether a request concerns a policy.

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

/// Most steps of one expression, and of all expressions of a policy for one request. The API server
/// holds the `matchConditions` of webhooks to the same numbers (`PerCallLimit` and
/// `RuntimeCELCostBudgetMatchConditions`).
pub const EXPRESSION_LIMIT: u64 = 1_000_000;
/// See [`EXPRESSION_LIMIT`].
pub const POLICY_LIMIT: u64 = 2_500_000;

/// Steps of handing a value of a request to the library, which makes a copy of it in some hundred bytes: no
/// more than 50,000 values are copied.
const READING: u64 = 50;

/// Brackets in one another, `!` and `-` in a row, and operators of all kinds that an expression may
/// have: the library reads and evaluates what is in one another on the stack, and a stack that
/// overflows ends the process.
const BRACKETS: usize = 16;
const SIGNS: usize = 4;
const OPERATORS: usize = 150;

/// Most bytes of a reason: the library quotes whole objects.
const REASON: usize = 256;

/// Most bytes of an expression in a message.
const QUOTED: usize = 200;

/// The variables of an expression.
const VARIABLES: [&str; 3] = ["object", "oldObject", "request"];

/// Why `spec.match` means nothing.
#[derive(Debug, thiserror::Error)]
pub enum MatchError {
    /// A label selector is not understood.
    #[error("spec.match.{field} is no label selector")]
    Selector {
        /// `namespaceSelector` or `objectSelector`.
        field: &'static str,
        /// What is wrong with it.
        #[source]
        source: ParseExpressionError,
    },
    /// A condition is no CEL expression.
    #[error("spec.match.matchConditions: {name} is no CEL expression: {reason}")]
    Condition {
        /// Name of the condition.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A condition may take too long.
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
        /// Most steps that it may take.
        cost: u64,
    },
    /// All conditions together may take too long.
    #[error(
        "spec.match.matchConditions may take {cost} steps together, and the limit for a policy is \
         {POLICY_LIMIT}, where each list of the request counts as 100 elements; use fewer conditions \
         or fewer loops"
    )]
    Costs {
        /// Most steps that they may take.
        cost: u64,
    },
}

/// Why it cannot be said whether a request concerns a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.match: {name} cannot be judged: {reason}")]
pub struct JudgeError {
    /// `namespaceSelector`, or the name of a condition.
    pub name: String,
    /// Why not.
    pub reason: String,
}

/// What a request is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Labels of its namespace, where they are known.
    pub namespace_labels: Option<&'a Labels>,
    /// What the conditions see.
    pub seen: &'a Seen,
}

/// What the conditions see of a request.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// `object`: the IPUJob; none for Placement.
    pub object: Option<Arc<Value>>,
    /// `oldObject`: the IPUJob as it was; only on update.
    pub old_object: Option<Arc<Value>>,
    /// `request`: what is known of the request itself.
    pub request: Arc<Value>,
}

/// `spec.match`, understood.
#[derive(Debug, Default)]
pub struct Matching {
    namespace: Option<Selector>,
    object: Option<Selector>,
    conditions: Vec<Condition>,
}

#[derive(Debug)]
struct Condition {
    name: String,
    program: Program,
    /// The variables that it reads.
    reads: Vec<&'static str>,
}

impl Matching {
    /// Understands `spec.match`. Blocks while expressions are parsed.
    pub fn new(wanted: Option<&Match>) -> Result<Self, MatchError> {
        let Some(wanted) = wanted else {
            return Ok(Self::default());
        };
        let conditions = wanted.match_conditions.iter();
        let mut costs = 0_u64;
        let conditions = conditions.map(|condition| {
            let (compiled, cost) = compiled(condition)?;
            costs = costs.saturating_add(cost);
            Ok(compiled)
        });
        let matching = Self {
            namespace: selector("namespaceSelector", wanted.namespace_selector.as_ref())?,
            object: selector("objectSelector", wanted.object_selector.as_ref())?,
            conditions: conditions.collect::<Result<_, _>>()?,
        };
        if costs > POLICY_LIMIT {
            return Err(MatchError::Costs { cost: costs });
        }
        Ok(matching)
    }

    /// Whether the label selectors select the request.
    pub fn selects(&self, subject: &Subject<'_>) -> Result<bool, JudgeError> {
        let of_namespace = match (&self.namespace, subject.namespace_labels) {
            (None, _) => true,
            (Some(selector), Some(labels)) => selector.matches(labels),
            (Some(_), None) => {
                return Err(JudgeError {
                    name: "namespaceSelector".to_owned(),
                    reason: "the labels of the namespace are not known".to_owned(),
                });
            }
        };
        let object = subject.seen.object.as_deref();
        let labels = || object.map(labels_of).unwrap_or_default();
        let selector = self.object.as_ref();
        Ok(of_namespace && selector.is_none_or(|selector| selector.matches(&labels())))
    }

    /// Whether there are conditions to judge by, beside the label selectors.
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Whether the conditions hold: one that is false settles it, whatever becomes of the others, as in
    /// Kubernetes' own webhooks. What would take too many steps is not evaluated. Takes up to some tenths
    /// of a second, and more stack than other threads have.
    pub fn judge(&self, seen: &Seen) -> Result<bool, JudgeError> {
        let read = |name: &str| {
            let mut conditions = self.conditions.iter();
            conditions.any(|condition| condition.reads.contains(&name))
        };
        let values: Vec<_> = seen
            .values()
            .into_iter()
            .filter(|(name, _)| read(name))
            .collect();
        let costs = values.iter().map(|(_, value)| reading(value));
        let cost = costs.fold(0, u64::saturating_add);
        let mut rest = POLICY_LIMIT.checked_sub(cost).ok_or_else(|| JudgeError {
            name: self.name(),
            reason: format!(
                "the request is too large for it: reading it takes {cost} steps, and the limit is \
                 {POLICY_LIMIT}"
            ),
        })?;
        let context = context(&values).map_err(|reason| JudgeError {
            name: self.name(),
            reason: sanitize(&reason, REASON),
        })?;
        let variables = Variables::given(values);
        let mut failed = None;
        for Condition { name, program, .. } in &self.conditions {
            let cost = cost::of(program.expression(), &variables);
            let limit = EXPRESSION_LIMIT.min(rest);
            let reason = if cost > limit {
                format!(
                    "it may take {cost} steps for this request, and {limit} of the {EXPRESSION_LIMIT} \
                     for an expression and {POLICY_LIMIT} for a policy are left"
                )
            } else {
                rest -= cost;
                match program.execute(&context) {
                    Ok(CelValue::Bool(true)) => continue,
                    Ok(CelValue::Bool(false)) => return Ok(false),
                    Ok(other) => format!("it is {:?}, and not true or false", other.type_of()),
                    Err(error) => sanitize(&error.to_string(), REASON),
                }
            };
            let name = name.clone();
            failed.get_or_insert(JudgeError { name, reason });
        }
        failed.map_or(Ok(true), Err)
    }

    /// Name of the first condition.
    pub fn name(&self) -> String {
        let first = self.conditions.first();
        first.map_or_else(String::new, |condition| condition.name.clone())
    }
}

impl Seen {
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

/// Steps of handing a value to the library.
fn reading(value: &Value) -> u64 {
    let size = Size::of(value);
    size.values
        .saturating_mul(READING)
        .saturating_add(size.weight())
}

fn selector(
    field: &'static str,
    selector: Option<&LabelSelector>,
) -> Result<Option<Selector>, MatchError> {
    let selector = selector.cloned().map(Selector::try_from).transpose();
    selector.map_err(|source| MatchError::Selector { field, source })
}

/// A condition, and the steps that it may take where nothing is known of the request.
fn compiled(condition: &MatchCondition) -> Result<(Condition, u64), MatchError> {
    let name = condition.name.clone();
    if nests_too_deep(&condition.expression) {
        let reason = format!(
            "it nests deeper than {BRACKETS} brackets or {SIGNS} signs in a row, or has more than \
             {OPERATORS} operators; use several conditions"
        );
        return Err(MatchError::Condition { name, reason });
    }
    let (program, cost) = match read(&condition.expression) {
        Ok(read) => read,
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
    let read = VARIABLES.into_iter();
    let reads = read.filter(|name| references.has_variable(*name)).collect();
    let condition = Condition {
        name,
        program,
        reads,
    };
    Ok((condition, cost))
}

fn read(expression: &str) -> Result<(Program, u64), String> {
    large_stack::run(|| {
        let program = Program::compile(expression).map_err(|error| error.to_string())?;
        let cost = cost::of(program.expression(), &Variables::assumed(VARIABLES));
        Ok((program, cost))
    })?
}

/// Judged by the characters alone, those in texts counted as well: an expression that is refused for
/// what it quotes can be written in two.
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

impl From<JudgeError> for GuestError {
    fn from(error: JudgeError) -> Self {
        Self::Unjudged(error.to_string())
    }
}

#[cfg(test)]
mod tests;
