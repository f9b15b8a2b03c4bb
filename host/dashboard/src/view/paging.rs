//! Pure: a part of a long list.

use serde::Serialize;

/// The requested part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Number of skipped rows at the start.
    pub offset: usize,
    /// Most rows.
    pub limit: usize,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed<T> {
    /// The number of rows of the whole list.
    pub total: usize,
    /// Number of skipped rows at the start.
    pub offset: usize,
    /// Most rows.
    pub limit: usize,
    /// The rows.
    pub rows: Vec<T>,
    /// Missing parts of the list, in sentences.
    pub not_shown: Vec<String>,
}

impl Page {
    /// All rows.
    pub const ALL: Self = Self {
        offset: 0,
        limit: usize::MAX,
    };

    /// A part of a list. `row` makes only the rows of this part.
    pub fn of<S, T>(
        self,
        all: &[S],
        not_shown: Vec<String>,
        row: impl FnMut(&S) -> T,
    ) -> Listed<T> {
        let rows = all.iter().skip(self.offset).take(self.limit);
        Listed {
            total: all.len(),
            offset: self.offset,
            limit: self.limit,
            rows: rows.map(row).collect(),
            not_shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_rows_from_its_offset_on() {
        let all = ["a", "b", "c"];
        for (offset, limit, expected) in [
            (0, 2, &["a", "b"][..]),
            (2, 2, &["c"]),
            (3, 2, &[]),
            (usize::MAX, usize::MAX, &[]),
        ] {
            let page = Page { offset, limit };
            let listed = page.of(&all, Vec::new(), |one| *one);
            assert_eq!(listed.rows, expected);
            assert_eq!((listed.total, listed.offset), (3, offset));
        }
    }
}
