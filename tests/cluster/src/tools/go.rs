//! Tools that are built from Go modules, pinned by `tests/tools/<tool>/go.mod` and `go.sum`. There are several versions
//! of Kubernetes, of which the settings select one.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{ToolsError, stored};
use crate::{
    command,
    files::{read, sha256_of},
    lock::Lock,
    progress::Progress,
    settings::Settings,
};

/// A Go module and the programs that are built from it.
#[derive(Debug)]
pub struct GoTool {
    /// Folder in `tests/tools` (see [`Settings::pins_of`]), and start of the folder's name in the cache.
    pub folder: &'static str,
    /// The module that determines the version.
    pub module: &'static str,
    /// Its programs.
    pub programs: &'static [Program],
    /// String variables that are set at link time. `VERSION` is the version, `MINOR` its second number, and `CLIENT`
    /// that of the Kubernetes client in the module.
    pub variables: &'static [(&'static str, &'static str)],
}

/// A program and the Go package of its main function.
#[derive(Debug)]
pub struct Program {
    /// Name of the binary.
    pub name: &'static str,
    /// Import path; `.` is the folder in `tests/tools` itself.
    pub package: &'static str,
}

const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package }
}

/// Every tool that is built from a Go module.
pub const TOOLS: [GoTool; 16] = [
    GoTool {
        folder: "kubernetes",
        module: "k8s.io/kubernetes",
        programs: &[
            program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            program(
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
            ),
            program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            program("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            program("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
            program("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        variables: &[
            ("k8s.io/component-base/version.gitVersion", "vVERSION"),
            ("k8s.io/component-base/version.gitMajor", "1"),
            ("k8s.io/component-base/version.gitMinor", "MINOR"),
        ],
    },
    GoTool {
        folder: "etcd",
        module: "go.etcd.io/etcd/server/v3",
        programs: &[program("etcd", "go.etcd.io/etcd/server/v3")],
        variables: &[],
    },
    GoTool {
        folder: "etcdutl",
        module: "go.etcd.io/etcd/etcdutl/v3",
        programs: &[program("etcdutl", "go.etcd.io/etcd/etcdutl/v3")],
        variables: &[],
    },
    GoTool {
        folder: "containerd",
        module: "github.com/containerd/containerd/v2",
        programs: &[
            program(
                "containerd",
                "github.com/containerd/containerd/v2/cmd/containerd",
            ),
            program(
                "containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            ),
            program("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
        ],
        variables: &[(
            "github.com/containerd/containerd/v2/version.Version",
            "VERSION",
        )],
    },
    GoTool {
        folder: "cni",
        module: "github.com/containernetworking/plugins",
        programs: &[
            program(
                "bridge",
                "github.com/containernetworking/plugins/plugins/main/bridge",
            ),
            program(
                "loopback",
                "github.com/containernetworking/plugins/plugins/main/loopback",
            ),
            program(
                "host-local",
                "github.com/containernetworking/plugins/plugins/ipam/host-local",
            ),
            program(
                "portmap",
                "github.com/containernetworking/plugins/plugins/meta/portmap",
            ),
        ],
        variables: &[],
    },
    GoTool {
        folder: "coredns",
        module: "github.com/coredns/coredns",
        programs: &[program("coredns", ".")],
        variables: &[],
    },
    GoTool {
        folder: "helm",
        module: "helm.sh/helm/v3",
        programs: &[program("helm", "helm.sh/helm/v3/cmd/helm")],
        // The last four are those of Helm's own Makefile. Without them, Helm assumes Kubernetes 1.20 unless it connects
        // to a cluster.
        variables: &[
            ("helm.sh/helm/v3/internal/version.version", "vVERSION"),
            ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", "1"),
            ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", "CLIENT"),
            ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", "1"),
            ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor", "CLIENT"),
        ],
    },
    GoTool {
        folder: "helm-4",
        module: "helm.sh/helm/v4",
        programs: &[program("helm-4", "helm.sh/helm/v4/cmd/helm")],
        variables: &[("helm.sh/helm/v4/internal/version.version", "vVERSION")],
    },
    GoTool {
        folder: "helm-unittest",
        module: "github.com/helm-unittest/helm-unittest",
        programs: &[program(
            "helm-unittest",
            "github.com/helm-unittest/helm-unittest/cmd/helm-unittest",
        )],
        variables: &[],
    },
    GoTool {
        folder: "cosign",
        module: "github.com/sigstore/cosign/v3",
        programs: &[program(
            "cosign",
            "github.com/sigstore/cosign/v3/cmd/cosign",
        )],
        variables: &[],
    },
    GoTool {
        folder: "kubeconform",
        module: "github.com/yannh/kubeconform",
        programs: &[program(
            "kubeconform",
            "github.com/yannh/kubeconform/cmd/kubeconform",
        )],
        variables: &[("main.version", "vVERSION")],
    },
    GoTool {
        folder: "kueue",
        module: "sigs.k8s.io/kueue",
        programs: &[program("kueue", "sigs.k8s.io/kueue/cmd/kueue")],
        variables: &[("sigs.k8s.io/kueue/pkg/version.GitVersion", "vVERSION")],
    },
    GoTool {
        folder: "jobset",
        module: "sigs.k8s.io/jobset",
        programs: &[program("jobset", "sigs.k8s.io/jobset")],
        variables: &[("sigs.k8s.io/jobset/pkg/version.GitVersion", "vVERSION")],
    },
    GoTool {
        folder: "metrics-server",
        module: "sigs.k8s.io/metrics-server",
        programs: &[program(
            "metrics-server",
            "sigs.k8s.io/metrics-server/cmd/metrics-server",
        )],
        variables: &[],
    },
    GoTool {
        folder: "cert-manager",
        module: "github.com/cert-manager/cert-manager",
        // In newer versions, its programs are separate modules, which no proxy has.
        programs: &[
            program(
                "cert-manager-controller",
                "github.com/cert-manager/cert-manager/cmd/controller",
            ),
            program(
                "cert-manager-cainjector",
                "github.com/cert-manager/cert-manager/cmd/cainjector",
            ),
        ],
        variables: &[],
    },
    GoTool {
        folder: "mpi-operator",
        module: "github.com/kubeflow/mpi-operator",
        programs: &[program(
            "mpi-operator",
            "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
        )],
        variables: &[],
    },
];

/// Folders of the tools of a cluster with the operator. The others are for tests.
pub const OF_CLUSTER: [&str; 6] = ["kubernetes", "etcd", "containerd", "cni", "coredns", "helm"];

/// Folders of the tools that `make test` needs. The others are built when they are used: other operators in benchmarks,
/// and tools that only `make test-full` needs.
pub fn of_tests() -> Vec<&'static str> {
    let names = TOOLS.iter().map(|tool| tool.folder);
    names
        .filter(|name| !["cert-manager", "metrics-server", "mpi-operator"].contains(name))
        .collect()
}

/// The folder with the sources of a tool's module. If the caches have only its programs, the module is downloaded.
pub fn source(settings: &Settings, tool: &GoTool) -> Result<PathBuf, ToolsError> {
    let ask = |args: &[&str]| {
        let mut go = Command::new("go");
        go.args(args)
            .arg(tool.module)
            .current_dir(settings.pins_of(tool.folder))
            .env("GOFLAGS", "")
            .env("GOWORK", "off");
        command::output(&mut go).map_err(|source| ToolsError::Make {
            tool: tool.folder.to_owned(),
            source,
        })
    };
    ask(&["mod", "download"])?;
    let found = ask(&["list", "-mod=readonly", "-m", "-f", "{{.Dir}}"])?;
    Ok(PathBuf::from(found.trim()))
}

/// Builds a tool if it is missing, and returns the folder of its programs.
pub fn ensure(
    tool: &GoTool,
    settings: &Settings,
    progress: &Progress,
) -> Result<PathBuf, ToolsError> {
    let pins = settings.pins_of(tool.folder);
    let version = version(tool, &pins)?;
    let sums = read(&pins.join("go.sum"))?;
    let flags = link_flags(tool, &version, &sums);
    let inputs = sha256_of(format!("{}{sums}{flags}", read(&pins.join("go.mod"))?));
    let dir = settings.cache.join(format!("{}-{version}", tool.folder));
    if !stored::is_intact(&dir, &inputs) {
        let lock = settings.cache.join(format!("{}.lock", tool.folder));
        let _lock = Lock::take(&lock)?;
        // Another process may have built it during the wait.
        if !stored::is_intact(&dir, &inputs) {
            stored::make(&dir, &inputs, |partial| {
                tool.programs.iter().try_for_each(|program| {
                    let what = format!("built {} {version}", program.name);
                    progress.run(what, || build(program, &flags, &pins, partial))
                })
            })?;
        }
    }
    Ok(dir)
}

/// The version that `go.mod` requires of the tool's module, without the leading `v`.
fn version(tool: &GoTool, pins: &Path) -> Result<String, ToolsError> {
    let path = pins.join("go.mod");
    required_version(&read(&path)?, tool.module).ok_or(ToolsError::NotPinned {
        path,
        module: tool.module,
    })
}

fn required_version(go_mod: &str, module: &str) -> Option<String> {
    let lines = go_mod.lines().map(str::trim);
    let required = lines.map(|line| line.strip_prefix("require ").unwrap_or(line));
    let mut words = required
        .map(str::split_whitespace)
        .filter_map(|mut words| Some((words.next()?, words.next()?.strip_prefix('v')?.to_owned())));
    words
        .find(|(name, _)| *name == module)
        .map(|(_, version)| version)
}

/// The second number of the Kubernetes client's version in `go.sum`. A line with `/go.mod` is only about the
/// requirements of a version.
fn client_minor(sums: &str) -> Option<&str> {
    let lines = sums.lines().map(str::split_whitespace);
    let mut versions = lines.filter_map(|mut words| {
        let of_client = words.next()? == "k8s.io/client-go";
        words.next().filter(|_| of_client)
    });
    let version = versions.find(|version| !version.ends_with("/go.mod"))?;
    version.split('.').nth(1)
}

/// Flags of the linker: no symbol tables, and the version if the program shows one.
fn link_flags(tool: &GoTool, version: &str, sums: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let client = client_minor(sums).unwrap_or_default();
    tool.variables
        .iter()
        .map(|(name, value)| {
            let value = value.replace("VERSION", version).replace("MINOR", minor);
            let value = value.replace("CLIENT", client);
            format!(" -X {name}={value}")
        })
        .fold("-s -w".to_owned(), |flags, flag| flags + &flag)
}

/// Builds one program. `-mod=readonly` makes Go check every module against `go.sum`.
fn build(program: &Program, flags: &str, pins: &Path, dir: &Path) -> Result<(), ToolsError> {
    let mut go = Command::new("go");
    go.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"])
        .args(["-ldflags", flags, "-o"])
        .arg(dir.join(program.name))
        .arg(program.package)
        .current_dir(pins)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "");
    command::run(&mut go).map_err(|source| ToolsError::Make {
        tool: program.name.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
