//! Two teams on one cluster, separated by the commands of the page for admins. A user of one team
//! attacks the other one, whose job runs undisturbed.

mod attacks;
mod manifests;

use std::fs;

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tests::documents::TENANTS;
use vipu_simulator::{Options, Simulator};

use crate::chart::admin::Admin;
use crate::planes;
use crate::processes::{Given, Installation, RELEASE, Running};

/// The namespaces and groups of the teams.
const VICTIM: &str = "team-a";
const ATTACKER: &str = "team-b";

/// The job of the page.
const JOB: &str = "train";

/// The cluster after the steps of the page.
struct Cluster {
    admin: Admin,
    client: Client,
    // Fields drop in this order: the processes end before what they use.
    _processes: [Running; 2],
    _installation: Installation,
    _other: Simulator,
}

impl Cluster {
    /// Follows the page, step by step.
    async fn of_page() -> Self {
        let given = Given {
            values: vec!["worker.hostNetwork=false"],
            ..Given::default()
        };
        let installation = Installation::of(planes::with_definitions().await, given).await;
        let other = Simulator::start(Options::quick("pod2", 64)).await.unwrap();
        let client = installation.client.clone();
        let node = json!({"metadata": {"name": "node2", "labels": {"ipunode": "pod2"}}});
        let node: Node = serde_json::from_value(node).unwrap();
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let processes = [
            installation.proxy("proxy", Vec::new()).await,
            installation.controller("controller", Vec::new()).await,
        ];
        let admin = Admin::of(RELEASE, installation.plane.kubeconfig());
        let addresses = [
            installation.simulator.address.to_string(),
            other.address.to_string(),
        ];
        let cluster = Self {
            admin,
            client,
            _processes: processes,
            _installation: installation,
            _other: other,
        };
        cluster.aggregate();
        cluster.follow(addresses);
        cluster
    }

    /// Gives the ClusterRole `edit` its rules. No controller manager runs here, which aggregates
    /// them in a cluster.
    fn aggregate(&self) {
        let mut rules = Vec::new();
        for role in ["view", "edit"] {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}=true");
            let get = ["get", "clusterroles", "--output=json", "--selector", &label];
            let found: Value = serde_json::from_str(&self.admin.kubectl(&get).unwrap()).unwrap();
            for role in found["items"].as_array().unwrap() {
                rules.extend(role["rules"].as_array().into_iter().flatten().cloned());
            }
        }
        let rules = json!({ "rules": rules }).to_string();
        let patch = ["patch", "clusterrole", "edit", "--type=merge", "--patch"];
        self.admin
            .kubectl(&[&patch[..], &[&rules]].concat())
            .unwrap();
    }

    /// Runs the commands of the pages. The V-IPU controllers have other addresses there.
    fn follow(&self, [first, second]: [String; 2]) {
        let mut followed = 0;
        for typed in TENANTS {
            let path = format!("{}/../../{}.md", self.admin.chart(), typed.document);
            let text = fs::read_to_string(path).unwrap();
            for block in typed.blocks(&text) {
                let commands = block.commands.replace("pod1.example.com:8090", &first);
                let commands = commands.replace("pod2.example.com:8090", &second);
                let ran = self.admin.shell(&format!("{commands}\n"));
                ran.unwrap_or_else(|error| panic!("{}.md: {commands}\n{error}", typed.document));
                followed += 1;
            }
        }
        assert!(followed > 5, "{followed} blocks");
    }

    /// The attacker runs kubectl. Returns the output, or what it prints if it fails.
    fn attacker(&self, args: &[&str]) -> Result<String, String> {
        let identity = ["--as=mallory", "--as-group=team-b"];
        let asked = self.admin.kubectl(&[args, &identity].concat());
        asked.map_err(|error| error.to_string())
    }

    /// The attacker creates an object in the namespace of the team.
    fn create(&self, object: &Value, options: &[&str]) -> Result<String, String> {
        let file = self.admin.file("object.json", &object.to_string());
        let create = ["create", "--namespace", ATTACKER, "--filename", &file];
        self.attacker(&[&create, options].concat())
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The kubelet: runs the only worker of a job. Returns once the job runs.
    async fn run(&self, namespace: &str, job: &str) {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"phase": "Running", "conditions": conditions}});
        let (pods, pod) = (self.pods(namespace), format!("{job}-worker-0"));
        eventually(&format!("{pod} is there"), async || {
            let (params, status) = (PatchParams::default(), Patch::Merge(&status));
            let patched = pods.patch_status(&pod, &params, &status).await;
            Seen::from(patched)
        })
        .await;
        let jobs: Api<IPUJob> = Api::namespaced(self.client.clone(), namespace);
        eventually(&format!("{job} runs"), async || {
            let status = jobs.get(job).await.unwrap().status.unwrap_or_default();
            Seen::when(status, |status| status.launcher_status == JobState::Running)
        })
        .await;
    }

    /// Returns what a disturbance of the victim's job would change: its spec, its state and
    /// restarts, and the UIDs, the labels and the nodes of its Pods.
    async fn victim(&self) -> Value {
        let jobs: Api<IPUJob> = Api::namespaced(self.client.clone(), VICTIM);
        let job = jobs.get(JOB).await.unwrap();
        let status = job.status.unwrap_or_default();
        let pods = self.pods(VICTIM).list(&ListParams::default()).await;
        let pods = pods.unwrap().into_iter().map(|pod| {
            let labels = pod.labels().clone();
            json!([
                pod.uid(),
                labels,
                pod.spec.unwrap_or_default().node_selector
            ])
        });
        json!([
            job.spec,
            status.launcher_status,
            status.restart_count,
            pods.collect::<Vec<_>>(),
        ])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_reaches_nothing_of_another_and_its_job_runs_undisturbed() {
    let cluster = Cluster::of_page().await;
    cluster.run(VICTIM, JOB).await;
    let before = cluster.victim().await;

    attacks::by_rights(&cluster).await;
    attacks::with_labels_of_the_operator(&cluster);
    attacks::on_an_own_job(&cluster).await;
    attacks::on_a_native_pod(&cluster).await;
    attacks::in_a_shared_partition(&cluster);
    attacks::above_the_quota(&cluster).await;
    attacks::on_a_partition_of_another(&cluster).await;
    attacks::with_dry_runs(&cluster);

    assert_eq!(cluster.victim().await, before);
}
