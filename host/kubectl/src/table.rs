//! Pure: the use of IPUs as a table, with columns of `kubectl get`.

use crate::top::{By, Row, Usage};

/// Spaces between two columns.
const GAP: usize = 3;

/// The table, with its total and notes. `is_wide` adds columns.
pub fn table(usage: &Usage, is_wide: bool) -> String {
    let mut lines = vec![header(usage.by, is_wide)];
    let rows = usage.rows.iter().chain([&usage.total]);
    lines.extend(rows.map(|row| cells(row, usage.by, is_wide)));
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let widths = lines.iter().filter_map(|line| line.get(column));
        widths.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            row.push_str(cell);
            row.push_str(&" ".repeat(width + GAP - cell.chars().count()));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    for note in &usage.notes {
        text.push_str(note);
        text.push('\n');
    }
    text
}

fn header(by: By, is_wide: bool) -> Vec<String> {
    let first: &[&str] = match by {
        By::Controllers => &["CONTROLLER", "IPUS"],
        By::Namespaces => &["NAMESPACE"],
        By::Jobs => &["NAMESPACE", "JOB"],
    };
    let free: &[&str] = match by {
        By::Controllers => &["FREE"],
        By::Namespaces | By::Jobs => &[],
    };
    let mut all: Vec<&str> = [first, &["USED", "FORMING"], free, &["WAITING"]].concat();
    if is_wide {
        all.push("PARTITIONS");
        if by != By::Controllers {
            all.push("CONTROLLERS");
        }
    }
    all.into_iter().map(ToOwned::to_owned).collect()
}

fn cells(row: &Row, by: By, is_wide: bool) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let mut all = Vec::new();
    if by == By::Jobs {
        all.push(row.namespace.clone().unwrap_or_default());
    }
    all.push(row.name.clone());
    if by == By::Controllers {
        all.push(number(row.capacity));
    }
    all.extend([row.used.to_string(), row.forming.to_string()]);
    if by == By::Controllers {
        all.push(number(row.free));
    }
    all.push(row.waiting.to_string());
    if is_wide {
        all.push(row.partitions.to_string());
        if by != By::Controllers {
            let names: Vec<_> = row.controllers.iter().cloned().collect();
            all.push(names.join(","));
        }
    }
    all
}
