//! The machine's part of the cluster's network: a bridge, a veth pair to each node, and routes.
//!
//! `unreachable` routes for the addresses of Pods and Services are made first, and removed last.
//! Without them, while the cluster's own routes are missing, a packet for the cluster would leave
//! the machine by its default route and reach another network.
//!
//! The current state is read from the kernel. Only changes need the program `ip`.

use std::{
    io,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

mod routes;

use self::routes::{Range, Route};
use crate::{
    command::{self, CommandError},
    files::{At, FileError, read, remove as remove_file},
    plan::{API_PORT, BRIDGE, HOST_IP, NODE_RANGE, NODES, Node, POD_RANGE, SERVICE_RANGE},
    process::Process,
    tools::debian::Root,
};

/// Metric of the routes that keep packets on the machine: any other route wins.
const GUARD_METRIC: &str = "4096";

/// An address of the machine that no program uses. A program that listens on every address
/// conflicts with a listener here, as it does with the API server on the bridge, which does not
/// exist yet.
const PROBE: &str = "127.99.0.1";

/// Failure to make the network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// `ip` failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The kernel's state could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The machine uses the addresses of the cluster for something else.
    #[error(
        "the machine already has a route to {existing} by {device}, which overlaps {ours}, a range of the cluster: remove that route, or run on another machine"
    )]
    Overlap {
        /// The route that is there.
        existing: String,
        /// Its device.
        device: String,
        /// The range that the cluster needs.
        ours: &'static str,
    },
    /// Another program has the API server's port.
    #[error(
        "another program listens on port {port} of every address of this machine, which the cluster's API server needs: stop that program (`ss -ltnp 'sport = :{port}'` names it), or run on another machine"
    )]
    Port {
        /// The port.
        port: u16,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

/// The program `ip`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ip {
    debian: Option<Root>,
}

impl Ip {
    /// The `ip` of the Debian packages.
    pub fn of(debian: Root) -> Self {
        Self {
            debian: Some(debian),
        }
    }

    /// Writes its path to the run folder, so that `down` finds it even if the lock file has
    /// changed.
    pub fn record(&self, run: &Path) -> Result<(), FileError> {
        let Some(debian) = &self.debian else {
            return Ok(());
        };
        let link = record(run);
        remove_file(&link)?;
        symlink(debian.path(""), &link).at("make the link", &link)
    }

    /// The program that the run folder names, otherwise the machine's own.
    pub fn recorded(run: &Path) -> Self {
        let debian = Root::new(record(run));
        Self {
            debian: debian.path("bin/ip").exists().then_some(debian),
        }
    }

    /// Runs it with these arguments.
    pub fn run(&self, args: &[&str]) -> Result<(), CommandError> {
        let mut ip = match &self.debian {
            Some(debian) => debian.command("bin/ip"),
            None => Command::new("ip"),
        };
        command::run(ip.args(args))
    }
}

fn record(run: &Path) -> PathBuf {
    run.join("debian")
}

/// Fails if the machine uses addresses or the port of the cluster for something else.
pub fn check() -> Result<(), NetworkError> {
    let ours = [NODE_RANGE, SERVICE_RANGE, POD_RANGE];
    if let Some((route, ours)) = routes::overlap(&routes()?, BRIDGE, &ours) {
        return Err(NetworkError::Overlap {
            existing: route.range.to_string(),
            device: route.device.clone().unwrap_or_default(),
            ours,
        });
    }
    check_port(API_PORT)
}

fn check_port(port: u16) -> Result<(), NetworkError> {
    match TcpListener::bind((PROBE, port)) {
        Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
            Err(NetworkError::Port { port, source })
        }
        // Other errors of the probe do not concern the bridge.
        _ => Ok(()),
    }
}

/// Makes the `unreachable` routes and the bridge.
pub fn make_bridge(ip: &Ip) -> Result<(), CommandError> {
    for range in [SERVICE_RANGE, POD_RANGE] {
        ip.run(&[
            "route",
            "replace",
            "unreachable",
            range,
            "metric",
            GUARD_METRIC,
        ])?;
    }
    ip.run(&["link", "add", BRIDGE, "type", "bridge"])?;
    ip.run(&["addr", "add", &format!("{HOST_IP}/24"), "dev", BRIDGE])?;
    ip.run(&["link", "set", BRIDGE, "up"])
}

/// Makes the veth pair of a node. `init` is the node's first process.
pub fn connect(ip: &Ip, node: Node, init: Process) -> Result<(), CommandError> {
    let (cable, pid) = (node.cable(), init.pid.to_string());
    ip.run(&[
        "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &pid,
    ])?;
    ip.run(&["link", "set", &cable, "master", BRIDGE, "up"])
}

/// Routes Pods to their nodes, and Services to the first node, because every kube-proxy serves all
/// of them.
pub fn add_routes(ip: &Ip) -> Result<(), CommandError> {
    for node in NODES {
        let (range, gateway) = node.route();
        ip.run(&["route", "replace", &range, "via", &gateway])?;
    }
    ip.run(&["route", "replace", SERVICE_RANGE, "via", &NODES[0].ip()])
}

/// Removes the network. Missing parts are not an error. [`left`] returns the remaining ones.
pub fn remove(ip: &Ip) {
    let attempt = |args: &[&str]| {
        // `left` reports what could not be removed.
        let _ = ip.run(args);
    };
    for node in NODES {
        attempt(&["link", "del", &node.cable()]);
    }
    // This removes the routes over the bridge too.
    attempt(&["link", "del", BRIDGE]);
    for range in [SERVICE_RANGE, POD_RANGE] {
        attempt(&["route", "del", "unreachable", range, "metric", GUARD_METRIC]);
    }
}

/// Devices and routes of the cluster that still exist.
pub fn left() -> Result<Vec<String>, FileError> {
    let devices = read(Path::new("/proc/net/dev"))?;
    let there = |device: &str| {
        let mut names = devices.lines().filter_map(|line| line.split_once(':'));
        names.any(|(name, _)| name.trim() == device)
    };
    let ours = NODES
        .map(Node::cable)
        .into_iter()
        .chain([BRIDGE.to_owned()]);
    let mut left: Vec<String> = ours
        .filter(|device| there(device))
        .map(|device| format!("network device {device}"))
        .collect();
    let guards = [SERVICE_RANGE, POD_RANGE].map(Range::parse);
    left.extend(
        routes()?
            .into_iter()
            .filter(|route| route.device.is_none() && guards.contains(&Some(route.range)))
            .map(|route| format!("route unreachable {}", route.range)),
    );
    Ok(left)
}

fn routes() -> Result<Vec<Route>, FileError> {
    Ok(routes::parse(&read(Path::new("/proc/net/route"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listener_on_every_address_is_in_the_way() {
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = elsewhere.local_addr().unwrap().port();
        check_port(port).unwrap();
        let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = everywhere.local_addr().unwrap().port();
        let error = check_port(port).expect_err("the port is taken").to_string();
        assert!(error.contains(&format!("port {port} of every")), "{error}");
        assert!(error.contains("stop that program"), "{error}");
    }

    #[test]
    fn the_recorded_path_of_ip_is_used() {
        let run = tempfile::tempdir().unwrap();
        assert_eq!(Ip::recorded(run.path()).debian, None);
        let root = run.path().join("root");
        std::fs::create_dir_all(root.join("bin")).unwrap();
        std::fs::write(root.join("bin/ip"), "").unwrap();
        Ip::of(Root::new(root)).record(run.path()).unwrap();
        let found = Ip::recorded(run.path()).debian.unwrap();
        assert_eq!(found.path("bin/ip"), run.path().join("debian/bin/ip"));
    }
}
