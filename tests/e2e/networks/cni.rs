//! Multus, whereabouts and MACVLAN on the nodes: their programs, the files that their DaemonSets
//! write on a node, and their own definitions and rights.

use std::fs;
use std::path::{Path, PathBuf};

use cluster::kubeconfig;
use cluster::plan;
use cluster::tools::{Tools, go::OF_NETWORKS};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::machine::Machine;
use crate::fixture::Fixture;

/// Multus's configuration: the first of the folder by its name, so containerd uses it.
const MULTUS: &str = "00-multus.conf";

/// The configuration of the network of Pods, which Multus calls.
const OF_PODS: &str = "10-bridge.conflist";

/// Who asks the API server, and the folder of its kubeconfig on a node.
const ACCOUNTS: [&str; 2] = ["multus", "whereabouts"];

/// The kinds of objects that the trial creates of the manifests. The images of the DaemonSets are
/// in no registry here.
const KINDS: [&str; 4] = [
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
];

/// The plug-ins, built, and their objects.
pub(super) struct Plugins {
    programs: Vec<PathBuf>,
    /// The file with the objects.
    objects: PathBuf,
    /// The definitions among them, as kubectl names them.
    definitions: Vec<String>,
}

impl Plugins {
    /// Builds the plug-ins that are missing, and reads their manifests.
    pub(super) fn built(fixture: &Fixture) -> Result<Self, Failed> {
        let settings = &fixture.settings;
        let tools = Tools::fetch_some(settings, &fixture.progress, &OF_NETWORKS)?;
        let multus = Tools::source(settings, "multus")?;
        let whereabouts = Tools::source(settings, "whereabouts")?.join("doc/crds");
        let mut items = objects(&multus.join("deployments/multus-daemonset.yml"))?;
        for file in fs::read_dir(whereabouts)? {
            items.extend(objects(&file?.path())?);
        }
        let is_definition = |object: &&Value| object["kind"] == KINDS[0];
        let definitions = items.iter().filter(is_definition);
        let definitions = definitions.filter_map(|object| object["metadata"]["name"].as_str());
        let definitions = definitions.map(|name| format!("crd/{name}")).collect();
        let objects = settings.run.join("networks.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        fs::write(&objects, list.to_string())?;
        Ok(Self {
            programs: tools.programs().map(|(_, path)| path.to_owned()).collect(),
            objects,
            definitions,
        })
    }

    /// Installs them on the nodes, as their DaemonSets do.
    pub(super) async fn install(
        &self,
        fixture: &Fixture,
        machines: &[Machine],
    ) -> Result<(), Failed> {
        fixture.operated.kubectl.apply(&self.objects).await?;
        let mut wait = vec!["wait", "--for=condition=Established", "--timeout=120s"];
        wait.extend(self.definitions.iter().map(String::as_str));
        fixture.kubectl(&wait).await?;
        for account in ACCOUNTS {
            let create = ["create", "token", account, "--namespace=kube-system"];
            let token = fixture.kubectl(&create).await?;
            for machine in machines {
                let folder = machine.cni_config().join(format!("{account}.d"));
                fs::create_dir_all(&folder)?;
                let admin = plan::kubeconfig(&fixture.settings.run, "admin");
                let path = folder.join(format!("{account}.kubeconfig"));
                kubeconfig::write_with_token(&admin, &path, token.trim())?;
            }
        }
        for machine in machines {
            for program in &self.programs {
                let name = program.file_name().unwrap_or_default();
                fs::copy(program, machine.cni_plugins().join(name))?;
            }
            fs::write(
                machine.cni_config().join("whereabouts.d/whereabouts.conf"),
                whereabouts().to_string(),
            )?;
            add_multus(machine)?;
        }
        Ok(())
    }

    /// Removes their objects from the cluster.
    pub(super) async fn remove(&self, fixture: &Fixture) -> Result<(), Failed> {
        let file = self.objects.to_string_lossy();
        let delete = ["delete", "--ignore-not-found", "--filename", &file];
        fixture.kubectl(&delete).await?;
        Ok(())
    }
}

/// Lets Multus make the networks of new Pods.
pub(super) fn add_multus(machine: &Machine) -> Result<(), Failed> {
    let folder = machine.cni_config();
    let of_pods = fs::read_to_string(folder.join(OF_PODS))?;
    let of_pods: Value = serde_json::from_str(&of_pods)?;
    let new = folder.join("multus.new");
    fs::write(&new, multus(&of_pods).to_string())?;
    Ok(fs::rename(new, folder.join(MULTUS))?)
}

/// Lets the network of Pods be the only one again.
pub(super) fn remove_multus(machine: &Machine) -> Result<(), Failed> {
    let file = machine.cni_config().join(MULTUS);
    if file.exists() {
        fs::remove_file(file)?;
    }
    Ok(())
}

/// What Multus writes with `--multus-conf-file=auto`.
fn multus(of_pods: &Value) -> Value {
    json!({
        "cniVersion": of_pods["cniVersion"],
        "name": "multus-cni-network",
        "type": "multus",
        "capabilities": {"portMappings": true},
        "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig",
        "delegates": [of_pods],
    })
}

/// What whereabouts writes. It makes no network without this file.
fn whereabouts() -> Value {
    let kubeconfig = "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig";
    json!({"datastore": "kubernetes", "kubernetes": {"kubeconfig": kubeconfig}})
}

/// The objects of a manifest that the trial creates.
fn objects(manifest: &Path) -> Result<Vec<Value>, Failed> {
    let found: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(manifest)?)?;
    let is_wanted = |object: &Value| KINDS.iter().any(|kind| object["kind"] == **kind);
    Ok(found.into_iter().filter(is_wanted).collect())
}
