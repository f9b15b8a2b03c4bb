//! Pure: `crds/REFERENCE.md`, every field of every kind as the definitions have it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};

/// Introduction of the document.
const INTRODUCTION: &str = "\
# Every field

Generated from the definitions in this folder; do not edit. `kubectl explain ipujob.spec --recursive` shows the same
for the cluster that it asks.

- **Type**: a type with a capital letter is Kubernetes' own; `[]` is a list; a map has keys of your own.
- **Rules**: the API server itself checks them, whether the operator runs or not. The webhooks check more (sizes, names,
  fields that exclude each other): [rules, names and environment](../examples/docs/fields.md).
- **Since**: `alpha-5`, `1.0.3` and `1.1.0` are versions of Graphcore's operator. `Graphcore` means that the field was in
  1.2.0, and its first version is not known. `0.1.0` and `0.2.0` are versions of this operator.
";

/// Fields with a type of Kubernetes, which the documents of Kubernetes describe, by the end of
/// their path.
const OF_KUBERNETES: [(&str, &str); 7] = [
    ("workers.template", "PodTemplateSpec"),
    ("launcher.env", "[]EnvVar"),
    ("launcher.resources", "ResourceRequirements"),
    ("namespaceSelector", "LabelSelector"),
    ("objectSelector", "LabelSelector"),
    ("active.spec", "as `spec`"),
    ("previous.spec", "as `spec`"),
];

/// First version of each field, by kind, part and path. An entry covers the fields below it that no
/// earlier one covers.
const SINCE: [(&str, &str); 49] = [
    ("IPUJob.spec.activeDeadlineSeconds", OURS),
    ("IPUJob.spec.cleanPodPolicy", GRAPHCORE),
    ("IPUJob.spec.interactive", GRAPHCORE),
    ("IPUJob.spec.ipusPerJobInstance", "1.0.3"),
    ("IPUJob.spec.ipusPerModelReplica", "alpha-5"),
    ("IPUJob.spec.jobInstances", "1.0.3"),
    ("IPUJob.spec.launcher.resources", "0.2.0"),
    ("IPUJob.spec.launcher.serviceAccountName", "0.2.0"),
    ("IPUJob.spec.launcher", GRAPHCORE),
    ("IPUJob.spec.managedBy", OURS),
    ("IPUJob.spec.modelReplicas", "alpha-5"),
    ("IPUJob.spec.modelReplicasPerWorker", "1.0.3"),
    ("IPUJob.spec.restartPolicy", GRAPHCORE),
    ("IPUJob.spec.suspend", OURS),
    ("IPUJob.spec.ttlSecondsAfterFinished", OURS),
    ("IPUJob.spec.workerPerJobInstance", "1.0.3"),
    ("IPUJob.spec.workers", GRAPHCORE),
    ("IPUJob.spec.workers.failurePolicy", "0.2.0"),
    ("IPUJob.spec.workersPerJobInstance", "1.1.0"),
    ("IPUJob.status.accounting", "0.2.0"),
    ("IPUJob.status.admission", "0.2.0"),
    ("IPUJob.status.automaticResets", OURS),
    ("IPUJob.status.completionTime", GRAPHCORE),
    ("IPUJob.status.conditions", GRAPHCORE),
    ("IPUJob.status.currentReplicas", GRAPHCORE),
    ("IPUJob.status.desiredReplicas", GRAPHCORE),
    ("IPUJob.status.iPUPartitionCreated", GRAPHCORE),
    ("IPUJob.status.lastMessage", GRAPHCORE),
    ("IPUJob.status.lastReconcileTime", GRAPHCORE),
    ("IPUJob.status.launcherStatus", GRAPHCORE),
    ("IPUJob.status.observedGeneration", OURS),
    ("IPUJob.status.restartCount", GRAPHCORE),
    ("IPUJob.status.run", OURS),
    ("IPUJob.status.run.rejections", "0.2.0"),
    ("IPUJob.status.run.starts", "0.2.0"),
    ("IPUJob.status.selector", OURS),
    ("IPUJob.status.sessionEndTime", OURS),
    ("IPUJob.status.startTime", GRAPHCORE),
    ("IPUJob.status.workersStatus", GRAPHCORE),
    ("IPUPartition.spec.options.avoidControllers", "0.2.0"),
    ("IPUPartition.spec.options.scheduling", "0.2.0"),
    ("IPUPartition.status.attempts[].exhausted", "0.2.0"),
    ("IPUPartition.status.firstIpu", "0.2.0"),
    ("IPUPartition", OURS),
    ("IPUPolicy.spec.untilActive", "0.2.0"),
    ("IPUPolicy", OURS),
    ("IPUPolicy.status.existing", "0.2.0"),
    ("VIPUController", "0.2.0"),
    ("IPUAccounting", "0.2.0"),
];

/// Fields that were in 1.2.0 of Graphcore's operator, and whose first version is not known.
const GRAPHCORE: &str = "Graphcore";

/// First version of this operator.
const OURS: &str = "0.1.0";

/// The whole document.
pub(super) fn render(definitions: &[CustomResourceDefinition]) -> String {
    let kinds = definitions.iter().map(kind);
    std::iter::once(INTRODUCTION.to_owned())
        .chain(kinds)
        .collect()
}

fn kind(definition: &CustomResourceDefinition) -> String {
    let (spec, version) = (&definition.spec, &definition.spec.versions[0]);
    let schema = version.schema.as_ref();
    let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
    let schema = schema.expect("every version has a schema");
    let kind = &spec.names.kind;
    let about = one_line(schema.description.as_deref().unwrap_or_default());
    let names = spec.names.short_names.iter().flatten();
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    let mut text = format!(
        "\n## {kind}\n\n{about}\n\n`{}`, version `{}`, short name {}, scope {}. {}\n",
        definition.metadata.name.as_deref().unwrap_or_default(),
        version.name,
        names.join(", "),
        spec.scope,
        columns(version),
    );
    for part in ["spec", "status"] {
        let Some(part_schema) = schema.properties.iter().flatten().find(|p| p.0 == part) else {
            continue;
        };
        let rows = Rows::of(kind, part, part_schema.1);
        let part = format!(
            "\n### {kind} {part}\n\n{}\n\n| field | type | default | rules | what it is | since |\n\
             | --- | --- | --- | --- | --- | --- |\n{}\n",
            one_line(part_schema.1.description.as_deref().unwrap_or_default()),
            rows.lines.join("\n"),
        );
        text.push_str(&part);
    }
    let whole = schema.x_kubernetes_validations.iter().flatten();
    for rule in whole {
        let said = rule.message.as_deref().unwrap_or(&rule.rule);
        text.push_str(&["\nOf the whole object: ", said, ".\n"].concat());
    }
    text
}

fn columns(version: &CustomResourceDefinitionVersion) -> String {
    let columns = version.additional_printer_columns.iter().flatten();
    let columns: Vec<_> = columns
        .map(|column| {
            let wide = if column.priority.unwrap_or_default() > 0 {
                ", wide"
            } else {
                ""
            };
            let name = column.name.to_uppercase();
            format!("{name} (`{}`{wide})", column.json_path)
        })
        .collect();
    format!("Columns: NAME, {}.", columns.join(", "))
}

/// The rows of `spec` or `status`.
struct Rows<'a> {
    kind: &'a str,
    part: &'a str,
    /// The rules in CEL, with paths that begin at the part.
    validations: &'a [ValidationRule],
    lines: Vec<String>,
}

impl<'a> Rows<'a> {
    fn of(kind: &'a str, part: &'a str, schema: &'a JSONSchemaProps) -> Self {
        let validations = schema.x_kubernetes_validations.as_deref();
        let mut rows = Self {
            kind,
            part,
            validations: validations.unwrap_or_default(),
            lines: Vec::new(),
        };
        rows.add("", schema);
        rows
    }

    /// A row for each field below `path`, in the order of their names, and those below each after
    /// it.
    fn add(&mut self, path: &str, schema: &JSONSchemaProps) {
        let required = schema.required.as_deref().unwrap_or_default();
        for (name, field) in schema.properties.iter().flatten() {
            let path = format!("{path}.{name}");
            let known = OF_KUBERNETES
                .iter()
                .find(|(end, _)| path.ends_with(&format!(".{end}")));
            let (type_, below) = known.map_or_else(
                || type_and_below(field),
                |(_, type_)| ((*type_).to_owned(), None),
            );
            let mut rules = rules(field);
            if required.contains(name) {
                rules.insert(0, "required".to_owned());
            }
            rules.extend(self.messages(&path));
            self.lines.push(format!(
                "| `{}` | {type_} | {} | {} | {} | {} |",
                path.trim_start_matches('.'),
                default(field),
                rules.join("; "),
                one_line(field.description.as_deref().unwrap_or_default()),
                since(&format!("{}.{}{path}", self.kind, self.part)),
            ));
            if let Some((suffix, below)) = below {
                self.add(&format!("{path}{suffix}"), below);
            }
        }
    }

    /// The description of a field by the rules in CEL.
    fn messages(&self, path: &str) -> impl Iterator<Item = String> {
        let of_the_field = |rule: &&ValidationRule| rule.field_path.as_deref() == Some(path);
        let rules = self.validations.iter().filter(of_the_field);
        rules.map(|rule| one_line(rule.message.as_deref().unwrap_or(&rule.rule)))
    }
}

/// The name of a field's type and, if it has fields, the separator before them.
fn type_and_below(field: &JSONSchemaProps) -> (String, Option<(&'static str, &JSONSchemaProps)>) {
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &field.items {
        if is_condition(item) {
            return ("[]Condition".to_owned(), None);
        }
        let (of, _) = type_and_below(item);
        return (format!("[]{of}"), Some(("[]", item)));
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &field.additional_properties {
        let (of, _) = type_and_below(value);
        return (format!("map of {of}"), Some((".*", value)));
    }
    if field.x_kubernetes_int_or_string == Some(true) {
        return ("integer or percentage".to_owned(), None);
    }
    let name = field.type_.as_deref().unwrap_or("any");
    match field.format.as_deref() {
        Some("date-time") => ("time".to_owned(), None),
        _ => (
            name.to_owned(),
            field.properties.is_some().then_some(("", field)),
        ),
    }
}

/// Whether it is the condition of Kubernetes' API conventions.
fn is_condition(item: &JSONSchemaProps) -> bool {
    let of_ours = |(name, _): (&String, _)| name == "lastUpdateTime";
    let fields = item.properties.iter().flatten();
    let has_time = |(name, _): (&String, _)| name == "lastTransitionTime";
    fields.clone().any(has_time) && !fields.clone().any(of_ours)
}

fn default(field: &JSONSchemaProps) -> String {
    field
        .default
        .as_ref()
        .map_or_else(String::new, |default| format!("`{}`", default.0))
}

fn rules(field: &JSONSchemaProps) -> Vec<String> {
    let number = |what: &str, bound: Option<f64>| bound.map(|bound| format!("{what} {bound}"));
    let count = |what: &str, bound: Option<i64>| bound.map(|bound| format!("{what} {bound}"));
    let values = field.enum_.as_ref().map(|values| {
        let values: Vec<_> = values.iter().map(|value| word(&value.0)).collect();
        format!("one of {}", values.join(", "))
    });
    let pattern = field.pattern.as_ref();
    [
        values,
        number("at least", field.minimum),
        number("at most", field.maximum),
        count("shortest", field.min_length),
        count("longest", field.max_length),
        count("fewest", field.min_items),
        count("most", field.max_items),
        pattern.map(|pattern| format!("matches `{}`", pattern.replace('|', "\\|"))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn word(value: &serde_json::Value) -> String {
    value
        .as_str()
        .map_or_else(|| format!("`{value}`"), |text| format!("`{text}`"))
}

/// The first version of a field. Empty without an entry, which a test reports.
fn since(path: &str) -> &'static str {
    let covers = |entry: &str| {
        path.strip_prefix(entry)
            .is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
    };
    let known = SINCE.iter().filter(|(entry, _)| covers(entry));
    let known = known.max_by_key(|(entry, _)| entry.len());
    known.map_or("", |(_, version)| version)
}

/// A text for a cell of a table.
fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::{SINCE, render, since};

    /// The rows of the document by kind, part and path, as in `SINCE`.
    fn rows(document: &str) -> Vec<(String, &str)> {
        let mut part = String::new();
        let mut rows = Vec::new();
        for line in document.lines() {
            if let Some(heading) = line.strip_prefix("### ") {
                part = heading.replace(' ', ".");
            } else if let Some((field, _)) = line
                .strip_prefix("| `")
                .and_then(|row| row.split_once("` |"))
            {
                rows.push((format!("{part}.{field}"), line));
            }
        }
        rows
    }

    #[test]
    fn every_field_has_a_first_version() {
        let document = render(&all());
        let rows = rows(&document);
        assert!(!rows.is_empty(), "no row of a field found");
        for (path, row) in rows {
            let version = since(&path);
            assert!(!version.is_empty(), "SINCE has no entry for {path}");
            assert!(row.ends_with(&format!("| {version} |")), "{row}");
        }
    }

    #[test]
    fn every_entry_of_the_first_versions_is_that_of_a_field() {
        let document = render(&all());
        let rows = rows(&document);
        for (entry, _) in SINCE {
            let whole_kind = format!("{entry}.");
            let of_it = |path: &str| path == entry || path.starts_with(&whole_kind);
            let found = rows.iter().any(|(path, _)| of_it(path));
            assert!(found, "no field {entry}");
        }
    }
}
