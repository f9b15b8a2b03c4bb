//! Webhooks that follow IPUPolicies, an admin who applies policies, and a second replica.

use std::collections::BTreeMap;
use std::path::Path;

use cluster::wait::{Seen, eventually};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::{Hook, IPUPolicy, IPUPolicyStatus, PolicyPhase};
use ipu_guest_host::GuestHost;
use ipu_policies::active_policies::ActivePolicies;
use ipu_runtime::lease::LeadershipStatus;
use ipu_runtime::release::{Process, RequiredKeys};
use ipu_runtime::scope::Conflicts;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use release::guests;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::webhook::fixture::{Owned, Webhooks, release};

/// The test's own webhooks, whose process follows IPUPolicies, and a user who applies policies.
pub(super) struct Fixture {
    pub(super) webhooks: Owned,
    pub(super) client: Client,
}

impl Fixture {
    pub(super) async fn start() -> Self {
        Self::of(Webhooks::start().await)
    }

    /// A release that requires these keys for modules.
    pub(super) async fn start_requiring(keys: RequiredKeys) -> Self {
        Self::of(Webhooks::start_requiring(keys).await)
    }

    fn of(webhooks: Owned) -> Self {
        let client = webhooks.client();
        Self { webhooks, client }
    }

    pub(super) fn policies(&self) -> Api<IPUPolicy> {
        Api::all(self.client.clone())
    }

    /// Puts modules into the ConfigMap `modules`. Returns the digest of each.
    pub(super) async fn modules(&self, modules: &[(&str, Vec<u8>)]) -> Vec<String> {
        let of = |(name, bytes): &(&str, Vec<u8>)| ((*name).to_owned(), ByteString(bytes.clone()));
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some("modules".to_owned()),
                ..ObjectMeta::default()
            },
            binary_data: Some(modules.iter().map(of).collect::<BTreeMap<_, _>>()),
            ..ConfigMap::default()
        };
        let api = Api::<ConfigMap>::default_namespaced(self.client.clone());
        let at_once = DeleteParams::default();
        if api.get_opt("modules").await.unwrap().is_some() {
            api.delete("modules", &at_once).await.unwrap();
        }
        api.create(&PostParams::default(), &map).await.unwrap();
        let digests = modules
            .iter()
            .map(|(_, bytes)| digest_of(bytes).to_string());
        digests.collect()
    }

    pub(super) async fn apply(&self, name: &str, spec: Value) -> Result<IPUPolicy, kube::Error> {
        let policy = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
            "metadata": {"name": name}, "spec": spec,
        });
        let force = PatchParams::apply("an-admin").force();
        self.policies()
            .patch(name, &force, &Patch::Apply(&policy))
            .await
    }

    /// Returns the status once it `is_so`.
    pub(super) async fn once(
        &self,
        name: &str,
        what: &str,
        is_so: impl Fn(&IPUPolicyStatus) -> bool,
    ) -> IPUPolicyStatus {
        eventually(&format!("the IPUPolicy {name} is {what}"), async || {
            let policy = self.policies().get(name).await.unwrap();
            Seen::when(policy.status.unwrap_or_default(), &is_so)
        })
        .await
    }

    /// Returns the status once the desired version has this phase.
    pub(super) async fn once_in(&self, name: &str, phase: PolicyPhase) -> IPUPolicyStatus {
        let generation = self.policies().get(name).await.unwrap().metadata.generation;
        self.once(name, &format!("{phase:?}"), |status| {
            status.phase == phase && Some(status.observed_generation) == generation
        })
        .await
    }

    /// Creates a job with this number of IPUs in a dry run. Returns the result.
    pub(super) async fn ask(&self, ipus: u32) -> Result<Vec<String>, String> {
        let made = self.webhooks.create(&job(ipus)).await;
        let name = format!("of-{ipus}");
        if made.is_ok() {
            let jobs = self.webhooks.jobs();
            // No controller would remove the finalizer.
            let released = json!({"metadata": {"finalizers": null}});
            let (released, nobody) = (Patch::Merge(released), PatchParams::default());
            jobs.patch(&name, &nobody, &released).await.unwrap();
            jobs.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        made.map(|made| made.warnings)
            .map_err(|status| status.message)
    }

    /// Waits until a job with this number of IPUs is refused with these words, or admitted.
    pub(super) async fn once_answered(&self, ipus: u32, words: Option<&str>) {
        let what = format!("the answer to a job of {ipus} IPUs is {words:?}");
        eventually(&what, async || {
            Seen::when(self.ask(ipus).await, |asked| match (asked, words) {
                (Err(error), Some(words)) => error.contains(words),
                (asked, words) => asked.is_ok() && words.is_none(),
            })
        })
        .await
        .ok();
    }
}

pub(super) fn job(ipus: u32) -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
        "metadata": {"name": format!("of-{ipus}")},
        "spec": {
            "jobInstances": 1, "ipusPerJobInstance": ipus.to_string(),
            "workers": {"template": {"spec": {"containers": [{"name": "x", "image": "x"}]}}},
        },
    })
}

/// A job for which hostile guests return hostile answers.
pub(super) fn large_job() -> Value {
    let mut large = job(2);
    large["metadata"]["annotations"] = json!({"long": "x".repeat(5_000)});
    large
}

pub(super) fn built_in(file: &str) -> Vec<u8> {
    std::fs::read(guests::build().unwrap().join(file)).unwrap()
}

/// The built-in validation guest with another limit.
pub(super) fn at_most(ipus: u32) -> Value {
    json!({
        "hook": "Validation",
        "module": {"image": {"file": "validation.wasm"}},
        "settings": {"maxIpusPerJob": ipus},
    })
}

pub(super) fn of_map(hook: &str, key: &str, digest: &str) -> Value {
    json!({
        "hook": hook,
        "module": {"configMap": {"name": "modules", "key": key}, "digest": digest},
    })
}

pub(super) fn of_registry(digest: &str, oci: Value) -> Value {
    let mut spec = json!({"hook": "Validation", "module": {"digest": digest}});
    spec["module"]["oci"] = oci;
    spec
}

/// Folders in which a replica stores modules.
#[derive(Clone, Copy, Default)]
pub(super) struct Folders<'a> {
    /// Of its own Pod.
    pub(super) pod: Option<&'a Path>,
    /// Of a volume that outlives the Pod.
    pub(super) volume: Option<&'a Path>,
}

/// Another replica of the controller, which serves no requests.
pub(super) struct Other {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Other {
    pub(super) async fn start(client: Client, name: &'static str) -> Self {
        Self::start_with(client, name, Folders::default()).await
    }

    /// A replica that stores fetched modules in these folders.
    pub(super) async fn start_with(
        client: Client,
        name: &'static str,
        folders: Folders<'_>,
    ) -> Self {
        let dir = tokio::task::spawn_blocking(guests::build).await.unwrap();
        let mut release = release(dir.unwrap(), name);
        release.compile_cache_dir = folders.pod.map(Path::to_owned);
        release.module_dir = folders.volume.map(Path::to_owned);
        let hooks = [Hook::Defaulting, Hook::Validation];
        let mut options = ipu_policies::host_options(&release, &hooks, json!({}));
        // The program of the tests is no compiler process, so the replica compiles within its own
        // process.
        (options.compile_cache_dir, options.compiler) = (None, None);
        let policies = GuestHost::open(options).await;
        let guests = ActivePolicies::new(policies.unwrap());
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let task = tokio::spawn(async move {
            let asked = (guests, LeadershipStatus::default(), Conflicts::default());
            ipu_policies::follow(client, &release, Process::Controller, asked, stopping).await;
        });
        Self { task, stop }
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}
