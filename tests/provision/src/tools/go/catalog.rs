//! Every tool that is built from a Go module: its programs, and the variables that its version is
//! set in.

use std::path::PathBuf;

use crate::settings::Settings;

/// A Go module and the programs that are built from it.
#[derive(Debug)]
pub struct GoTool {
    /// Start of the name of its folder in the cache.
    pub name: &'static str,
    /// Folder in `tests/tools` with its `go.mod` (see [`GoTool::pins`]). Tools that share a folder
    /// have the same versions of all libraries, so that Go compiles each library once for all of
    /// them.
    pub pins: &'static str,
    /// The module that determines the version.
    pub module: &'static str,
    /// Its programs.
    pub programs: &'static [Program],
    /// String variables that are set at link time. `VERSION` is the version, `MINOR` its second
    /// number, and `CLIENT` that of the Kubernetes client in the module.
    pub variables: &'static [(&'static str, &'static str)],
}

/// A program and the Go package of its main function.
#[derive(Debug)]
pub struct Program {
    /// Name of the binary.
    pub name: &'static str,
    /// Import path; one that starts with `./` is a folder beside `go.mod`.
    pub package: &'static str,
}

const fn program(name: &'static str, package: &'static str) -> Program {
    Program { name, package }
}

/// The kubelet of the oldest version that may run below an API server of the default version.
/// Kubernetes allows kubelets three minor versions older than the API server.
pub const OLDEST_KUBELET: &str = "kubelet-1.34";

/// The variables with the version of a program of Kubernetes.
const VERSION_OF_KUBERNETES: &[(&str, &str)] = &[
    ("k8s.io/component-base/version.gitVersion", "vVERSION"),
    ("k8s.io/component-base/version.gitMajor", "1"),
    ("k8s.io/component-base/version.gitMinor", "MINOR"),
];

/// Every tool that is built from a Go module.
pub const TOOLS: [GoTool; 20] = [
    GoTool {
        name: "kubernetes",
        pins: "cluster",
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
        variables: VERSION_OF_KUBERNETES,
    },
    GoTool {
        name: OLDEST_KUBELET,
        pins: "kubernetes-1.34",
        module: "k8s.io/kubernetes",
        programs: &[program(OLDEST_KUBELET, "k8s.io/kubernetes/cmd/kubelet")],
        variables: VERSION_OF_KUBERNETES,
    },
    GoTool {
        name: "etcd",
        pins: "cluster",
        module: "go.etcd.io/etcd/server/v3",
        programs: &[program("etcd", "go.etcd.io/etcd/server/v3")],
        variables: &[],
    },
    GoTool {
        name: "etcdutl",
        pins: "cluster",
        module: "go.etcd.io/etcd/etcdutl/v3",
        programs: &[program("etcdutl", "go.etcd.io/etcd/etcdutl/v3")],
        variables: &[],
    },
    GoTool {
        name: "containerd",
        pins: "cluster",
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
        name: "cni",
        pins: "cluster",
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
        name: "coredns",
        pins: "cluster",
        module: "github.com/coredns/coredns",
        programs: &[program("coredns", "./coredns")],
        variables: &[],
    },
    GoTool {
        name: "helm",
        pins: "cluster",
        module: "helm.sh/helm/v3",
        programs: &[program("helm", "helm.sh/helm/v3/cmd/helm")],
        // The last four are those of Helm's own Makefile. Without them, Helm assumes Kubernetes
        // 1.20 unless it connects to a cluster.
        variables: &[
            ("helm.sh/helm/v3/internal/version.version", "vVERSION"),
            ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", "1"),
            ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", "CLIENT"),
            ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", "1"),
            ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor", "CLIENT"),
        ],
    },
    GoTool {
        name: "helm-4",
        pins: "helm-4",
        module: "helm.sh/helm/v4",
        programs: &[program("helm-4", "helm.sh/helm/v4/cmd/helm")],
        variables: &[("helm.sh/helm/v4/internal/version.version", "vVERSION")],
    },
    GoTool {
        name: "helm-unittest",
        pins: "helm-unittest",
        module: "github.com/helm-unittest/helm-unittest",
        programs: &[program(
            "helm-unittest",
            "github.com/helm-unittest/helm-unittest/cmd/helm-unittest",
        )],
        variables: &[],
    },
    GoTool {
        // The interpreter in which Argo CD runs its health checks.
        name: "glua",
        pins: "glua",
        module: "github.com/yuin/gopher-lua",
        programs: &[program("glua", "github.com/yuin/gopher-lua/cmd/glua")],
        variables: &[],
    },
    GoTool {
        name: "cosign",
        pins: "cosign",
        module: "github.com/sigstore/cosign/v3",
        programs: &[program(
            "cosign",
            "github.com/sigstore/cosign/v3/cmd/cosign",
        )],
        variables: &[],
    },
    GoTool {
        name: "kueue",
        pins: "queues",
        module: "sigs.k8s.io/kueue",
        programs: &[program("kueue", "sigs.k8s.io/kueue/cmd/kueue")],
        variables: &[("sigs.k8s.io/kueue/pkg/version.GitVersion", "vVERSION")],
    },
    GoTool {
        name: "jobset",
        pins: "queues",
        module: "sigs.k8s.io/jobset",
        programs: &[program("jobset", "sigs.k8s.io/jobset")],
        variables: &[("sigs.k8s.io/jobset/pkg/version.GitVersion", "vVERSION")],
    },
    GoTool {
        name: "metrics-server",
        pins: "metrics-server",
        module: "sigs.k8s.io/metrics-server",
        programs: &[program(
            "metrics-server",
            "sigs.k8s.io/metrics-server/cmd/metrics-server",
        )],
        variables: &[],
    },
    GoTool {
        name: "cert-manager",
        pins: "cert-manager",
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
    // What makes the second interface of Pods, as the network preset of the chart uses it.
    GoTool {
        name: "multus",
        pins: "networks",
        module: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4",
        programs: &[program(
            "multus",
            "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus",
        )],
        variables: &[],
    },
    GoTool {
        name: "whereabouts",
        pins: "networks",
        module: "github.com/k8snetworkplumbingwg/whereabouts",
        programs: &[program(
            "whereabouts",
            "github.com/k8snetworkplumbingwg/whereabouts/cmd",
        )],
        variables: &[],
    },
    GoTool {
        name: "macvlan",
        pins: "networks",
        module: "github.com/containernetworking/plugins",
        programs: &[program(
            "macvlan",
            "github.com/containernetworking/plugins/plugins/main/macvlan",
        )],
        variables: &[],
    },
    GoTool {
        name: "mpi-operator",
        pins: "mpi-operator",
        module: "github.com/kubeflow/mpi-operator",
        programs: &[program(
            "mpi-operator",
            "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
        )],
        variables: &[],
    },
];

/// Names of the tools of a cluster with the operator. The others are for tests.
pub const OF_CLUSTER: [&str; 6] = ["kubernetes", "etcd", "containerd", "cni", "coredns", "helm"];

/// Names of the tools that give Pods a second interface. Nodes have them only in the trial that
/// installs them.
pub const OF_NETWORKS: [&str; 3] = ["multus", "whereabouts", "macvlan"];

/// Names of the tools that only a few checks of a release use, and of other operators in
/// benchmarks. They are built when they are used.
const OF_FEW: [&str; 4] = [
    OLDEST_KUBELET,
    "cert-manager",
    "metrics-server",
    "mpi-operator",
];

/// Names of the tools that `make test` needs.
pub fn of_tests() -> Vec<&'static str> {
    let names = TOOLS.iter().map(|tool| tool.name);
    names.filter(|name| !OF_FEW.contains(name)).collect()
}

impl GoTool {
    /// The folder that pins its modules. Each older version of Kubernetes has a folder of its own.
    pub fn pins(&self, settings: &Settings) -> PathBuf {
        let older = match self.name {
            "kubernetes" => settings.kubernetes.older_pins(),
            _ => None,
        };
        settings.tool_pins().join(older.unwrap_or(self.pins))
    }
}
