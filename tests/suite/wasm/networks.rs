//! Networks of the release: from the arguments that the chart passes to the template that the
//! component completes.

use clap::Parser;
use guest_defaulting::network::{self, Settings};
use ipu_api::guest::admission::Defaulting;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::BUILT_IN;
use ipu_operator::cli::{Arguments, Task};
use serde_json::{Value, json};

use super::{create, open, options};

/// The arguments of `networks_test.yaml` of the chart.
const ARGUMENTS: [&str; 7] = [
    "ipu-operator",
    "controller",
    "--namespace=ipu",
    "--fullname=ipu-operator",
    "--launcher-image=ipu-operator",
    r#"--network-presets={"rdma":{"attachment":"ipu/rdma-net","resource":"rdma/rdma_shared_device_a"}}"#,
    "--worker-network=rdma",
];

fn settings() -> Value {
    match Arguments::try_parse_from(ARGUMENTS).unwrap().task {
        Task::Controller(options) => options.guests(),
        _ => panic!("the arguments are those of the controller"),
    }
}

#[tokio::test]
async fn arguments_of_the_chart_give_workers_their_network() {
    let settings = settings();
    let mut options = options(&[Hook::Defaulting]);
    options.settings = settings.clone();
    let policies = open(options).await;
    let containers = json!([{"name": "training", "image": "a"}]);
    let job = json!({
        "metadata": {"name": "mnist"},
        "spec": {"workers": {"template": {"spec": {"containers": containers}}}},
    });
    let admission = create();
    let served = policies.default_object(&BUILT_IN, &admission, &job, None);
    let Defaulting::Defaulted(served) = served.await.unwrap().answer else {
        panic!("the job is complete");
    };
    let native = guest_defaulting::defaults::apply(job).unwrap().object;
    let settings = Settings::parse(&settings.to_string()).unwrap();
    let native = network::apply(native, None, &settings).unwrap();
    assert_eq!(served.object, native);
    let template = &served.object["spec"]["workers"]["template"];
    let annotations = &template["metadata"]["annotations"];
    assert_eq!(annotations[network::ATTACHMENTS_ANNOTATION], "ipu/rdma-net");
}

#[tokio::test]
async fn unknown_network_is_refused_by_name() {
    let mut options = options(&[Hook::Defaulting]);
    options.settings = settings();
    let policies = open(options).await;
    let job = json!({
        "metadata": {"name": "mnist", "annotations": {network::NETWORK_ANNOTATION: "other"}},
        "spec": {},
    });
    let admission = create();
    let served = policies.default_object(&BUILT_IN, &admission, &job, None);
    let Defaulting::Refused { violations } = served.await.unwrap().answer else {
        panic!("no network has this name");
    };
    let message = "\"other\" is no network of the operator's release; use one of: rdma, none";
    assert_eq!(violations[0].message, message);
}
