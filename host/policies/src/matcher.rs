//! Pure: evaluates `spec.match`: whether a policy matches a request.

mod condition;
mod cost;
mod declared;
mod shape;

use cel::Context;
use ipu_api::ipupolicy::{Hook, Labels, Match};
use ipu_guest_host::GuestError;
use ipu_text::sanitize;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ParseExpressionError, Selector, SelectorExt};
use serde_json::Value;

use self::condition::Condition;
use self::cost::Variables;
pub use self::declared::Undeclared;
use self::shape::Size;
use super::match_input::{MatchInput, NAMESPACE_OBJECT};

/// Cost limit of one expression. The API server has the same limits for the `matchConditions` of
/// webhooks (`PerCallLimit` and `RuntimeCELCostBudgetMatchConditions`).
pub const EXPRESSION_LIMIT: u64 = 1_000_000;
/// Cost limit of all expressions of a policy for one request.
pub const POLICY_LIMIT: u64 = 2_500_000;

/// Cost of passing one value of a request to the library, which copies it into some hundred bytes.
/// The policy limit allows 50,000 values.
const COPY_COST: u64 = 50;

/// Reason why neither `namespaceSelector` nor `namespaceObject` has a value.
const UNKNOWN_LABELS: &str = "the labels of the namespace are not known";

/// Longest reason, in bytes. The library quotes whole objects.
const REASON: usize = 256;

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
    /// A condition has a name that no request has.
    #[error("spec.match.matchConditions: {name} {undeclared}. It is: {expression}")]
    Undeclared {
        /// Name of the condition.
        name: String,
        /// The expression.
        expression: String,
        /// The name, and what to use instead.
        undeclared: Undeclared,
    },
    /// A condition fails for every request.
    #[error(
        "spec.match.matchConditions: {name} cannot be evaluated for a sample request: {reason}; correct the \
         expression. It is: {expression}"
    )]
    Unevaluable {
        /// Name of the condition.
        name: String,
        /// The expression.
        expression: String,
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
    /// Whose fault it is.
    pub fault: Fault,
}

/// The side that keeps `spec.match` from being evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The policy or the object: the same request fails again.
    Content,
    /// The labels of the namespace are not known yet.
    UnknownLabels,
    /// The process is too busy.
    Overload,
}

/// The parts of a request that `spec.match` reads.
#[derive(Clone, Copy, Debug)]
pub struct MatchSubject<'a> {
    /// Labels of its namespace, if known.
    pub namespace_labels: Option<&'a Labels>,
    /// The previous object, on update.
    pub old_object: Option<&'a Value>,
    /// The variables of the conditions.
    pub input: &'a MatchInput,
}

/// The parsed `spec.match`.
#[derive(Debug, Default)]
pub struct Matcher {
    namespace: Option<Selector>,
    object: Option<Selector>,
    conditions: Vec<Condition>,
}

impl Matcher {
    /// Parses `spec.match` of a policy at this hook, and tries its conditions on sample requests.
    /// Blocks.
    pub fn new(hook: Hook, spec: Option<&Match>) -> Result<Self, MatchError> {
        let Some(spec) = spec else {
            return Ok(Self::default());
        };
        let conditions = spec.match_conditions.iter();
        let mut costs = 0_u64;
        let conditions = conditions.map(|condition| {
            let (compiled, cost) = condition::compile(hook, condition)?;
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

    /// Parses the label selectors of `spec.match` alone, for a policy without a usable guest.
    /// Selectors that are invalid select every request, and `onError` decides about it.
    pub fn of_selectors(spec: Option<&Match>) -> Self {
        let of_namespace = spec.and_then(|spec| spec.namespace_selector.as_ref());
        let of_object = spec.and_then(|spec| spec.object_selector.as_ref());
        Self {
            namespace: selector("namespaceSelector", of_namespace).unwrap_or_default(),
            object: selector("objectSelector", of_object).unwrap_or_default(),
            conditions: Vec::new(),
        }
    }

    /// Whether the label selectors select the request. As in the webhooks of Kubernetes, the labels
    /// of the previous object count too: nobody leaves a rule by the update that removes the
    /// selected label.
    pub fn selects(&self, subject: &MatchSubject<'_>) -> Result<bool, EvaluationError> {
        let of_namespace = match (&self.namespace, subject.namespace_labels) {
            (None, _) => true,
            (Some(selector), Some(labels)) => selector.matches(labels),
            (Some(_), None) => {
                return Err(EvaluationError {
                    name: "namespaceSelector".to_owned(),
                    reason: UNKNOWN_LABELS.to_owned(),
                    fault: Fault::UnknownLabels,
                });
            }
        };
        let object = subject.input.object.as_deref();
        let of_object = self.object.as_ref().is_none_or(|selector| {
            let old = subject.old_object.map(labels_of);
            let new = object.map(labels_of).unwrap_or_default();
            selector.matches(&new) || old.is_some_and(|old| selector.matches(&old))
        });
        Ok(of_namespace && of_object)
    }

    /// Whether it has match conditions, beside the label selectors.
    pub fn has_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Whether all conditions are true. One false condition decides, even if others fail, as in the
    /// webhooks of Kubernetes. A condition that exceeds its cost limit fails. Takes up to some
    /// tenths of a second, and more stack than other threads have.
    pub fn evaluate(&self, input: &MatchInput) -> Result<bool, EvaluationError> {
        let values = self.read_values(input);
        let costs = values.iter().map(|(_, value)| copy_cost(value));
        let cost = costs.fold(0, u64::saturating_add);
        let mut remaining = POLICY_LIMIT.checked_sub(cost).ok_or_else(|| EvaluationError {
            name: self.name(),
            reason: format!(
                "the request is too large for it: reading it takes {cost} steps, and the limit is \
                 {POLICY_LIMIT}"
            ),
            fault: Fault::Content,
        })?;
        let context = context(&values).map_err(|reason| EvaluationError {
            name: self.name(),
            reason: sanitize(&reason, REASON),
            fault: Fault::Content,
        })?;
        let variables = Variables::given(values);
        let mut failed = None;
        for condition in &self.conditions {
            let cost = cost::of(condition.program.expression(), &variables);
            let limit = EXPRESSION_LIMIT.min(remaining);
            let evaluated = if condition.reads.contains(&NAMESPACE_OBJECT)
                && input.namespace_object.is_none()
            {
                Err((UNKNOWN_LABELS.to_owned(), Fault::UnknownLabels))
            } else if cost > limit {
                let reason = format!(
                    "it may take {cost} steps for this request, and {limit} of the {EXPRESSION_LIMIT} \
                     for an expression and {POLICY_LIMIT} for a policy are left"
                );
                Err((reason, Fault::Content))
            } else {
                remaining -= cost;
                condition
                    .execute(&context)
                    .map_err(|reason| (reason, Fault::Content))
            };
            match evaluated {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err((reason, fault)) => {
                    failed.get_or_insert(EvaluationError {
                        name: condition.name.clone(),
                        reason,
                        fault,
                    });
                }
            }
        }
        failed.map_or(Ok(true), Err)
    }

    /// Returns the variables that the conditions read.
    fn read_values<'a>(&self, input: &'a MatchInput) -> Vec<(&'static str, &'a Value)> {
        let read = |name: &str| {
            let mut conditions = self.conditions.iter();
            conditions.any(|condition| condition.reads.contains(&name))
        };
        let values = input.values().into_iter();
        values.filter(|(name, _)| read(name)).collect()
    }

    /// Returns the name of the first condition.
    pub fn name(&self) -> String {
        let first = self.conditions.first();
        first.map_or_else(String::new, |condition| condition.name.clone())
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
        match error.fault {
            Fault::Content | Fault::UnknownLabels => Self::MatchFailed(error.to_string()),
            Fault::Overload => Self::MatchBusy(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
