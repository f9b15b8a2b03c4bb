//! Pure: the configuration files of a node's parts.

use std::path::Path;

use serde_json::json;

use super::NodeSpec;
use crate::{
    images::PAUSE_IMAGE,
    pki::{cluster_ca, identity},
    plan::{CNI_CONFIG, CNI_PLUGINS, DNS_IP, POD_RANGE},
};

/// containerd: overlay snapshots, cgroupfs, and no setting that needs CAP_SYS_RESOURCE.
pub fn containerd(spec: &NodeSpec) -> String {
    let dir = spec.dir.display();
    let cni = spec.cni.display();
    format!(
        r#"version = 3
root = "{dir}/containerd"
state = "{dir}/state"

[grpc]
address = "{dir}/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
path = "{dir}/opt"

[plugins."io.containerd.nri.v1.nri"]
disable = true

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{dir}/tools/runc"
SystemdCgroup = false

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{cni}", "{dir}/{CNI_PLUGINS}"]
conf_dir = "{dir}/{CNI_CONFIG}"
"#
    )
}

/// CNI: one bridge in the node. Addresses of Pods are not translated, because MPI sends its own
/// address to its peers.
pub fn cni(spec: &NodeSpec) -> String {
    json!({
        "cniVersion": "1.0.0",
        "name": "harness",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": spec.dir.join("ipam"),
                    "ranges": [[{"subnet": spec.pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
    .to_string()
}

/// The name server that the kubelet gives to Pods with `dnsPolicy: Default`.
pub fn resolv_conf() -> String {
    format!("nameserver {DNS_IP}\n")
}

/// kubelet.
pub fn kubelet(spec: &NodeSpec, cgroup: &str) -> String {
    let serving = identity(&spec.pki, &format!("{}-serving", spec.name));
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "containerRuntimeEndpoint": format!("unix://{}/containerd.sock", spec.dir.display()),
        "staticPodPath": spec.dir.join("pods"),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": cluster_ca(&spec.pki)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": serving.certificate,
        "tlsPrivateKeyFile": serving.key,
        "clusterDNS": [DNS_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": spec.dir.join("resolv.conf"),
        "volumePluginDir": spec.dir.join("plugins"),
        "failSwapOn": false,
        // A changed Secret or ConfigMap reaches a Pod's volume with the kubelet's next sync. Kueue
        // looks for its certificate 1, 3, 7, 15, … seconds after its start: with the default of a
        // minute it can miss it until the fourth minute.
        "syncFrequency": "10s",
        // Load tests run many idle Pods; the default is 110.
        "maxPods": 200,
        "evictionHard": {
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "memory.available": "100Mi",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "logging": {"verbosity": 2},
    })
    .to_string()
}

/// kube-proxy. Limits of connection tracking apply to the whole machine: zeros do not change them.
pub fn kube_proxy(spec: &NodeSpec) -> String {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": POD_RANGE,
        "hostnameOverride": spec.name,
        "clientConnection": {"kubeconfig": spec.proxy_kubeconfig},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    })
    .to_string()
}

/// Scripts that run programs of the Debian packages with the libraries beside them. Programs that
/// these start do not inherit that environment.
pub fn tools(debian: &Path) -> Vec<(&'static str, String)> {
    const TOOLS: [(&str, &str); 10] = [
        ("runc", "runc"),
        ("nft", "nft"),
        ("conntrack", "conntrack"),
        ("ipset", "ipset"),
        ("iptables", "xtables-nft-multi iptables"),
        ("iptables-save", "xtables-nft-multi iptables-save"),
        ("iptables-restore", "xtables-nft-multi iptables-restore"),
        ("ip6tables", "xtables-nft-multi ip6tables"),
        ("ip6tables-save", "xtables-nft-multi ip6tables-save"),
        ("ip6tables-restore", "xtables-nft-multi ip6tables-restore"),
    ];
    let root = debian.display();
    let libraries = format!("{root}/usr/lib/x86_64-linux-gnu");
    let script = |program| {
        format!(
            "#!/bin/sh\n\
             LD_LIBRARY_PATH='{libraries}' XTABLES_LIBDIR='{libraries}/xtables' \
             exec '{root}/usr/sbin/'{program} \"$@\"\n"
        )
    };
    TOOLS.map(|(name, program)| (name, script(program))).into()
}
