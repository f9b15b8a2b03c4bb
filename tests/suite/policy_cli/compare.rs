//! `policy bench` and `policy diff`: comparisons of two components.

use super::{all_complain, failing, policy, text, written};
use crate::wasm::guests;
use tests::guests::hostile;

/// The fuel in a line of the table: the last word.
fn fuel(table: &str, name: &str) -> u64 {
    let line = table.lines().find(|line| line.contains(name)).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

/// The numbers of a line of the table, without its name.
fn numbers(table: &str, name: &str) -> Vec<f64> {
    let line = table.lines().find(|line| line.contains(name));
    let words = line.unwrap_or_default().split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn a_component_is_measured_beside_the_built_in_one() {
    let (_one, liar) = written("liar.wasm", &hostile::placement());
    let folder = text(guests());
    let arguments = [
        "bench",
        text(&liar),
        "--guests-dir",
        folder,
        "--calls",
        "20",
    ];
    let printed = policy(&arguments).unwrap();
    let own = numbers(&printed, "liar.wasm");
    let built_in = numbers(&printed, "serial-walk.wasm");
    assert_eq!((own.len(), built_in.len()), (4, 4), "{printed}");
    for line in [&own, &built_in] {
        assert!(line.iter().all(|number| *number > 0.0), "{printed}");
        assert!(line[0] <= line[1], "p50 is over p99: {printed}");
    }
    assert!(own[3] < built_in[3], "fuel: {printed}");
    let again = policy(&arguments).unwrap();
    for name in ["liar.wasm", "serial-walk.wasm"] {
        assert_eq!(fuel(&again, name), fuel(&printed, name));
    }
    assert!(printed.contains("the first beside it"), "{printed}");
}

#[test]
fn without_a_built_in_one_it_is_measured_alone() {
    let walk = guests().join("serial-walk.wasm");
    let arguments = [
        "bench",
        text(&walk),
        "--guests-dir",
        "/nowhere",
        "--calls",
        "2",
    ];
    let printed = policy(&arguments).unwrap();
    assert!(
        printed.contains("/nowhere/serial-walk.wasm to compare with"),
        "{printed}"
    );
    assert!(!printed.contains("beside it"), "{printed}");
}

#[test]
fn a_failing_component_is_not_measured() {
    let (_one, trapping) = written("trap.wasm", &hostile::validation("unreachable"));
    let object = format!(
        "{{operation: create, object: {{spec: {}}}}}",
        "x".repeat(8192)
    );
    let (_two, request) = written("large.yaml", object.as_bytes());
    let walk = guests().join("serial-walk.wasm");
    let measure = ["bench", text(&trapping), "--request", text(&request)];
    all_complain(&[
        (&measure, &["trap.wasm gave no answer", "the guest trapped"]),
        (
            &["bench", text(&walk), "--against", text(&trapping)],
            &[
                "trap.wasm is no guest",
                "does not implement world placement",
            ],
        ),
        (
            &["bench", "nowhere.wasm"],
            &["nowhere.wasm", "failed to read"],
        ),
    ]);
}

#[test]
fn new_imports_and_exports_are_listed() {
    let (_one, a) = written(
        "a.wasm",
        &hostile::component(
            r#"(component (import "acme:a/a@1.0.0" (instance)) (import "acme:b/b@1.0.0" (instance)))"#,
        ),
    );
    let (_two, b) = written(
        "b.wasm",
        &hostile::component(
            r#"(component
              (import "acme:a/a@1.0.0" (instance))
              (import "wasi:http/outgoing-handler@0.2.0" (instance)))"#,
        ),
    );
    let printed = policy(&["diff", text(&a), text(&b)]).unwrap();
    insta::assert_snapshot!(printed);
    let (again, complaint) = failing(&["diff", text(&a), text(&b), "--exit-code"]);
    assert_eq!(again, printed);
    assert!(
        complaint.contains("do not import and export the same"),
        "{complaint}"
    );
    let (_three, placer) = written("placer.wasm", &hostile::placement());
    let printed = policy(&["diff", text(&a), text(&placer)]).unwrap();
    for part in [
        "world    none → placement",
        "+ export ipu:policy/placer@",
        "- import acme:a",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let printed = policy(&["diff", text(&a), text(&a), "--exit-code"]).unwrap();
    assert!(
        printed.contains("Both import and export the same."),
        "{printed}"
    );
    assert!(printed.contains("(the same file)"), "{printed}");
    let (_four, core) = written("core.wasm", &hostile::component("(module)"));
    all_complain(&[(
        &["diff", text(&a), text(&core)],
        &["core.wasm is no guest", "it is a core module"],
    )]);
}
