//! The bound on the steps of an expression.

use std::cell::Cell;

use cel::Program;
use serde_json::json;

use super::*;
use crate::large_stack;

fn cost(expression: &str, object: &Value) -> u64 {
    let estimated = large_stack::run(|| {
        let program = Program::compile(expression).unwrap();
        let variables = Variables::given([("object", object)]);
        of(program.expression(), &variables)
    });
    estimated.unwrap()
}

#[test]
fn a_loop_counts_with_the_length_that_the_list_has() {
    let object = |count: usize| json!({"a": vec![1; count], "b": {"x": 1, "y": 2}});
    for expression in [
        "object.a.all(x, x > 0)",
        "object.a.exists(x, x > 0)",
        "object.a.exists_one(x, x > 0)",
        "object.a.map(x, x + 1).size() > 0",
        "object.a.filter(x, x > 0).all(y, y > 0)",
    ] {
        let (short, long) = (
            cost(expression, &object(10)),
            cost(expression, &object(1_000)),
        );
        assert!((10..600).contains(&short), "{expression}: {short}");
        assert!(
            (60 * short..110 * short).contains(&long),
            "{expression}: {short}, {long}"
        );
    }
    let keys = cost("object.b.all(k, object.b[k] > 0)", &object(0));
    assert!((10..60).contains(&keys), "{keys}");
}

#[test]
fn lists_in_one_another_count_with_their_own_lengths() {
    let containers = |envs: usize| json!({"env": vec![json!({"name": "a"}); envs]});
    let object = json!({"containers": [containers(3), containers(5), containers(0)]});
    let expression = "object.containers.all(c, c.env.all(e, e.name != ''))";
    let found = cost(expression, &object);
    // Three times the longest of them.
    assert!((60..400).contains(&found), "{found}");
}

#[test]
fn what_is_made_longer_by_each_step_counts_with_all_of_it() {
    let doubled = (0..16).fold("'x'".to_owned(), |inner, _| {
        format!("[{inner}].map(s, s + s + s + s)[0]")
    });
    let found = cost(&format!("size({doubled}) > 0"), &json!({}));
    assert!(found > 100_000_000, "{found}");
    let lists = (0..16).fold("[1]".to_owned(), |inner, _| {
        format!("[{inner}].map(s, s + s + s + s)[0]")
    });
    let found = cost(&format!("{lists}.all(x, true)"), &json!({}));
    assert!(found > 1_000_000_000, "{found}");
}

#[test]
fn the_same_value_named_often_is_looked_at_once() {
    let looped = |inner, at| format!("[x{}, x{}].all(x{at}, {inner})", at + 1, at + 1);
    let nested = (0..16).fold("true".to_owned(), looped);
    let nested = nested.replace("x16", "object");
    assert!(cost(&nested, &json!({"a": 1})) > 1 << 16);
}

#[test]
fn regular_expressions_count_with_what_they_compile_to() {
    let object = json!({"name": "a"});
    let of = |pattern: &str| cost(&format!("object.name.matches({pattern})"), &object);
    assert!(of("'^a$'") < 2_000);
    assert!(of(r"'(\\w{100}){100}'") > 300_000);
    assert!(of("object.name") > 300_000, "nothing is known of it");
}

#[test]
fn a_regular_expression_counts_with_the_text_times_its_states() {
    let object = |bytes: usize| json!({"text": "a".repeat(bytes), "pattern": "(a|b?){100}"});
    for pattern in ["'(a|b?){100}'", "object.pattern"] {
        let of = |bytes| cost(&format!("object.text.matches({pattern})"), &object(bytes));
        let (short, long) = (of(1_000), of(1_000_000));
        // 1,100 states, of which four take a step for ten bytes.
        assert!(long - short > 25_000_000, "{pattern}: {short}, {long}");
        assert!(long < 30_000_000, "{pattern}: {long}");
    }
}

#[test]
fn the_length_of_a_text_is_counted_and_that_of_a_list_is_known() {
    let object = json!({"text": "a".repeat(100_000), "list": vec!["a".repeat(100); 1_000]});
    assert!(cost("size(object.text) > 0", &object) > 10_000);
    assert!(cost("object.text.size() > 0", &object) > 10_000);
    assert!(cost("size(object.list) > 0", &object) < 100);
}

#[test]
fn a_text_that_is_not_there_yet_has_a_length() {
    let assumed = |expression: &str| {
        let estimated = large_stack::run(|| {
            let program = Program::compile(expression).unwrap();
            of(program.expression(), &Variables::assumed(["object"]))
        });
        estimated.unwrap()
    };
    assert!(assumed("size(object.text) > 0") > 50);
    let looped = "object.list.all(x, object.text.matches('^(a|b){100}$'))";
    assert!(assumed(looped) > 1_000_000, "{}", assumed(looped));
    let usual = "object.metadata.labels.all(k, k.matches('^[a-z0-9]+$'))";
    assert!(assumed(usual) < 200_000, "{}", assumed(usual));
}

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// The bound holds: a counting function is called no more often than the bound allows.
#[test]
fn no_more_is_done_than_the_bound_says() {
    let object = json!({
        "items": [{"n": [1, 2, 3]}, {"n": [4]}, {"n": []}],
        "map": {"a": [1], "b": [2, 3]},
        "text": "text",
    });
    for expression in [
        "object.items.all(i, i.n.all(x, step(x)))",
        "object.items.map(i, i.n.map(x, step(x))).size() == 3",
        "object.items.filter(i, i.n.exists(x, step(x) && false) || true).all(i, step(i))",
        "object.map.all(k, object.map[k].all(x, step(x)))",
        "(object.items + object.items).all(a, (object.items + [a]).all(b, step(b)))",
        "[object.items, object.items].all(l, l.all(i, i.n.all(x, step(x))))",
        "object.items.exists_one(i, i.n.exists_one(x, step(x)))",
        "(object.text == 'text' ? object.items : [object]).all(x, step(x))",
        "{'a': object.items}['a'].all(x, step(x))",
    ] {
        let steps = large_stack::run(|| {
            let program = Program::compile(expression).unwrap();
            let mut context = cel::Context::default();
            let step = |_: cel::Value| {
                STEPS.set(STEPS.get() + 1);
                true
            };
            context.add_function("step", step).unwrap();
            context.add_variable_from_value("object", cel::to_value(&object).unwrap());
            program.execute(&context).unwrap();
            STEPS.get()
        });
        let (steps, bound) = (steps.unwrap(), cost(expression, &object));
        assert!(steps > 0, "{expression}");
        assert!(bound >= steps, "{expression}: {steps}, {bound}");
    }
}
