//! Pure: where IPU-hours went, as tables for users.

use super::{Goodput, GoodputBy, Row, UnallocatedRow};
use crate::table::grid;

/// The tables, the time that they cover, and what they lack. `is_wide` adds the sum of each row.
pub fn text(report: &Goodput, is_wide: bool) -> String {
    let first = match report.by {
        GoodputBy::Namespace => rows("NAMESPACE", report, is_wide),
        GoodputBy::Controller => rows("CONTROLLER", report, is_wide),
        GoodputBy::State => states(report),
    };
    let mut text = format!("{}\n{}\n", grid(&first), grid(&unallocated(report)));
    for line in covered(report).into_iter().chain(report.notes.clone()) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn rows(first: &str, report: &Goodput, is_wide: bool) -> Vec<Vec<String>> {
    let mut header = vec![
        first,
        "RUNNING",
        "FORMING",
        "WAITING-PODS",
        "RESETTING",
        "IDLE",
        "RELEASING",
    ];
    if is_wide {
        header.push("TOTAL");
    }
    header.push("GOODPUT");
    let header: Vec<String> = header.into_iter().map(ToOwned::to_owned).collect();
    let all = report.rows.iter().chain([&report.total]);
    std::iter::once(header)
        .chain(all.map(|row| cells(row, is_wide)))
        .collect()
}

fn cells(row: &Row, is_wide: bool) -> Vec<String> {
    let mut cells = vec![
        row.name.clone(),
        number(row.running),
        number(row.forming),
        number(row.waiting_pods),
        number(row.resetting),
        number(row.idle_allocated),
        number(row.releasing),
    ];
    if is_wide {
        cells.push(number(row.total));
    }
    cells.push(row.goodput.map_or_else(|| "-".to_owned(), percent));
    cells
}

fn states(report: &Goodput) -> Vec<Vec<String>> {
    let header = ["STATE", "IPU-HOURS", "SHARE"].map(ToOwned::to_owned);
    let rows = report
        .states
        .iter()
        .map(|one| vec![one.state.to_owned(), number(one.hours), percent(one.share)]);
    std::iter::once(header.to_vec()).chain(rows).collect()
}

fn unallocated(report: &Goodput) -> Vec<Vec<String>> {
    let header = [
        "CONTROLLER",
        "FREE",
        "STRANDED",
        "UNHEALTHY",
        "OTHERS",
        "UNKNOWN",
    ];
    let cells = |row: &UnallocatedRow| {
        vec![
            row.name.clone(),
            number(row.free),
            number(row.stranded),
            number(row.unhealthy),
            number(row.others),
            number(row.unknown),
        ]
    };
    let all = report.unallocated.iter().chain([&report.unallocated_total]);
    std::iter::once(header.map(ToOwned::to_owned).to_vec())
        .chain(all.map(cells))
        .collect()
}

/// Returns the time that the tables cover, and its unknown part.
fn covered(report: &Goodput) -> Vec<String> {
    let Some((from, until)) = report.from.zip(report.until) else {
        return vec!["No accounting covers this time.".to_owned()];
    };
    let unknown = report.states.iter().find(|one| one.state == "unknown");
    let unknown = unknown.map_or(0.0, |one| one.share);
    let mut lines = vec![
        format!("IPU-hours from {from} until {until}, in whole periods."),
        format!(
            "{} of them are unknown: the operator did not see them.",
            percent(unknown)
        ),
    ];
    if let Some(goodput) = report.total.goodput {
        lines.push(format!(
            "Orchestration goodput: in {} of the IPU-hours in partitions, a Pod was ready. What it computed is not known.",
            percent(goodput)
        ));
    }
    lines
}

fn number(hours: f64) -> String {
    format!("{hours:.1}")
}

fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}
