//! Pure: reads the body of a `/query`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::problem::Fault;

/// A request of `/query`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Question")]
pub struct QueryRequest {
    /// IPUs of the partition: a power of two.
    pub size: u32,
    /// GCDs of the partition, from 1 to its size.
    #[schemars(default = "one")]
    pub gcds: u32,
    /// Namespace of the owner, for placement policies.
    #[schemars(default = "default_namespace")]
    pub namespace: String,
    /// Node selector of the owner's Pods.
    #[schemars(default)]
    pub node_selector: BTreeMap<String, String>,
    /// Number of such partitions that are useful only together, as those of a job with several
    /// instances and a launcher.
    #[schemars(default = "one")]
    pub gang_size: u32,
}

/// Reads a body such as `{"size": 2}`. Unknown fields are ignored, as in Graphcore's proxy.
pub fn read(body: &[u8]) -> Result<QueryRequest, Fault> {
    let text = String::from_utf8_lossy(body);
    let query: Value = serde_json::from_slice(body).map_err(|error| {
        let rule = format!("a JSON object such as {{\"size\": 2}}, but it does not parse: {error}");
        Fault::new("body", &text, &rule)
    })?;
    let Value::Object(fields) = &query else {
        let rule = "a JSON object such as {\"size\": 2}";
        return Err(Fault::new("body", &text, rule));
    };
    let size = size(fields)?;
    Ok(QueryRequest {
        size,
        gcds: gcds(fields, size)?,
        namespace: namespace(fields)?,
        node_selector: node_selector(fields)?,
        gang_size: gang_size(fields)?,
    })
}

fn size(fields: &Map<String, Value>) -> Result<u32, Fault> {
    const RULE: &str = "a power of two, as a number: 1, 2, 4, …";
    let Some(value) = fields.get("size") else {
        return Err(Fault::new("size", "missing", RULE));
    };
    match number(value) {
        Some(size) if size.is_power_of_two() => Ok(size),
        _ => Err(Fault::new("size", &value.to_string(), RULE)),
    }
}

fn gcds(fields: &Map<String, Value>, size: u32) -> Result<u32, Fault> {
    let Some(value) = fields.get("gcds") else {
        return Ok(one());
    };
    match number(value) {
        Some(gcds) if (1..=size).contains(&gcds) => Ok(gcds),
        _ => {
            let rule = format!("a number from 1 to size, which is {size}");
            Err(Fault::new("gcds", &value.to_string(), &rule))
        }
    }
}

fn gang_size(fields: &Map<String, Value>) -> Result<u32, Fault> {
    let Some(value) = fields.get("gangSize") else {
        return Ok(one());
    };
    match number(value) {
        Some(size) if size > 0 => Ok(size),
        _ => {
            let rule = "a number of partitions, from 1 on";
            Err(Fault::new("gangSize", &value.to_string(), rule))
        }
    }
}

fn namespace(fields: &Map<String, Value>) -> Result<String, Fault> {
    match fields.get("namespace") {
        None => Ok(default_namespace()),
        Some(Value::String(name)) if !name.is_empty() => Ok(name.clone()),
        Some(value) => Err(Fault::new(
            "namespace",
            &value.to_string(),
            "the name of a namespace, as a string",
        )),
    }
}

fn node_selector(fields: &Map<String, Value>) -> Result<BTreeMap<String, String>, Fault> {
    const RULE: &str = "an object of node labels, such as {\"ipunode\": \"pod1\"}";
    let Some(value) = fields.get("nodeSelector") else {
        return Ok(BTreeMap::new());
    };
    let Value::Object(labels) = value else {
        return Err(Fault::new("nodeSelector", &value.to_string(), RULE));
    };
    let labels = labels.iter().map(|(key, value)| {
        let text = value.as_str().ok_or_else(|| {
            let field = format!("nodeSelector.{key}");
            Fault::new(&field, &value.to_string(), "a text")
        });
        Ok((key.clone(), text?.to_owned()))
    });
    labels.collect()
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

fn one() -> u32 {
    1
}

fn default_namespace() -> String {
    "default".to_owned()
}
