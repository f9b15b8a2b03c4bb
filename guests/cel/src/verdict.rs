//! Pure: the validations that a request fails.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Value};
use guest_sdk::types::Violation;

use crate::expression::{Expression, Failure};
use crate::names::{NAMESPACE_OBJECT, VARIABLES};
use crate::request::Request;
use crate::semantics;
use crate::settings::{Settings, Validation};

/// Longest message that an expression makes, in bytes. An object could otherwise make the answer so
/// large that the host refuses it, and `onError` would decide.
const MADE: usize = 1024;

/// Returns a violation for each validation that is not true. An expression that cannot be evaluated
/// refuses the object, as a ValidatingAdmissionPolicy with `failurePolicy: Fail` does: a tenant
/// could otherwise evade the rule with an object for which it fails.
pub fn violations(settings: &Settings, request: &Request) -> Vec<Violation> {
    let evaluator = Evaluator::new(settings, request);
    let validations = settings.validations.iter().enumerate();
    let failed = validations.filter_map(|(index, validation)| {
        Some(Violation {
            field: validation.field_path.clone(),
            message: evaluator.message(index, validation)?,
        })
    });
    failed.collect()
}

/// The variables of one request.
struct Evaluator<'a> {
    context: Context<'static>,
    /// Variables that cannot be evaluated. Only expressions that read one fail.
    failed: HashMap<&'a str, Failure>,
    /// Whether the labels of the namespace are missing, and a variable reads them.
    lacks_namespace: bool,
    lacks_variables: bool,
    namespace: &'a str,
}

impl<'a> Evaluator<'a> {
    fn new(settings: &'a Settings, request: &'a Request) -> Self {
        let mut context = semantics::context();
        request.add_to(&mut context);
        let lacks_namespace = request.namespace_labels.is_none();
        let mut values: HashMap<Key, Value> = HashMap::new();
        let mut failed = HashMap::new();
        context.add_variable_from_value(VARIABLES, map(&values));
        for variable in &settings.variables {
            match variable.expression.evaluate(&context) {
                Ok(value) => values.insert(Key::from(variable.name.as_str()), value),
                Err(failure) => {
                    failed.insert(variable.name.as_str(), failure);
                    continue;
                }
            };
            context.add_variable_from_value(VARIABLES, map(&values));
        }
        let mut variables = settings.variables.iter();
        Self {
            context,
            failed,
            lacks_namespace,
            lacks_variables: lacks_namespace
                && variables.any(|variable| variable.expression.reads(NAMESPACE_OBJECT)),
            namespace: &request.namespace,
        }
    }

    /// Returns the message about a validation that is not true.
    fn message(&self, index: usize, validation: &Validation) -> Option<String> {
        let expression = &validation.expression;
        match self.evaluate(expression) {
            Ok(Value::Bool(true)) => None,
            Ok(Value::Bool(false)) => Some(self.of_rule(validation)),
            Ok(other) => Some(format!(
                "validations[{index}] is {}, and must be true or false; ask the admin to correct the expression {}",
                other.type_of(),
                expression.quoted()
            )),
            Err(reason) => Some(format!(
                "validations[{index}] cannot be evaluated: {reason}. The expression is: {}",
                expression.quoted()
            )),
        }
    }

    /// Returns the message of the rule itself.
    fn of_rule(&self, validation: &Validation) -> String {
        let made = validation.message_expression.as_ref();
        let made = made.and_then(|expression| match self.evaluate(expression) {
            Ok(Value::String(text)) if !text.trim().is_empty() && text.len() <= MADE => {
                Some(text.to_string())
            }
            _ => None,
        });
        let fixed = || validation.message.clone();
        made.or_else(fixed)
            .unwrap_or_else(|| format!("failed expression: {}", validation.expression.quoted()))
    }

    fn evaluate(&self, expression: &Expression) -> Result<Value, String> {
        let lacks_labels = (self.lacks_namespace && expression.reads(NAMESPACE_OBJECT))
            || (self.lacks_variables && expression.reads(VARIABLES));
        if lacks_labels {
            return Err(format!(
                "the labels of namespace {} are not known yet; try again",
                self.namespace
            ));
        }
        let failure = match expression.evaluate(&self.context) {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        let Some(key) = &failure.missing_key else {
            return Err(failure.reason);
        };
        Err(match self.failed.get(key.as_str()) {
            Some(cause) if expression.reads(VARIABLES) => {
                format!("variables.{key} has no value: {}", cause.reason)
            }
            _ => format!(
                "{}; test a field that can be missing with has() first",
                failure.reason
            ),
        })
    }
}

fn map(values: &HashMap<Key, Value>) -> Value {
    Value::Map(Map {
        map: Arc::new(values.clone()),
    })
}

#[cfg(test)]
mod tests;
