//! Pure: reports of nodes as text for users.

use jiff::Timestamp;

use super::{NodeReport, UNKNOWN};
use crate::age::age;
use crate::table::grid;

/// What a cell without a value shows.
const NOTHING: &str = "-";

/// The nodes as a table. `is_wide` adds the message.
pub fn table(reports: &[NodeReport], is_wide: bool, now: Timestamp) -> String {
    if reports.is_empty() {
        return "no node has the label of a V-IPU controller, advertises IPUs, or was checked\n"
            .to_owned();
    }
    let mut header = vec!["NODE", "CONTROLLER-LABEL", "IPUS", "READY", "REASON", "AGE"];
    if is_wide {
        header.push("MESSAGE");
    }
    let header = header.into_iter().map(ToOwned::to_owned).collect();
    let row = |report: &NodeReport| {
        let cell = |text: &Option<String>| text.clone().unwrap_or_else(|| NOTHING.to_owned());
        let mut cells = vec![
            report.node.clone(),
            cell(&report.controller_label),
            cell(&report.ipus),
            cell(&report.ready),
            cell(&report.reason),
            cell(&report.since.map(|since| age(since, now))),
        ];
        if is_wide {
            cells.push(cell(&report.message));
        }
        cells
    };
    let lines: Vec<_> = std::iter::once(header)
        .chain(reports.iter().map(row))
        .collect();
    grid(&lines)
}

/// Each node with the results of its checks.
pub fn doctor(reports: &[NodeReport], now: Timestamp) -> String {
    if reports.is_empty() {
        return table(reports, false, now);
    }
    let pages = reports.iter().map(|report| page(report, now));
    pages.collect::<Vec<_>>().join("\n")
}

fn page(report: &NodeReport, now: Timestamp) -> String {
    let node = &report.node;
    let Some(ready) = &report.ready else {
        return format!(
            "{node}: {UNKNOWN}: it was never checked; an admin sets ipuNode.enabled, or names the node in \
             ipuNode.testedNodes and runs helm test\n"
        );
    };
    let since = report
        .since
        .map(|since| format!(" for {}", age(since, now)));
    let reason = report.reason.as_ref().map(|reason| format!(": {reason}"));
    let head = format!(
        "{node}: {ready}{}{}\n",
        since.unwrap_or_default(),
        reason.unwrap_or_default()
    );
    if report.checks.is_empty() {
        let message = report
            .message
            .as_ref()
            .map(|message| format!("  {message}\n"));
        return head + &message.unwrap_or_default();
    }
    let lines = report.checks.iter().map(|check| {
        let outcome = check.outcome.word().to_owned();
        vec![
            format!("  {outcome}"),
            check.check.clone(),
            check.message.clone(),
        ]
    });
    head + &grid(&lines.collect::<Vec<_>>())
}
