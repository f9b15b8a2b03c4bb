//! Pure: the differences between two JSON values, one location after the other. Locations are not
//! stored, because a guest may make many of them below a long key.

use std::fmt::{self, Display, Formatter};
use std::ops::ControlFlow;

use serde_json::Value;

/// The change of a location.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// Its new value.
    Set(&'a Value),
    /// It was removed.
    Removed,
}

/// The path of a location, shown as a JSON pointer.
#[derive(Debug, Default)]
pub struct Path<'a>(Vec<Token<'a>>);

#[derive(Debug)]
enum Token<'a> {
    Key(&'a str),
    Index(usize),
}

impl Path<'_> {
    /// Whether it contains one of these keys.
    pub fn has_any(&self, keys: &[&str]) -> bool {
        let mut tokens = self.0.iter();
        tokens.any(|token| matches!(token, Token::Key(key) if keys.contains(key)))
    }

    /// Maximum number of bytes of the path as a JSON pointer.
    pub fn bytes(&self) -> usize {
        let bytes = self.0.iter().map(|token| match token {
            // Each character may be escaped by two.
            Token::Key(key) => 1 + 2 * key.len(),
            Token::Index(index) => 1 + index.checked_ilog10().unwrap_or_default() as usize + 1,
        });
        bytes.sum()
    }
}

impl Display for Path<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|token| match token {
            Token::Key(key) => {
                write!(formatter, "/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Token::Index(index) => write!(formatter, "/{index}"),
        })
    }
}

/// Visits every location at which `after` differs from `before`, until the visitor stops. Lists are
/// compared element by element.
pub fn each<'a>(
    before: &'a Value,
    after: &'a Value,
    mut visit: impl FnMut(&Path<'a>, Change<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    walk(&mut Path::default(), before, after, &mut visit)
}

fn walk<'a>(
    path: &mut Path<'a>,
    before: &'a Value,
    after: &'a Value,
    visit: &mut impl FnMut(&Path<'a>, Change<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in after {
                step(path, Token::Key(key), before.get(key), Some(value), visit)?;
            }
            let removed = before.iter().filter(|(key, _)| !after.contains_key(*key));
            for (key, value) in removed {
                step(path, Token::Key(key), Some(value), None, visit)?;
            }
            ControlFlow::Continue(())
        }
        (Value::Array(before), Value::Array(after)) => (0..before.len().max(after.len()))
            .try_for_each(|at| {
                let (before, after) = (before.get(at), after.get(at));
                step(path, Token::Index(at), before, after, visit)
            }),
        _ if before == after => ControlFlow::Continue(()),
        _ => visit(path, Change::Set(after)),
    }
}

fn step<'a>(
    path: &mut Path<'a>,
    token: Token<'a>,
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    visit: &mut impl FnMut(&Path<'a>, Change<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    path.0.push(token);
    let flow = match (before, after) {
        (Some(before), Some(after)) => walk(path, before, after, visit),
        (_, Some(after)) => visit(path, Change::Set(after)),
        (_, None) => visit(path, Change::Removed),
    };
    path.0.pop();
    flow
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changes(before: &Value, after: &Value) -> Vec<String> {
        let mut changes = Vec::new();
        let flow = each(before, after, |path, change| {
            assert!(path.bytes() >= path.to_string().len(), "{path}");
            changes.push(match change {
                Change::Set(value) => format!("{path}={value}"),
                Change::Removed => format!("{path}-"),
            });
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
        changes
    }

    #[test]
    fn every_difference_has_its_pointer() {
        let before = json!({"a": 1, "b": [1, 2, {"c": 3}], "x/~y": {}, "same": [1]});
        let after = json!({"a": 2, "b": [1], "x/~y": {"z": null}, "same": [1]});
        assert_eq!(
            changes(&before, &after),
            ["/a=2", "/b/1-", "/b/2-", "/x~1~0y/z=null"]
        );
        assert_eq!(changes(&json!([]), &json!([1, [2]])), ["/0=1", "/1=[2]"]);
        assert_eq!(changes(&json!([]), &json!({})), ["={}"]);
        assert!(changes(&before, &before.clone()).is_empty());
    }

    /// There are as many locations as operations in the patch of the library, so a bound for one
    /// holds for the other.
    #[test]
    fn there_are_as_many_places_as_operations_of_a_patch() {
        let values = [
            json!({"a": {"b": [1, 2, 3]}, "c": null}),
            json!({"a": {"b": [3]}, "d": {"e": 1}}),
            json!({"a": [], "c": [null, {"x": 1}]}),
            json!([]),
        ];
        for before in &values {
            for after in &values {
                let patch = json_patch::diff(before, after);
                assert_eq!(
                    changes(before, after).len(),
                    patch.len(),
                    "{before} {after}"
                );
            }
        }
    }

    #[test]
    fn it_ends_where_the_visitor_breaks_off() {
        let many = json!((0..1_000).collect::<Vec<_>>());
        let mut seen = 0;
        let flow = each(&json!([]), &many, |_, _| {
            seen += 1;
            if seen < 3 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        assert_eq!((flow, seen), (ControlFlow::Break(()), 3));
    }
}
