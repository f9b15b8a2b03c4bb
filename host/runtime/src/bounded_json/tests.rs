//! Texts within a budget, and the rules that refuse others.

use super::{BoundedJsonError, Budget, measure, parse};
use serde_json::json;

const MIB: usize = 1 << 20;

/// A hostile review: its tree takes 70 times its bytes.
fn many_objects(bytes: usize) -> Vec<u8> {
    let elements = vec![r#"{"":0}"#; bytes / 7].join(",");
    format!(r#"{{"a":[{elements}]}}"#).into_bytes()
}

#[test]
fn what_fits_is_read_as_it_is() {
    let text = br#"{"a": [1, -2, 0.5, null, true, "b\n\u00e4"], "c": {"d": {}, "e": []}}"#;
    let expected = json!({"a": [1, -2, 0.5, null, true, "b\n\u{e4}"], "c": {"d": {}, "e": []}});
    let budget = Budget::of_memory(4_096);
    assert_eq!(parse(text, budget).unwrap(), expected);
    let object = measure(text, budget).unwrap().object().unwrap();
    assert_eq!(Some(&object), expected.as_object());
}

#[test]
fn what_would_take_too_much_memory_is_refused_by_that_rule() {
    let keys: Vec<_> = (0..MIB).map(|number| format!("\"{number}\":0")).collect();
    let escaped = "\\n".repeat(4 * MIB);
    for (what, text) in [
        ("many objects", many_objects(8 * MIB)),
        ("many zeros", format!("[{}0]", "0,".repeat(4 * MIB)).into()),
        ("many empty objects", format!("[{}0]", "{},".repeat(2 * MIB)).into()),
        ("many arrays", format!("[{}0]", "[0],".repeat(2 * MIB)).into()),
        ("many keys", format!("{{{}}}", keys.join(",")).into()),
        ("a long string", format!("\"{}\"", "a".repeat(64 * MIB)).into()),
        ("a long key", format!("{{\"{}\":0}}", "a".repeat(64 * MIB)).into()),
        ("a long string with escapes", format!("[\"{escaped}\",\"{escaped}\",\"{escaped}\",\"{escaped}\",\"{escaped}\",\"{escaped}\"]").into()),
    ] {
        let limit = 32 * MIB;
        let refused = parse(&text, Budget::of_memory(limit));
        assert!(
            matches!(refused, Err(BoundedJsonError::Memory { limit: named }) if named == limit),
            "{what}"
        );
    }
}

#[test]
fn the_levels_are_counted() {
    let nested = |open: &str, levels: usize, close: &str| {
        format!("{}0{}", open.repeat(levels), close.repeat(levels)).into_bytes()
    };
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let budget = Budget::of_memory(MIB);
        assert!(parse(&nested(open, 100, close), budget).is_ok());
        for levels in [101, 2 * MIB] {
            let text = nested(open, levels, close);
            let refused = measure(&text, budget);
            let limit = budget.depth;
            assert!(
                matches!(refused, Err(BoundedJsonError::Depth { limit: named }) if named == limit)
            );
        }
    }
}

#[test]
fn a_text_within_a_key_of_the_parser_is_not_read() {
    let text = br#"{"$serde_json::private::RawValue":"[{\"\":0}]"}"#;
    let refused = parse(text, Budget::of_memory(MIB));
    assert!(matches!(refused, Err(BoundedJsonError::ReservedKey)));
}

#[test]
fn invalid_json_and_other_values_are_not_objects() {
    let budget = Budget::of_memory(MIB);
    for text in ["", "{", "[1,]", "{}{}", "\"\u{1}\"", "nul", "[[", "1e999"] {
        let refused = measure(text.as_bytes(), budget);
        assert!(
            matches!(refused, Err(BoundedJsonError::NotJson(_))),
            "{text}"
        );
    }
    let refused = parse(&[b'"', 0xff, b'"'], budget);
    assert!(matches!(refused, Err(BoundedJsonError::NotJson(_))));
    let refused = measure(b"[]", budget).unwrap().object();
    assert!(matches!(refused, Err(BoundedJsonError::NotJson(_))));
}
