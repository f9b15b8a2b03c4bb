//! Makes a node's namespaces look like a machine of its own: mounts, network, tools, configuration.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use nix::errno::Errno;

use super::{NodeError, NodeSpec, PATIENCE, config, mounts};
use crate::{
    cgroups,
    files::{At, FileError, make_dir, read, write},
    network::Ip,
    plan::{CNI_CONFIG, CNI_PLUGINS, HOST_IP},
    tools::debian::Root,
    wait::{Seen, until},
};

/// Makes the node look like a machine of its own.
pub(super) async fn prepare(spec: &NodeSpec) -> Result<(), NodeError> {
    let system = |action| {
        move |source: Errno| NodeError::System {
            action,
            source: source.into(),
        }
    };
    nix::unistd::sethostname(&spec.name).map_err(system("set the host name"))?;
    for part in [
        "containerd",
        "state",
        "opt",
        "kubelet",
        "pod-logs",
        "container-logs",
        "cni-results",
        "ipam",
        CNI_CONFIG,
        CNI_PLUGINS,
        "plugins",
        "sysctl",
        "tools",
        "pods",
    ] {
        make_dir(&spec.dir.join(part))?;
    }
    mounts::make(&spec.dir)?;
    connect(spec).await?;
    write_tools(spec)?;
    let cgroup = cgroups::make(&spec.name)?;
    write(&spec.dir.join("containerd.toml"), config::containerd(spec))?;
    let cni = spec.dir.join(CNI_CONFIG).join("10-bridge.conflist");
    write(&cni, config::cni(spec))?;
    write(&spec.dir.join("resolv.conf"), config::resolv_conf())?;
    write(
        &spec.dir.join("kubelet.json"),
        config::kubelet(spec, &cgroup),
    )?;
    write(&spec.dir.join("kube-proxy.json"), config::kube_proxy(spec))?;
    Ok(())
}

/// Waits for the node's veth device, then configures it.
async fn connect(spec: &NodeSpec) -> Result<(), NodeError> {
    until("the node has a network device", PATIENCE, async || {
        let devices = read(Path::new("/proc/net/dev"))?;
        Ok::<_, FileError>(Seen::when(devices, |devices| devices.contains("eth0:")))
    })
    .await?;
    let address = format!("{}/24", spec.ip);
    let mut commands = vec![
        vec!["link", "set", "lo", "up"],
        vec!["addr", "add", &address, "dev", "eth0"],
        vec!["link", "set", "eth0", "up"],
        vec!["route", "add", "default", "via", HOST_IP],
    ];
    for (range, gateway) in &spec.routes {
        commands.push(vec!["route", "add", range, "via", gateway]);
    }
    for args in commands {
        Ip::of(Root::new(spec.debian.clone())).run(&args)?;
    }
    let forward = Path::new("/proc/sys/net/ipv4/ip_forward");
    fs::write(forward, "1").at("write", forward)?;
    Ok(())
}

/// Puts the packet-filter tools and runc into the folders in which kubelet, kube-proxy and
/// containerd look for them.
fn write_tools(spec: &NodeSpec) -> Result<(), FileError> {
    for (name, script) in config::tools(&spec.debian) {
        let path = spec.dir.join("tools").join(name);
        write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .at("make executable", &path)?;
    }
    Ok(())
}
