//! Installs the operator on the cluster as a user does: with the simulated V-IPU controllers of the
//! examples, and only with files of the release's package.

pub mod helm;

use std::{
    net::IpAddr, os::unix::fs::symlink, panic::resume_unwind, path::Path, process::Command, slice,
};

use cluster::{
    command::{self, CommandError},
    files::{At, FileError, remove},
    images::{
        Image, ImageError,
        openmpi::{self, OpenMpi},
    },
    lifecycle::{Cluster, ClusterError},
    network,
    plan::{NODES, bin},
    platform::AMD64,
    post_mortem,
    progress::Progress,
    settings::Settings,
    tools::Tools,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
use release::{
    dist::{Dist, DistError, PLUGIN, Profile},
    image,
    package::{Package, PackageError},
};
use tokio::task::spawn_blocking;

use self::helm::Release;
use crate::demo::{Controller, Kubectl, Operated};
use crate::simulator_image;

/// Namespace and Helm release of the operator.
pub const NAMESPACE: &str = "ipu-operator";
/// Namespace of the simulated V-IPU controllers.
pub const VIPU_NAMESPACE: &str = "vipu";
/// The simulated controllers: Service and Deployment, and the IPUs of each.
pub const CONTROLLERS: [(&str, u32); 2] = [("pod1", 16), ("pod2", 64)];
/// Port of a V-IPU controller's user API.
pub const VIPU_PORT: u16 = 8090;
/// Port on which a simulated controller takes orders for faults.
pub const FAULTS_PORT: u16 = 8091;

/// Failure to install the operator.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The release could not be built.
    #[error(transparent)]
    Dist(#[from] DistError),
    /// An image could not be built.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The package could not be built or read.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The cluster could not be started.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A simulated V-IPU controller has no Pod.
    #[error("the V-IPU controller {name} has no Pod with an address")]
    NoController {
        /// Name of the controller.
        name: String,
    },
    /// kubectl or Helm failed.
    #[error("failed to {action}")]
    Command {
        /// The action that failed.
        action: &'static str,
        /// The error.
        #[source]
        source: CommandError,
    },
}

/// A cluster with the operator installed.
#[derive(Debug)]
pub struct Installed {
    /// The cluster.
    pub cluster: Cluster,
    /// The operator's image.
    pub image: Image,
    /// The operator's Helm release.
    pub release: Release,
}

/// Builds what is missing, starts the cluster, and installs or upgrades the operator. If this
/// fails, the explaining logs are printed and saved, and the started processes keep running.
pub async fn up(settings: &Settings, progress: &Progress) -> Result<Installed, OperatorError> {
    // Check this first, because the builds may take long.
    network::check().map_err(ClusterError::from)?;
    progress.stage("build the operator, the agent, the guests and the simulator");
    let dist = Dist::build(settings, Profile::from_env(), progress)?;
    progress.stage("get the cluster's tools");
    let tools = Tools::of_cluster(settings, progress).map_err(ClusterError::from)?;
    // The start of a cluster mostly waits, and packing needs a core.
    let packing = {
        let (settings, progress) = (settings.clone(), progress.clone());
        spawn_blocking(move || Packed::make(&settings, &tools, &dist, &progress))
    };
    let cluster = Cluster::up(settings, progress).await;
    progress.stage("wait for the release's package");
    let packed = packing.await.unwrap_or_else(|error| {
        resume_unwind(error.into_panic()) // Nothing cancels it.
    });
    let (cluster, packed) = (cluster?, packed?);
    let installed = async { install(settings, cluster, packed, progress) };
    post_mortem::after(settings, installed).await
}

/// The release's package, and the images for the nodes.
struct Packed {
    package: Package,
    /// The image in the package.
    image: Image,
    /// Those of the V-IPU controllers and of jobs.
    others: [Image; 2],
}

impl Packed {
    fn make(
        settings: &Settings,
        tools: &Tools,
        dist: &Dist,
        progress: &Progress,
    ) -> Result<Self, OperatorError> {
        let image = image::ensure(settings, tools, dist.programs(), progress)?;
        let package = progress.run("made the release's package", || {
            let programs = slice::from_ref(dist.programs());
            let helm = tools.program("helm");
            Package::make(settings, helm, dist, programs, &[(AMD64, &image)])
        })?;
        Ok(Self {
            package,
            image,
            others: [
                simulator_image::ensure(settings, dist.simulator(), progress)?,
                openmpi::ensure(settings, tools, progress, OpenMpi::Four)?,
            ],
        })
    }
}

fn install(
    settings: &Settings,
    cluster: Cluster,
    packed: Packed,
    progress: &Progress,
) -> Result<Installed, OperatorError> {
    let Packed {
        package,
        image,
        others: [simulator, jobs],
    } = packed;
    let package = progress.run("unpacked the release's package elsewhere", || {
        package.unpack(&settings.run.join("package"))
    })?;
    // The nodes get only the files of the package.
    let image = Image {
        archive: package.image(),
        ..image
    };
    let images = [image.clone(), simulator, jobs];
    progress.stage("bring them to the nodes");
    progress.run(
        "brought the images of operator and jobs to the nodes",
        || cluster.import(&images),
    )?;
    put_on_path(settings, &package.plugin(AMD64))?;
    let definitions = package.folder.clone();
    let release = Release::new(&cluster, package, values(&image));
    let installed = Installed {
        cluster,
        image,
        release,
    };
    progress.stage("install the operator");
    progress.run("started two simulated V-IPU controllers", || {
        installed.start_controllers()
    })?;
    progress.run("installed the operator with Helm; it is ready", || {
        installed.install(&definitions)
    })?;
    Ok(installed)
}

/// Name of the program that kubectl calls to complete a command line of the plugin.
const COMPLETER: &str = "kubectl_complete-ipu";

/// Links the plugin of the package beside kubectl, where kubectl finds it, also for completion.
fn put_on_path(settings: &Settings, plugin: &Path) -> Result<(), FileError> {
    for name in [PLUGIN, COMPLETER] {
        let link = bin(&settings.run).join(name);
        remove(&link)?;
        symlink(plugin, &link).at("make the link", &link)?;
    }
    Ok(())
}

impl Installed {
    /// kubectl, with the rights of the cluster's user.
    pub fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(self.cluster.tools.program("kubectl"));
        kubectl
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig())
            .current_dir(&self.cluster.settings.checkout);
        kubectl
    }

    /// Returns the data of the installed operator that the demo and the end-to-end tests need.
    pub async fn operated(&self) -> Result<Operated, OperatorError> {
        let client = self.cluster.client().await?;
        let mut controllers = Vec::new();
        for ((name, _), node) in CONTROLLERS.iter().zip(NODES) {
            let ip = pod_ip(&client, name).await?;
            controllers.push(Controller {
                name: (*name).to_owned(),
                address: address(name),
                reached_at: (ip, VIPU_PORT).into(),
                faults_at: (ip, FAULTS_PORT).into(),
                node: node.name.to_owned(),
            });
        }
        Ok(Operated {
            client,
            kubectl: Kubectl {
                program: self.cluster.tools.program("kubectl").to_owned(),
                kubeconfig: self.cluster.kubeconfig(),
            },
            repository: self.cluster.settings.checkout.clone(),
            release_namespace: NAMESPACE.to_owned(),
            proxy_service: format!("{NAMESPACE}-vipu-proxy"),
            controllers,
        })
    }

    fn start_controllers(&self) -> Result<(), OperatorError> {
        let failed = |action| move |source| OperatorError::Command { action, source };
        let mut apply = self.kubectl();
        apply.args(["apply", "--filename", "examples/vipu-simulator.yaml"]);
        command::run(&mut apply).map_err(failed("apply examples/vipu-simulator.yaml"))?;
        for (name, _) in CONTROLLERS {
            let mut status = self.kubectl();
            status
                .args([
                    "--namespace",
                    VIPU_NAMESPACE,
                    "rollout",
                    "status",
                    "--timeout=120s",
                ])
                .arg(format!("deployment/{name}"));
            command::run(&mut status).map_err(failed("wait for a V-IPU controller"))?;
        }
        Ok(())
    }

    /// Installs from the folder of an unpacked package, as docs/release.md in it describes.
    fn install(&self, package: &Path) -> Result<(), OperatorError> {
        let failed = |action| move |source| OperatorError::Command { action, source };
        let mut definitions = self.kubectl();
        definitions
            .args(["apply", "--server-side", "--force-conflicts"])
            .args(["--filename", "crds/"])
            .current_dir(package);
        command::run(&mut definitions).map_err(failed("apply the CRDs of the package"))?;
        let installed = self.release.install();
        installed.map_err(failed("install the operator with Helm"))
    }
}

/// The name of a controller in the operator's list.
fn address(name: &str) -> String {
    format!("{name}.{VIPU_NAMESPACE}:{VIPU_PORT}")
}

/// The address of a simulated controller's Pod, for this machine.
async fn pod_ip(client: &Client, name: &str) -> Result<IpAddr, OperatorError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), VIPU_NAMESPACE);
    let selector = format!("app.kubernetes.io/instance={name}");
    let found = pods.list(&ListParams::default().labels(&selector)).await;
    let found = found.map_err(|source| ClusterError::Api {
        action: "find the Pod of a V-IPU controller",
        source: Box::new(source),
    })?;
    let mut statuses = found.items.into_iter().filter_map(|pod| pod.status);
    statuses
        .find_map(|status| status.pod_ip?.parse().ok())
        .ok_or_else(|| OperatorError::NoController {
            name: name.to_owned(),
        })
}

/// The values for Helm. The image's tag is the chart's own version. The digest is in an annotation,
/// so that an upgrade to a new image with the same name replaces the Pods.
fn values(image: &Image) -> Vec<String> {
    let controllers = CONTROLLERS
        .map(|(name, _)| format!("{}:ipunode={name}", address(name)))
        .join("\\,");
    let annotation = format!("podAnnotations.image-digest={}", image.digest);
    let texts = [
        format!("controller.image.repository={}", image::REPOSITORY),
        format!("global.vipuControllers={controllers}"),
        format!("controller.{annotation}"),
        format!("vipuProxy.{annotation}"),
        format!("certificates.process.{annotation}"),
    ];
    let others = [
        // The jobs of the demo need no RDMA, and Pods with their own network test more.
        "worker.hostNetwork=false",
        // One replica: the tests kill and measure this one.
        "controller.replicas=1",
        // The default of ten minutes for a lost node would be too long for the tests.
        "controller.lostNodeSeconds=20",
    ];
    let texts = texts.map(|text| ["--set-string".to_owned(), text]);
    let others = others.map(|other| ["--set".to_owned(), other.to_owned()]);
    texts.into_iter().chain(others).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helm_gets_the_controllers_in_one_value() {
        let image = Image {
            name: image::NAME.to_owned(),
            archive: "/x".into(),
            digest: "sha256:1234".to_owned(),
        };
        let values = values(&image);
        assert_eq!(
            values[1],
            "controller.image.repository=ipu-operator.local/ipu-operator"
        );
        assert_eq!(
            values[3],
            "global.vipuControllers=pod1.vipu:8090:ipunode=pod1\\,pod2.vipu:8090:ipunode=pod2"
        );
    }
}
