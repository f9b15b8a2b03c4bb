//! Pure: a request, as the variables of expressions.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Value as CelValue};
use guest_sdk::types::Operation;
use serde_json::{Value, json};

use crate::names::{NAMESPACE_OBJECT, OBJECT, OLD_OBJECT, REQUEST};

/// One object on its way into the API server.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation.
    pub operation: Operation,
    /// Name of the user.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Whether the object is not stored.
    pub is_dry_run: bool,
    /// Subresource, such as `scale`.
    pub sub_resource: Option<String>,
    /// Namespace of the object.
    pub namespace: String,
    /// Labels of the namespace. `None`: the operator does not know them.
    pub namespace_labels: Option<Vec<(String, String)>>,
    /// The object.
    pub object: Value,
    /// The object as it was before.
    pub old_object: Option<Value>,
}

impl Request {
    /// Adds the variables of expressions. Without known labels, `namespaceObject` is null.
    pub fn add_to(&self, context: &mut Context<'_>) {
        let old = self.old_object.as_ref().unwrap_or(&Value::Null);
        let namespace = self
            .namespace_labels
            .as_ref()
            .map_or(Value::Null, |labels| {
                let labels = labels
                    .iter()
                    .map(|(key, value)| (key.clone(), json!(value)));
                let labels: serde_json::Map<String, Value> = labels.collect();
                json!({"metadata": {"name": self.namespace, "labels": labels}})
            });
        context.add_variable_from_value(OBJECT, to_cel(&self.object));
        context.add_variable_from_value(OLD_OBJECT, to_cel(old));
        context.add_variable_from_value(REQUEST, to_cel(&self.attributes()));
        context.add_variable_from_value(NAMESPACE_OBJECT, to_cel(&namespace));
    }

    /// The fields of `request` that Kubernetes documents, as far as the contract has them.
    fn attributes(&self) -> Value {
        json!({
            "operation": match self.operation {
                Operation::Create => "CREATE",
                Operation::Update => "UPDATE",
            },
            "name": self.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default(),
            "namespace": self.namespace,
            "dryRun": self.is_dry_run,
            "subResource": self.sub_resource.as_deref().unwrap_or_default(),
            "userInfo": {"username": self.user, "groups": self.groups},
        })
    }
}

/// Converts JSON as Kubernetes does: a whole number is an `int`, whereas the library makes a `uint`
/// of it.
fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => number.as_i64().map_or_else(
            || CelValue::Float(number.as_f64().unwrap_or(f64::INFINITY)),
            CelValue::Int,
        ),
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(list) => CelValue::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let entries = fields.iter();
            let map: HashMap<Key, CelValue> = entries
                .map(|(key, value)| (Key::from(key.as_str()), to_cel(value)))
                .collect();
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}
