//! Policies are compiled and loaded within the memory limit that the chart sets for the container
//! of the controller.

use std::collections::BTreeMap;
use std::fs;

use cluster::cgroups::memory::MemoryCgroup;
use cluster::settings::Settings;
use cluster::wait::{Seen, eventually};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::{IPUPolicy, IPUPolicyStatus, PolicyPhase};
use ipu_guest_host::limits::{COMPILE_MEMORY, LOADED};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use serde_json::{Value, json};
use tests::guests::hostile;

use crate::job::single;
use crate::processes::{Installation, RELEASE};

/// Bytes of data of a large module: close to the most that an instance may have as memory.
const LARGE: usize = 28 << 20;

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
async fn policy(installation: &Installation, module: Vec<u8>) -> IPUPolicy {
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
    let maps = Api::<ConfigMap>::namespaced(installation.client.clone(), RELEASE);
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

/// A module whose compilation takes all available memory reaches the compiler's own limit. At the
/// limit of the container, the kernel would end the controller with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_takes_all_memory_while_it_is_compiled_is_refused_and_ends_nothing_else() {
    let name = format!("ipu-operator-compiler-{}", std::process::id());
    let cgroup = MemoryCgroup::make(&name, limit()).unwrap();
    let mut installation = Installation::new().await;
    installation.limit_memory(&cgroup);
    let controller = installation.controller("controller-0", Vec::new()).await;
    let bomb = policy(&installation, hostile::compile_bomb()).await;
    let policies = Api::<IPUPolicy>::all(installation.client.clone());
    let made = async || {
        let made = policies.create(&PostParams::default(), &bomb).await;
        Seen::from(made)
    };
    eventually("the IPUPolicy is accepted", made).await;
    let refused = eventually("the IPUPolicy is refused", async || {
        let status = policies.get("bomb").await.unwrap().status;
        let is_refused = |status: &IPUPolicyStatus| status.phase == PolicyPhase::Refused;
        Seen::when(status.unwrap_or_default(), is_refused)
    });
    let words = format!("compiling it took more than {COMPILE_MEMORY} bytes of memory");
    let message = refused.await.message;
    assert!(message.contains(&words), "{message}");

    let (peak, kills) = (cgroup.peak().unwrap(), cgroup.oom_kills().unwrap());
    // The limit counts the memory that the compiler reserves. The cgroup counts the part that it
    // has touched: half or less. The controller alone stays far below this.
    assert!(
        peak > COMPILE_MEMORY / 4,
        "{peak} bytes: the compiler took memory outside of the cgroup"
    );
    assert_eq!(kills, 0, "the kernel has killed a process at {peak} bytes");
    controller.must_run();
    installation.submit(&single("after")).await;
    drop(controller);
}

/// Without space in the folder for compiled modules, all code stays in memory: two large modules
/// fit, and others are refused.
#[tokio::test(flavor = "multi_thread")]
async fn large_modules_whose_code_stays_in_memory_are_refused_and_end_nothing_else() {
    let name = format!("ipu-operator-loaded-{}", std::process::id());
    let cgroup = MemoryCgroup::make(&name, limit()).unwrap();
    let mut installation = Installation::new().await;
    installation.limit_memory(&cgroup);
    let made = ['a', 'b', 'c', 'd'].map(|letter| {
        let module = hostile::large(letter, LARGE);
        (format!("large-{letter}.wasm"), module)
    });
    installation.add_guests(&made);
    // A file is where the folder of the code would be.
    let folder = installation.compiled("controller-0");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("compiled"), "").unwrap();
    let controller = installation.controller("controller-0", Vec::new()).await;
    let policies = Api::<IPUPolicy>::all(installation.client.clone());
    for (file, module) in &made {
        let policy = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
            "metadata": {"name": file.trim_end_matches(".wasm")},
            "spec": {
                "hook": "Validation",
                "module": {"image": {"file": file}, "digest": digest_of(module).to_string()},
            },
        });
        let policy: IPUPolicy = serde_json::from_value(policy).unwrap();
        eventually("the IPUPolicy is accepted", async || {
            let taken = policies.create(&PostParams::default(), &policy).await;
            Seen::from(taken)
        })
        .await;
    }
    let decided = [PolicyPhase::Active, PolicyPhase::Refused];
    let statuses = eventually("each policy is active or refused", async || {
        let found = policies.list(&ListParams::default()).await.unwrap();
        let statuses = found.into_iter().map(|one| one.status.unwrap_or_default());
        let statuses: Vec<_> = statuses.collect();
        Seen::when(statuses, |all| {
            all.len() == made.len() && all.iter().all(|one| decided.contains(&one.phase))
        })
    })
    .await;
    let mut refused = statuses;
    refused.retain(|one| one.phase == PolicyPhase::Refused);
    assert_eq!(refused.len(), made.len() - 2, "{refused:?}");
    for status in refused {
        let message = status.message;
        let words = format!("all modules may take {LOADED}");
        assert!(message.contains(&words), "{message}");
        let advice = "make space there";
        assert!(message.contains(advice), "{message}");
    }
    let (peak, kills) = (cgroup.peak().unwrap(), cgroup.oom_kills().unwrap());
    assert_eq!(kills, 0, "the kernel has killed a process at {peak} bytes");
    controller.must_run();
    installation.submit(&single("after")).await;
    drop(controller);
}
