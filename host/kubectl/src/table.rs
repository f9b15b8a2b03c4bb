//! Pure: the use of IPUs as a table, with columns of `kubectl get`.

use crate::top::{By, Row, Usage};

/// Spaces between two columns.
const GAP: usize = 3;

/// The table, with its total and notes. `is_wide` adds columns.
pub fn table(usage: &Usage, is_wide: bool) -> String {
    let has_objects = usage.total.others.is_some();
    let mut lines = vec![header(usage.by, has_objects, is_wide)];
    let rows = usage.rows.iter().chain([&usage.total]);
    lines.extend(rows.map(|row| cells(row, usage.by, has_objects, is_wide)));
    let mut text = grid(&lines);
    for note in &usage.notes {
        text.push_str(note);
        text.push('\n');
    }
    text
}

/// Lines of cells as columns.
pub fn grid(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let widths = lines.iter().filter_map(|line| line.get(column));
        widths.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            row.push_str(cell);
            row.push_str(&" ".repeat(width + GAP - cell.chars().count()));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// The columns. `has_objects`: the V-IPU controllers have objects, which contain more than nodes
/// do.
fn header(by: By, has_objects: bool, is_wide: bool) -> Vec<String> {
    let first: &[&str] = match by {
        By::Controllers if has_objects => &["CONTROLLER", "STATUS", "IPUS"],
        By::Controllers => &["CONTROLLER", "IPUS"],
        By::Namespaces => &["NAMESPACE"],
        By::Jobs => &["NAMESPACE", "JOB"],
    };
    let free: &[&str] = match by {
        By::Controllers if has_objects => &["OTHERS", "FREE", "LARGEST-FREE"],
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

fn cells(row: &Row, by: By, has_objects: bool, is_wide: bool) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let mut all = Vec::new();
    if by == By::Jobs {
        all.push(row.namespace.clone().unwrap_or_default());
    }
    all.push(row.name.clone());
    if by == By::Controllers && has_objects {
        all.push(row.status.clone().unwrap_or_default());
    }
    if by == By::Controllers {
        all.push(number(row.capacity));
    }
    all.extend([row.used.to_string(), row.forming.to_string()]);
    if by == By::Controllers && has_objects {
        all.push(number(row.others));
    }
    if by == By::Controllers {
        all.push(number(row.free));
    }
    if by == By::Controllers && has_objects {
        all.push(number(row.largest_free));
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
