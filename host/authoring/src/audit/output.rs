//! Pure: a report as a table, as JSON, or as the objects of policy reports.

use clap::ValueEnum;
use serde_json::{Value, json};

use super::policy_report::{self, Api};
use super::report::{Counts, Finding, Line, Report, Unlisted};
use super::served::Served;

/// Spaces between two columns.
const GAP: usize = 3;

/// Forms of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A line for each violation.
    Table,
    /// One JSON object.
    Json,
    /// A `PolicyReport` of wgpolicyk8s.io/v1alpha2 for each namespace, as YAML.
    Policyreport,
    /// A `Report` of openreports.io/v1alpha1 for each namespace, as YAML.
    Openreports,
}

/// Formats a report.
pub(super) fn rendered(report: &Report, format: Format) -> String {
    match format {
        Format::Table => table(report),
        Format::Json => format!("{:#}\n", as_json(report)),
        Format::Policyreport => reports(report, Api::WgPolicy),
        Format::Openreports => reports(report, Api::OpenReports),
    }
}

fn table(report: &Report) -> String {
    let header = ["NAMESPACE/NAME", "KIND", "FIELD", "MESSAGE"].map(str::to_owned);
    let rows: Vec<_> = report.lines.iter().map(cells).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        text.push_str(&grid(&[&[header], rows.as_slice()].concat()));
    }
    for line in notes(report) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn cells(line: &Line) -> [String; 4] {
    let object = &line.object;
    let message = match line.finding {
        Finding::Violation => line.message.clone(),
        Finding::Failure => format!("no answer: {}", line.message),
    };
    [
        format!("{}/{}", object.namespace, object.name),
        object.kind.to_owned(),
        line.field.clone().unwrap_or_else(|| "-".to_owned()),
        message,
    ]
}

/// Rows of cells as columns.
fn grid(rows: &[[String; 4]]) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; 4] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width + GAP - cell.chars().count()));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The audited namespaces, the lists that cannot be read, the objects that are not judged, and the
/// summary.
fn notes(report: &Report) -> Vec<String> {
    let mut notes: Vec<String> = report.audited.note().into_iter().collect();
    notes.extend(report.unlisted.iter().map(not_audited));
    let only_at_updates = report.total().only_at_updates;
    if only_at_updates > 0 {
        notes.push(format!(
            "only at updates: not judged: {only_at_updates} of the objects not matched, for which spec.match calls the \
             guest at updates alone"
        ));
    }
    notes.push(summary(report));
    notes
}

fn not_audited(unlisted: &Unlisted) -> String {
    let resource = unlisted.resource;
    match &unlisted.namespace {
        Some(namespace) => {
            format!(
                "not audited: {resource} in namespace {namespace}, which this user may not list"
            )
        }
        None => format!(
            "not audited: {resource} of all namespaces, because this user may list neither them nor the namespaces; name \
             namespaces with --namespace"
        ),
    }
}

fn summary(report: &Report) -> String {
    let total = report.total();
    let Counts {
        allowed,
        refused,
        not_matched,
        failed,
        ..
    } = total;
    format!(
        "{} objects: {refused} would be refused, {allowed} allowed, {not_matched} not matched, {failed} without an answer \
         of the guest",
        total.objects()
    )
}

fn as_json(report: &Report) -> Value {
    let of = |finding: Finding| {
        let lines = report.lines.iter();
        let lines = lines.filter(move |line| line.finding == finding);
        lines.map(line_json).collect::<Vec<_>>()
    };
    let unlisted = report
        .unlisted
        .iter()
        .map(|unlisted| json!({"resource": unlisted.resource, "namespace": unlisted.namespace}));
    let namespaces = match &report.audited {
        Served::Namespaces(names) => Some(names),
        Served::Everywhere | Served::Unknown => None,
    };
    let total = report.total();
    json!({
        "policy": report.policy,
        "digest": report.digest,
        "violations": of(Finding::Violation),
        "failures": of(Finding::Failure),
        "notListed": unlisted.collect::<Vec<_>>(),
        "namespaces": namespaces,
        "summary": {
            "objects": total.objects(),
            "refused": total.refused,
            "allowed": total.allowed,
            "notMatched": total.not_matched,
            "onlyAtUpdates": total.only_at_updates,
            "failed": total.failed,
        },
    })
}

fn line_json(line: &Line) -> Value {
    let object = &line.object;
    let mut json = json!({
        "apiVersion": object.api_version,
        "kind": object.kind,
        "namespace": object.namespace,
        "name": object.name,
        "uid": object.uid,
        "message": line.message,
    });
    if let Some(field) = &line.field {
        json["field"] = json!(field);
    }
    json
}

/// The reports as documents of one file that `kubectl apply` takes. The notes are comments.
fn reports(report: &Report, api: Api) -> String {
    let mut text = String::new();
    for object in policy_report::objects(report, api) {
        let yaml = serde_saphyr::to_string(&object).expect("a value that was built here is YAML");
        text.push_str("---\n");
        text.push_str(&yaml);
    }
    for line in notes(report) {
        text.push_str("# ");
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn a_table_has_a_line_for_each_violation() {
        assert_snapshot!(rendered(&report(), Format::Table));
    }

    #[test]
    fn a_report_without_a_finding_is_its_summary() {
        let text = rendered(&Report::default(), Format::Table);
        let expected = "0 objects: 0 would be refused, 0 allowed, 0 not matched, 0 without an answer of the guest\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_has_all_fields() {
        assert_snapshot!(rendered(&report(), Format::Json));
    }

    #[test]
    fn policy_reports_are_documents_of_yaml() {
        assert_snapshot!(rendered(&report(), Format::Policyreport));
        let open = rendered(&report(), Format::Openreports);
        assert!(
            open.contains("apiVersion: openreports.io/v1alpha1\nkind: Report\n"),
            "{open}"
        );
    }
}
