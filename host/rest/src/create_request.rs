//! Pure: reads the body of `POST /partitions`, and builds the requested IPUPartition.

use ipu_api::dns1123::{is_label, is_subdomain};
use ipu_api::ipupartition::{
    IPUPartition, IPUPartitionSpec, OwnerMetadata, PartitionOptions, PartitionOwner,
};
use ipu_api::partition_request::new_partition;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::problem::{Fault, Kind, Problem, shown};
use super::{duplicate_keys, owner_metadata};

/// Rules of fields, for messages.
const RULES: [(&str, &str); 16] = [
    (
        "name",
        "a DNS subdomain: at most 253 small letters, digits, `-` and `.`, with a letter or digit at both ends of each part",
    ),
    (
        "owner",
        "an object with apiVersion, kind, namespace, name and uid",
    ),
    (
        "owner.apiVersion",
        "a group and a version, such as graphcore.ai/v1alpha1",
    ),
    (
        "owner.kind",
        "a kind, such as IPUJob: at most 63 letters and digits, with a letter first",
    ),
    (
        "owner.namespace",
        "the name of a namespace: at most 63 small letters, digits and `-`",
    ),
    (
        "owner.name",
        "the name of the owner: a DNS subdomain of at most 253 characters",
    ),
    (
        "owner.uid",
        "the UID of the owner: 1 to 128 letters, digits and `-`",
    ),
    ("slot", "a number from 0"),
    ("ipus", "a power of two, as a number: 1, 2, 4, …"),
    ("gcds", "a number from 1 to ipus"),
    (
        "options.replicas",
        "a number from 1 that is a multiple of gcds and divides ipus",
    ),
    ("options.gangSize", "a number from 1"),
    (
        "ownerMetadata",
        "an object with labels, annotations and priorityClassName",
    ),
    ("ownerMetadata.labels", "an object of texts"),
    ("ownerMetadata.annotations", "an object of texts"),
    ("ownerMetadata.priorityClassName", "a text"),
];

/// The requested partition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Wanted")]
pub struct CreateRequest {
    /// Name of the IPUPartition. Missing: built from owner and slot, so that a repeated request for
    /// the same slot finds the existing one.
    #[serde(default)]
    pub name: Option<String>,
    /// Owner of the partition. The sweep never deletes partitions of owners of unknown kinds.
    pub owner: PartitionOwner,
    /// Number of the partition among those of its owner, from 0.
    #[serde(default)]
    pub slot: u32,
    /// IPUs: a power of two.
    #[schemars(range(min = 1))]
    pub ipus: u32,
    /// GCDs: how many Pods share the partition, from 1 to `ipus`.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub gcds: u32,
    /// Options of the partition.
    #[serde(default)]
    pub options: PartitionOptions,
    /// Data about the owner for placement policies: at most 64 labels and 64 annotations, each of
    /// at most 1024 bytes.
    #[serde(default)]
    pub owner_metadata: OwnerMetadata,
}

/// Reads a body. The problem names every field that breaks a rule.
pub fn read(body: &[u8]) -> Result<CreateRequest, Problem> {
    let malformed = |faults| Problem::of_request(Kind::Malformed, faults);
    let value = duplicate_keys::parse(body).map_err(|error| {
        let text = String::from_utf8_lossy(body);
        let rule = format!("a JSON object, but it does not parse: {error}");
        malformed(vec![Fault::new("body", &text, &rule)])
    })?;
    let faults = wrong_keys(&value);
    if !faults.is_empty() {
        return Err(malformed(faults));
    }
    let request: CreateRequest = serde_path_to_error::deserialize(&value).map_err(|error| {
        let path = error.path().to_string();
        let found = at(&value, &path).map_or_else(String::new, Value::to_string);
        let rule = rule(&path).map_or_else(|| error.inner().to_string(), str::to_owned);
        malformed(vec![Fault::new(&path, &found, &rule)])
    })?;
    let faults = wrong_values(&request);
    if faults.is_empty() {
        Ok(request)
    } else {
        Err(malformed(faults))
    }
}

/// Builds the IPUPartition.
pub fn object(request: CreateRequest) -> IPUPartition {
    let spec = IPUPartitionSpec {
        owner: request.owner,
        slot: request.slot,
        ipus: request.ipus,
        gcds: request.gcds,
        options: request.options,
        owner_metadata: request.owner_metadata,
        reset_generation: 0,
    };
    let mut partition = new_partition(spec, None);
    partition.metadata.name = request.name.or(partition.metadata.name);
    partition
}

/// The fault of an invalid name of an IPUPartition. A name becomes part of the path of a request to
/// the API server, where `/` and `..` have a meaning.
pub fn wrong_name(name: &str) -> Option<Fault> {
    (!is_subdomain(name)).then(|| fault("name", name))
}

/// The fault of a name that is not UTF-8.
pub fn unreadable_name(text: &str) -> Fault {
    fault("name", text)
}

/// Missing and unknown keys: a misspelt option would be ignored without a message.
fn wrong_keys(value: &Value) -> Vec<Fault> {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let Value::Object(fields) = value else {
        return vec![Fault::new("body", &value.to_string(), "a JSON object")];
    };
    let mut faults = wrong_keys_of::<CreateRequest>(fields, "", &mut generator);
    if let Some(Value::Object(owner)) = fields.get("owner") {
        faults.extend(wrong_keys_of::<PartitionOwner>(
            owner,
            "owner.",
            &mut generator,
        ));
    }
    if let Some(Value::Object(options)) = fields.get("options") {
        faults.extend(wrong_keys_of::<PartitionOptions>(
            options,
            "options.",
            &mut generator,
        ));
    }
    if let Some(Value::Object(metadata)) = fields.get("ownerMetadata") {
        faults.extend(wrong_keys_of::<OwnerMetadata>(
            metadata,
            "ownerMetadata.",
            &mut generator,
        ));
    }
    faults
}

fn wrong_keys_of<T: JsonSchema>(
    fields: &Map<String, Value>,
    prefix: &str,
    generator: &mut SchemaGenerator,
) -> Vec<Fault> {
    let schema: Schema = generator.subschema_for::<T>();
    let known = schema.get("properties").and_then(Value::as_object);
    let known: Vec<&str> = known
        .into_iter()
        .flat_map(Map::keys)
        .map(String::as_str)
        .collect();
    let unknown = fields.keys().filter(|key| !known.contains(&key.as_str()));
    let unknown = unknown.map(|key| {
        let rule = format!("left out; known are {}", known.join(", "));
        Fault::new(&format!("{prefix}{}", shown(key)), "unknown", &rule)
    });
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let missing = required.filter(|key| !fields.contains_key(*key));
    let missing = missing.map(|key| fault(&format!("{prefix}{key}"), "missing"));
    missing.chain(unknown).collect()
}

fn wrong_values(request: &CreateRequest) -> Vec<Fault> {
    let owner = &request.owner;
    let name = request.name.as_deref();
    let options = &request.options;
    // If the IPUs are invalid, the GCDs are not compared with them.
    let are_few = request.gcds <= request.ipus || !request.ipus.is_power_of_two();
    let are_gcds_good = request.gcds > 0 && are_few;
    // The same holds for replicas, which are compared with both.
    let are_comparable = are_gcds_good && request.ipus.is_power_of_two();
    let divides = |replicas: u32| {
        replicas.is_multiple_of(request.gcds) && request.ipus.is_multiple_of(replicas)
    };
    let is_good = |replicas: u32| replicas > 0 && (!are_comparable || divides(replicas));
    let checks = [
        (
            "name",
            name.unwrap_or_default(),
            name.is_none_or(is_subdomain),
        ),
        (
            "owner.apiVersion",
            owner.api_version.as_str(),
            is_api_version(&owner.api_version),
        ),
        ("owner.kind", owner.kind.as_str(), is_kind(&owner.kind)),
        (
            "owner.namespace",
            owner.namespace.as_str(),
            is_label(&owner.namespace),
        ),
        ("owner.name", owner.name.as_str(), is_subdomain(&owner.name)),
        ("owner.uid", owner.uid.as_str(), is_uid(&owner.uid)),
        (
            "ipus",
            &request.ipus.to_string(),
            request.ipus.is_power_of_two(),
        ),
        ("gcds", &request.gcds.to_string(), are_gcds_good),
        (
            "options.replicas",
            &options.replicas.unwrap_or_default().to_string(),
            options.replicas.is_none_or(is_good),
        ),
        ("options.gangSize", "0", options.gang_size != Some(0)),
    ];
    let broken = checks.into_iter().filter(|(_, _, holds)| !holds);
    broken
        .map(|(field, value, _)| fault(field, value))
        .chain(owner_metadata::faults(&request.owner_metadata))
        .collect()
}

fn fault(field: &str, value: &str) -> Fault {
    Fault::new(field, value, rule(field).unwrap_or("given"))
}

fn rule(field: &str) -> Option<&'static str> {
    let mut rules = RULES.iter();
    rules
        .find(|(known, _)| *known == field)
        .map(|(_, rule)| *rule)
}

/// The value at a path such as `owner.name`.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

fn is_api_version(text: &str) -> bool {
    match text.split_once('/') {
        Some((group, version)) => is_subdomain(group) && is_label(version),
        None => is_label(text),
    }
}

fn is_kind(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_uid(text: &str) -> bool {
    let is_of_uids = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=128).contains(&text.len()) && text.bytes().all(is_of_uids)
}

fn one() -> u32 {
    1
}
