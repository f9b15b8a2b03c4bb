//! The check of `helm test` as a file: it has the objects of the chart's template, and its rights
//! suffice.

use std::collections::BTreeMap;

use clap::Parser;
use cluster::kubeconfig;
use ipu_operator::cli::{Arguments, Task};
use ipu_operator::verify::{self, VerifyOptions};
use kube::Client;
use serde_json::{Value, json};

use super::diff::identity;
use super::objects;
use crate::chart::admin::Admin;
use crate::chart::arguments::rendered;
use crate::job_fixture::JobFixture;

/// An object without what only Helm or Argo CD reads.
fn without_tools(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("annotations");
    metadata.remove("labels");
    object
}

#[test]
fn the_file_has_the_objects_of_helm_test() {
    let text = json!(rendered("verify", None)).to_string();
    // The template has the release `ipu-operator` in the namespace `ipu`, and the image of the
    // chart.
    let image = format!("ipu-operator:{}", env!("CARGO_PKG_VERSION"));
    let text = text
        .replace("\"namespace\":\"ipu\"", "\"namespace\":\"ipu-operator\"")
        .replace("--namespace=ipu\"", "--namespace=ipu-operator\"")
        .replace(&image, &format!("registry.example.com/{image}"));
    let template: Vec<Value> = serde_json::from_str(&text).unwrap();
    let template: Vec<Value> = template.into_iter().map(without_tools).collect();
    let mut file: Vec<Value> = objects("verify.yaml")
        .into_iter()
        .map(without_tools)
        .collect();
    let job = file.last_mut().unwrap();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": job["metadata"],
        "spec": job["spec"]["template"]["spec"],
    });
    *job = pod;
    let by_name = |objects: Vec<Value>| -> BTreeMap<String, Value> {
        let objects = objects.into_iter();
        objects.map(|object| (identity(&object), object)).collect()
    };
    assert_eq!(by_name(file), by_name(template));
}

fn options() -> VerifyOptions {
    let job = objects("verify.yaml").pop().unwrap();
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let program = ["ipu-operator".to_owned()].into_iter();
    match Arguments::try_parse_from(program.chain(arguments))
        .unwrap()
        .task
    {
        Task::Verify(options) => options,
        _ => panic!("the Job runs `verify`"),
    }
}

#[tokio::test]
async fn the_rights_in_the_file_suffice_for_the_check() {
    let mut fixture = JobFixture::new("ipu-operator").await;
    let admin = Admin::of("ipu-operator", fixture.kubeconfig.clone());
    let file = format!("{}/../../examples/gitops/verify.yaml", admin.chart());
    admin.kubectl(&["apply", "--filename", &file]).unwrap();
    fixture.start();
    let mut config = kubeconfig::config(&admin.kubeconfig).await.unwrap();
    let account = "system:serviceaccount:ipu-operator:ipu-operator-verify";
    config.auth_info.impersonate = Some(account.to_owned());
    let client = Client::try_from(config).unwrap();
    let check = tokio::spawn(async move {
        let mut printed = Vec::new();
        let ended = verify::run(client, &options(), &mut printed).await;
        ended.map(|()| String::from_utf8(printed).unwrap())
    });
    fixture.partition_ready(0).await;
    fixture.pod_runs("ipu-operator-verify-worker-0").await;
    fixture.pod_ends("ipu-operator-verify-worker-0", 0).await;
    let printed = check.await.unwrap().unwrap();
    assert!(
        printed.ends_with("its partition was released\n"),
        "{printed}"
    );
    fixture.kill().await;
}
