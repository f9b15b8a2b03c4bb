//! Pure: whether a request concerns a policy.

use cel::{Context, Program, Value as CelValue};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ParseExpressionError, Selector, SelectorExt};
use serde_json::Value;

use crate::api::ipupolicy::{Labels, Match, MatchCondition};

/// Brackets in one another, `!` and `-` in a row, and operators of all kinds that an expression may
/// have: the library reads and evaluates what is in one another on the stack, and a stack that
/// overflows ends the process.
const BRACKETS: usize = 16;
const SIGNS: usize = 4;
const OPERATORS: usize = 150;

/// Bytes of the stack on which an expression is read and judged; only what is used of it is ever there.
const LARGE_STACK: usize = 256 << 20;

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
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// Labels of its namespace, where they are known.
    pub namespace_labels: Option<&'a Labels>,
    /// `object`: the IPUJob; none for Placement.
    pub object: Option<&'a Value>,
    /// `oldObject`: the IPUJob as it was; only on update.
    pub old_object: Option<&'a Value>,
    /// `request`: what is known of the request itself.
    pub request: &'a Value,
}

/// `spec.match`, understood.
#[derive(Debug, Default)]
pub struct Matching {
    namespace: Option<Selector>,
    object: Option<Selector>,
    conditions: Vec<(String, Program)>,
}

impl Matching {
    /// Understands `spec.match`.
    pub fn new(wanted: Option<&Match>) -> Result<Self, MatchError> {
        let Some(wanted) = wanted else {
            return Ok(Self::default());
        };
        let conditions = wanted.match_conditions.iter().map(compiled);
        Ok(Self {
            namespace: selector("namespaceSelector", wanted.namespace_selector.as_ref())?,
            object: selector("objectSelector", wanted.object_selector.as_ref())?,
            conditions: conditions.collect::<Result<_, _>>()?,
        })
    }

    /// Whether this request concerns the policy. As in Kubernetes' own webhooks, one condition that is
    /// false settles it, whatever becomes of the others.
    pub fn concerns(&self, subject: &Subject<'_>) -> Result<bool, JudgeError> {
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
        let labels = || subject.object.map(labels_of).unwrap_or_default();
        let is_selected = of_namespace
            && self
                .object
                .as_ref()
                .is_none_or(|selector| selector.matches(&labels()));
        if !is_selected || self.conditions.is_empty() {
            return Ok(is_selected);
        }
        on_a_large_stack(|| self.judged(subject)).unwrap_or_else(|reason| {
            let name = self.conditions[0].0.clone();
            Err(JudgeError { name, reason })
        })
    }

    fn judged(&self, subject: &Subject<'_>) -> Result<bool, JudgeError> {
        let mut failed = None;
        let context = context(subject).map_err(|reason| JudgeError {
            name: self.conditions[0].0.clone(),
            reason,
        })?;
        for (name, program) in &self.conditions {
            let reason = match program.execute(&context) {
                Ok(CelValue::Bool(true)) => continue,
                Ok(CelValue::Bool(false)) => return Ok(false),
                Ok(other) => format!("it is {:?}, and not true or false", other.type_of()),
                Err(error) => error.to_string(),
            };
            let name = name.clone();
            failed.get_or_insert(JudgeError { name, reason });
        }
        failed.map_or(Ok(true), Err)
    }
}

fn selector(
    field: &'static str,
    selector: Option<&LabelSelector>,
) -> Result<Option<Selector>, MatchError> {
    let selector = selector.cloned().map(Selector::try_from).transpose();
    selector.map_err(|source| MatchError::Selector { field, source })
}

fn compiled(condition: &MatchCondition) -> Result<(String, Program), MatchError> {
    let name = condition.name.clone();
    if nests_too_deep(&condition.expression) {
        let reason = format!(
            "it nests deeper than {BRACKETS} brackets or {SIGNS} signs in a row, or has more than \
             {OPERATORS} operators; use several conditions"
        );
        return Err(MatchError::Condition { name, reason });
    }
    match read(&condition.expression) {
        Ok(program) => Ok((name, program)),
        Err(reason) => Err(MatchError::Condition { name, reason }),
    }
}

fn read(expression: &str) -> Result<Program, String> {
    on_a_large_stack(|| Program::compile(expression))?.map_err(|error| error.to_string())
}

/// Runs the library where what nests in an expression cannot overflow the stack.
fn on_a_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let working = std::thread::Builder::new()
            .stack_size(LARGE_STACK)
            .spawn_scoped(scope, work);
        let worked = working.map_err(|error| error.to_string())?.join();
        worked.map_err(|_| "the library that reads and judges it panicked".to_owned())
    })
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

fn context<'a>(subject: &Subject<'_>) -> Result<Context<'a, 'a>, String> {
    let mut context = Context::default();
    let null = Value::Null;
    for (name, value) in [
        ("object", subject.object.unwrap_or(&null)),
        ("oldObject", subject.old_object.unwrap_or(&null)),
        ("request", subject.request),
    ] {
        let value = cel::to_value(value).map_err(|error| error.to_string())?;
        context.add_variable_from_value(name, value);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matching(wanted: Value) -> Result<Matching, MatchError> {
        Matching::new(Some(&serde_json::from_value(wanted).unwrap()))
    }

    fn concerns(wanted: Value) -> Result<bool, JudgeError> {
        let labels = Labels::from([("team".to_owned(), "vision".to_owned())]);
        let object =
            json!({"metadata": {"labels": {"size": "large"}}, "spec": {"jobInstances": 3}});
        let request = json!({"operation": "CREATE", "namespace": "research"});
        matching(wanted).unwrap().concerns(&Subject {
            namespace_labels: Some(&labels),
            object: Some(&object),
            old_object: None,
            request: &request,
        })
    }

    fn condition(expression: &str) -> Value {
        json!({"matchConditions": [{"name": "c", "expression": expression}]})
    }

    #[test]
    fn everything_must_agree() {
        let team = |team: &str| json!({"namespaceSelector": {"matchLabels": {"team": team}}});
        let size = |operator: &str| {
            json!({"objectSelector": {"matchExpressions": [
                {"key": "size", "operator": operator, "values": ["large"]},
            ]}})
        };
        for (wanted, expected) in [
            (json!({}), true),
            (team("vision"), true),
            (team("speech"), false),
            (size("In"), true),
            (size("NotIn"), false),
            (condition("object.spec.jobInstances > 2"), true),
            (condition("request.namespace == 'other'"), false),
            (condition("oldObject == null"), true),
            (condition("!has(object.spec.launcher)"), true),
            (condition("request.operation in ['CREATE', 'UPDATE']"), true),
        ] {
            assert_eq!(concerns(wanted.clone()), Ok(expected), "{wanted}");
        }
    }

    #[test]
    fn one_condition_that_is_false_settles_it_whatever_becomes_of_the_others() {
        let both = |second: &str| {
            json!({"matchConditions": [
                {"name": "broken", "expression": "object.spec.nothing.at.all"},
                {"name": "other", "expression": second},
            ]})
        };
        assert_eq!(concerns(both("false")), Ok(false));
        assert_eq!(concerns(both("true")).unwrap_err().name, "broken");
        assert!(concerns(condition("'yes'")).is_err());
    }

    #[test]
    fn what_is_no_expression_is_told() {
        let error = matching(condition("object.spec ==")).unwrap_err();
        assert!(
            error.to_string().contains("c is no CEL expression"),
            "{error}"
        );
    }

    #[test]
    fn an_expression_as_deep_as_it_may_be_ends_nothing_but_itself() {
        let nested = |open: &str, close: &str, times: usize| {
            format!("{}true{}", open.repeat(times), close.repeat(times))
        };
        for (deep, is_read) in [
            (nested("(", ")", 510), false),
            (nested("!", "", 1_020), false),
            (nested("[", "]", 510), false),
            ("1+".repeat(500) + "1 > 0", false),
            ("object".to_owned() + &".a".repeat(500), false),
            (nested("(", ")", BRACKETS), true),
            (nested("!", "", SIGNS), true),
            ("1+".repeat(OPERATORS - 1) + "1 > 0", true),
            ("object".to_owned() + &".a".repeat(OPERATORS), true),
            ("true ? true : ".repeat(OPERATORS / 3) + "true", true),
            (
                "[1].all(x, ".repeat(BRACKETS) + "true" + &")".repeat(BRACKETS),
                true,
            ),
        ] {
            assert!(deep.len() <= 1_024);
            // In a thread whose stack is as small as those of the operator.
            let judged = std::thread::Builder::new()
                .stack_size(2 << 20)
                .spawn(move || {
                    let matching = matching(condition(&deep)).ok()?;
                    let subject = Subject {
                        namespace_labels: None,
                        object: Some(&Value::Null),
                        old_object: None,
                        request: &Value::Null,
                    };
                    Some(matching.concerns(&subject).is_ok())
                });
            let judged = judged.unwrap().join().expect("it is judged");
            assert_eq!(judged.is_some(), is_read);
        }
    }
}
