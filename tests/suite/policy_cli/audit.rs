//! `policy audit` before it reads a cluster: which component it calls, and for which policies.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::Folder;

fn policy(module: &Value, change: impl FnOnce(&mut Value)) -> String {
    let mut policy = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
        "metadata": {"name": "rule"},
        "spec": {"hook": "Validation", "module": module},
    });
    change(&mut policy);
    policy.to_string()
}

#[test]
fn a_policy_that_cannot_be_audited_is_refused_with_the_remedy() {
    let folder = Folder::new();
    let image = json!({"image": {"file": "validation.wasm"}});
    let map = json!({"configMap": {"name": "modules", "key": "rule.wasm"}});
    let other = json!({"digest": format!("sha256:{}", "0".repeat(64))});
    folder.write("no-policy.yaml", "kind: IPUJob");
    folder.write("map.json", policy(&map, |_| {}));
    folder.write(
        "defaulting.json",
        policy(&image, |policy| {
            policy["spec"]["hook"] = json!("Defaulting");
        }),
    );
    folder.write(
        "unmatched.json",
        policy(&image, |policy| {
            let conditions = json!([{"name": "mine", "expression": "team == 'a'"}]);
            policy["spec"]["match"] = json!({"matchConditions": conditions});
        }),
    );
    folder.write("other.json", policy(&other, |_| {}));
    assert_snapshot!(folder.transcript(&[
        "audit ./missing.wasm",
        "audit ./serial-walk.wasm",
        "audit ./no-policy.yaml",
        "audit ./map.json",
        "audit ./defaulting.json --guests-dir ./",
        "audit ./unmatched.json --guests-dir ./",
        "audit ./other.json",
        "audit ./map.json --module ./serial-walk.wasm",
    ]));
    let (_, error) = folder.run("audit ./other.json --module ./validation.wasm");
    let error = error.unwrap();
    assert!(
        error.contains("the IPUPolicy rule demands sha256:0"),
        "{error}"
    );
}
