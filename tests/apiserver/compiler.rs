//! The process that compiles policies, within the memory limit that the chart sets for the container of the
//! controller.

use std::collections::BTreeMap;
use std::fs;

use cluster::cgroups::memory::MemoryCgroup;
use cluster::settings::Settings;
use cluster::wait::{Seen, eventually};
use ipu_api::ipupolicy::{IPUPolicy, IPUPolicyStatus, PolicyPhase};
use ipu_guest_host::digest_of;
use ipu_guest_host::limits::COMPILE_MEMORY;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::{Value, json};
use tests::guests::hostile;

use crate::job::single;
use crate::processes::{Place, RELEASE};

/// The limit of the controller's container, in bytes.
fn limit() -> u64 {
    let checkout = Settings::from_env().unwrap().checkout;
    let values = checkout.join("charts/ipu-operator/values.yaml");
    let values = fs::read_to_string(values).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let limit = values["controller"]["resources"]["limits"]["memory"].as_str();
    let mib = limit.and_then(|limit| limit.strip_suffix("Mi")).unwrap();
    mib.parse::<u64>().unwrap() << 20
}

/// Puts a module into a ConfigMap of the operator's namespace. Returns an IPUPolicy with it.
async fn policy(place: &Place, module: Vec<u8>) -> IPUPolicy {
    let digest = digest_of(&module).to_string();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("modules".to_owned()),
            ..ObjectMeta::default()
        },
        binary_data: Some(BTreeMap::from([(
            "bomb.wasm".to_owned(),
            ByteString(module),
        )])),
        ..ConfigMap::default()
    };
    let maps = Api::<ConfigMap>::namespaced(place.client.clone(), RELEASE);
    maps.create(&PostParams::default(), &map).await.unwrap();
    let policy = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy", "metadata": {"name": "bomb"},
        "spec": {
            "hook": "Validation",
            "module": {"configMap": {"name": "modules", "key": "bomb.wasm"}, "digest": digest},
        },
    });
    serde_json::from_value(policy).unwrap()
}

/// A module whose compilation takes all available memory reaches the compiler's own limit. At the limit of the
/// container, the kernel would end the controller with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_takes_all_memory_while_it_is_compiled_is_refused_and_ends_nothing_else() {
    let name = format!("ipu-operator-compiler-{}", std::process::id());
    let cgroup = MemoryCgroup::make(&name, limit()).unwrap();
    let mut place = Place::new().await;
    place.within(&cgroup);
    let controller = place.controller("controller-0", Vec::new()).await;
    let bomb = policy(&place, hostile::compile_bomb()).await;
    let policies = Api::<IPUPolicy>::all(place.client.clone());
    let made = async || {
        let made = policies.create(&PostParams::default(), &bomb).await;
        Seen::from(made.map_err(|error| error.to_string()))
    };
    eventually("the IPUPolicy is taken", made).await;
    let refused = eventually("the IPUPolicy is refused", async || {
        let status = policies.get("bomb").await.unwrap().status;
        let is_refused = |status: &IPUPolicyStatus| status.phase == PolicyPhase::Refused;
        Seen::when(status.unwrap_or_default(), is_refused)
    });
    let words = format!("compiling it took more than {COMPILE_MEMORY} bytes of memory");
    let message = refused.await.message;
    assert!(message.contains(&words), "{message}");

    let (peak, kills) = (cgroup.peak().unwrap(), cgroup.oom_kills().unwrap());
    // The limit counts the memory that the compiler reserves, and the cgroup the part that it has touched: half or
    // less. The controller alone stays far below this.
    assert!(
        peak > COMPILE_MEMORY / 4,
        "{peak} bytes: the compiler took memory outside of the cgroup"
    );
    assert_eq!(kills, 0, "the kernel has killed for memory at {peak} bytes");
    controller.must_run();
    place.submit(&single("after")).await;
    drop(controller);
}
