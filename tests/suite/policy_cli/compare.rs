//! `policy bench` and `policy diff`: comparisons of two components.

use insta::assert_snapshot;
use tests::guests::hostile;

use super::{Folder, assert_says};

/// The numbers of a line of the table: p50, p99, memory and fuel.
fn numbers(table: &str, name: &str) -> [f64; 4] {
    let line = table.lines().find(|line| line.contains(name));
    let words = line.unwrap_or_default().split_whitespace();
    let numbers: Vec<_> = words.filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn a_component_is_measured_beside_the_built_in_one() {
    let folder = Folder::new();
    folder.write("liar.wasm", hostile::placement());
    let line = "bench ./liar.wasm --guests-dir ./ --calls 20";
    let (printed, again) = (folder.policy(line), folder.policy(line));
    let [liar, walk] = ["./liar.wasm", "serial-walk.wasm"].map(|name| {
        let [p50, p99, memory, fuel] = numbers(&printed, name);
        assert!(p50 > 0.0 && p50 <= p99 && memory > 0.0, "{printed}");
        assert!(
            (numbers(&again, name)[3] - fuel).abs() < 0.5,
            "{printed}{again}"
        );
        fuel
    });
    assert!(0.0 < liar && liar < walk, "fuel: {printed}");
    assert_says(&printed, &["the first beside it"]);
    let alone = folder.policy("bench ./serial-walk.wasm --guests-dir /nowhere --calls 2");
    assert_says(&alone, &["/nowhere/serial-walk.wasm to compare with"]);
    assert!(!alone.contains("beside it"), "{alone}");
}

#[test]
fn new_imports_and_exports_are_listed() {
    let folder = Folder::new();
    let a =
        r#"(component (import "acme:a/a@1.0.0" (instance)) (import "acme:b/b@1.0.0" (instance)))"#;
    folder.write("a.wasm", hostile::component(a));
    let b = a.replace("acme:b/b@1.0.0", "wasi:http/outgoing-handler@0.2.0");
    folder.write("b.wasm", hostile::component(&b));
    folder.write("placer.wasm", hostile::placement());
    assert_snapshot!(folder.transcript(&[
        "diff ./a.wasm ./b.wasm",
        "diff ./a.wasm ./b.wasm --exit-code",
        "diff ./a.wasm ./placer.wasm",
        "diff ./a.wasm ./a.wasm --exit-code",
    ]));
    assert_says(
        &folder.policy("diff ./a.wasm ./a.wasm"),
        &["(the same file)"],
    );
}
