//! A node as its admin has it: network card, routes, files, limits of its container runtime.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command;
use cluster::plan::{CNI_CONFIG, CNI_PLUGINS, Node};
use cluster::process::{Daemons, Process};
use cluster::tools::debian::Root;
use libtest_mimic::Failed;

use crate::fixture::Fixture;

/// The network card of the values of the page.
const CARD: &str = "ens1f0";

/// The only RDMA device, below the folder that `ipu-node` reads instead of `/sys`.
const RDMA_DEVICE: &str = "sys/class/infiniband/mlx5_0";

/// A node of the cluster.
pub(super) struct Machine {
    /// Name of the Node object.
    pub(super) name: &'static str,
    /// The folder of its files.
    folder: PathBuf,
    /// Its first process.
    init: Process,
    debian: Root,
}

impl Machine {
    /// The node of this name, which runs.
    pub(super) fn of(fixture: &Fixture, node: Node) -> Result<Self, Failed> {
        let run = &fixture.settings.run;
        let unshare = Daemons::of(run).alive(node.name);
        let init = unshare.and_then(Process::first_child);
        Ok(Self {
            name: node.name,
            folder: node.dir(run),
            init: init.ok_or("the node does not run")?,
            debian: fixture.tools.debian(),
        })
    }

    /// Gives both nodes a network card, and connects them.
    pub(super) fn lay_cable(first: &Self, second: &Self) -> Result<(), Failed> {
        let peer = second.init.pid.to_string();
        let cable = ["link", "add", CARD, "type", "veth", "peer", "name", CARD];
        first.ip(&[&cable[..], &["netns", &peer]].concat())?;
        for machine in [first, second] {
            machine.ip(&["link", "set", CARD, "up"])?;
        }
        Ok(())
    }

    /// Its folder of `/etc/cni/net.d`.
    pub(super) fn cni_config(&self) -> PathBuf {
        self.folder.join(CNI_CONFIG)
    }

    /// The folder of the CNI plug-ins that its admin installs.
    pub(super) fn cni_plugins(&self) -> PathBuf {
        self.folder.join(CNI_PLUGINS)
    }

    /// The kubelet's folder of device plugins. Its path is short enough for the address of a
    /// socket.
    pub(super) fn device_plugins(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.init.pid);
        Path::new(&root).join("var/lib/kubelet/device-plugins")
    }

    /// Puts an RDMA device with an active port into the node.
    pub(super) fn add_rdma_device(&self) -> Result<(), Failed> {
        fs::create_dir_all(self.cni_config().join(RDMA_DEVICE).join("ports/1"))?;
        self.set_link("4: ACTIVE\n")
    }

    /// Removes it.
    pub(super) fn remove_rdma_device(&self) -> Result<(), Failed> {
        Ok(fs::remove_dir_all(self.cni_config().join("sys"))?)
    }

    /// Sets the state of its port, as the kernel writes it.
    pub(super) fn set_link(&self, state: &str) -> Result<(), Failed> {
        let port = self.cni_config().join(RDMA_DEVICE).join("ports/1");
        let new = port.join("new");
        fs::write(&new, state)?;
        Ok(fs::rename(new, port.join("state"))?)
    }

    /// Sets how many bytes the container runtime lets new containers lock. Returns the limit until
    /// now.
    pub(super) fn set_memlock(&self, limit: &str) -> Result<String, Failed> {
        let containerd = self.containerd()?.to_string();
        let limits = ["--memlock", "--output=SOFT", "--noheadings", "--raw"];
        let before = prlimit(&containerd, &limits)?;
        // With the colon, the upper bound stays, so that the limit can be raised again.
        prlimit(&containerd, &[&format!("--memlock={limit}:")])?;
        Ok(before.trim().to_owned())
    }

    /// Takes away the route from the address of a Pod to another one, or gives it back.
    pub(super) fn cut(&self, action: Cut, from: IpAddr, to: IpAddr) -> Result<(), Failed> {
        let action = match action {
            Cut::Add => "add",
            Cut::End => "del",
        };
        let (from, to) = (from.to_string(), to.to_string());
        self.ip(&["rule", action, "from", &from, "to", &to, "unreachable"])
    }

    /// Removes what this trial has added. Missing parts are not an error, because the trial may
    /// have failed early.
    pub(super) fn restore(&self) -> Result<(), Failed> {
        for folder in ["multus.d", "whereabouts.d", "sys"] {
            let folder = self.cni_config().join(folder);
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
        }
        for plugin in fs::read_dir(self.cni_plugins())? {
            fs::remove_file(plugin?.path())?;
        }
        // The other node's end may have ended with that of this one.
        let _ = self.ip(&["link", "del", CARD]);
        Ok(())
    }

    fn containerd(&self) -> Result<u32, Failed> {
        let children = format!("/proc/{0}/task/{0}/children", self.init.pid);
        let children = fs::read_to_string(children)?;
        let mut pids = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        let is_containerd = |pid: &u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "containerd")
        };
        Ok(pids.find(is_containerd).ok_or("no containerd runs")?)
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), Failed> {
        let network = format!("--net=/proc/{}/ns/net", self.init.pid);
        let mut enter = Command::new("nsenter");
        enter.args([&network, "--"]).arg(self.debian.path("bin/ip"));
        enter.args(arguments).envs(self.debian.env());
        Ok(command::run(&mut enter)?)
    }
}

/// What happens to a route.
#[derive(Clone, Copy)]
pub(super) enum Cut {
    /// It goes.
    Add,
    /// It comes back.
    End,
}

fn prlimit(pid: &str, arguments: &[&str]) -> Result<String, Failed> {
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", pid]).args(arguments);
    Ok(command::output(&mut prlimit)?)
}
