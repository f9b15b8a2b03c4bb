//! The machine's part of the cluster's network: a bridge, a cable to each node, and routes.
//!
//! The first thing made are `unreachable` routes for the addresses of Pods and Services, and the
//! last thing removed. Without them a packet for the cluster would leave the machine by its default
//! route while the cluster's own routes are missing, and reach a stranger.

use std::{net::Ipv4Addr, process::Command};

use serde::Deserialize;

use super::{
    cluster::plan::{BRIDGE, HOST_IP, NODE_RANGE, NODES, Node, POD_RANGE, SERVICE_RANGE},
    command::{self, CommandError},
    process::Process,
};

/// Metric of the routes that keep packets on the machine: any other route wins.
const GUARD_METRIC: &str = "4096";

/// Why the network could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// `ip` failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// `ip` printed something else than JSON.
    #[error("failed to read the routes that `ip` prints")]
    Routes(#[source] serde_json::Error),
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
}

#[derive(Debug, Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    dev: Option<String>,
}

/// Refuses to go on where the machine uses addresses of the cluster for something else.
pub fn check() -> Result<(), NetworkError> {
    let printed = command::output(&mut ip(&["-j", "-4", "route", "show"]))?;
    let routes: Vec<Route> = if printed.trim().is_empty() {
        Vec::new()
    } else {
        serde_json::from_str(&printed).map_err(NetworkError::Routes)?
    };
    match overlap(&routes) {
        Some((route, ours)) => Err(NetworkError::Overlap {
            existing: route.dst.clone(),
            device: route.dev.clone().unwrap_or_else(|| "no device".to_owned()),
            ours,
        }),
        None => Ok(()),
    }
}

/// Makes the guards and the bridge.
pub fn make_bridge() -> Result<(), NetworkError> {
    for range in [SERVICE_RANGE, POD_RANGE] {
        run(&[
            "route",
            "replace",
            "unreachable",
            range,
            "metric",
            GUARD_METRIC,
        ])?;
    }
    run(&["link", "add", BRIDGE, "type", "bridge"])?;
    run(&["addr", "add", &format!("{HOST_IP}/24"), "dev", BRIDGE])?;
    run(&["link", "set", BRIDGE, "up"])
}

/// Lays the cable into a node whose first process is `init`.
pub fn connect(node: Node, init: Process) -> Result<(), NetworkError> {
    let (cable, pid) = (node.cable(), init.pid.to_string());
    run(&[
        "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &pid,
    ])?;
    run(&["link", "set", &cable, "master", BRIDGE, "up"])
}

/// Routes Pods to their nodes, and Services to the first node, whose kube-proxy knows them all.
pub fn add_routes() -> Result<(), NetworkError> {
    for node in NODES {
        let (range, gateway) = node.route();
        run(&["route", "replace", &range, "via", &gateway])?;
    }
    run(&["route", "replace", SERVICE_RANGE, "via", &NODES[0].ip()])
}

/// Removes all of it. What is not there is fine; what is left is told by [`left`].
pub fn remove() {
    for node in NODES {
        attempt(&["link", "del", &node.cable()]);
    }
    // The routes by way of the bridge go with it.
    attempt(&["link", "del", BRIDGE]);
    for range in [SERVICE_RANGE, POD_RANGE] {
        attempt(&["route", "del", "unreachable", range, "metric", GUARD_METRIC]);
    }
}

/// Devices and routes of the cluster that still exist.
pub fn left() -> Vec<String> {
    let mut left = Vec::new();
    let cables = NODES.map(Node::cable);
    for device in cables.iter().map(String::as_str).chain([BRIDGE]) {
        if command::run(&mut ip(&["link", "show", device])).is_ok() {
            left.push(format!("network device {device}"));
        }
    }
    let routes = command::output(&mut ip(&["-4", "route", "show", "type", "unreachable"]));
    for line in routes.unwrap_or_default().lines() {
        if [SERVICE_RANGE, POD_RANGE]
            .iter()
            .any(|range| line.contains(range))
        {
            left.push(format!("route {}", line.trim()));
        }
    }
    left
}

/// The first route that is in the way, and which range it overlaps. The default route is not, nor
/// are the cluster's own.
fn overlap(routes: &[Route]) -> Option<(&Route, &'static str)> {
    let foreign = routes.iter().filter(|route| {
        let device = route.dev.as_deref();
        route.dst != "default" && device.is_some() && device != Some(BRIDGE)
    });
    foreign.into_iter().find_map(|route| {
        [NODE_RANGE, SERVICE_RANGE, POD_RANGE]
            .into_iter()
            .find(|ours| overlaps(&route.dst, ours))
            .map(|ours| (route, ours))
    })
}

/// Whether two ranges share an address. What is no range overlaps nothing.
fn overlaps(a: &str, b: &str) -> bool {
    let (Some((a, a_bits)), Some((b, b_bits))) = (parse(a), parse(b)) else {
        return false;
    };
    let mask = u32::MAX
        .checked_shl(32 - u32::from(a_bits.min(b_bits)))
        .unwrap_or(0);
    a & mask == b & mask
}

fn parse(range: &str) -> Option<(u32, u8)> {
    let (address, bits) = range.split_once('/').unwrap_or((range, "32"));
    let bits = bits.parse().ok().filter(|bits| *bits <= 32)?;
    Some((address.parse::<Ipv4Addr>().ok()?.to_bits(), bits))
}

fn run(args: &[&str]) -> Result<(), NetworkError> {
    Ok(command::run(&mut ip(args))?)
}

/// Tries something whose failure shows in [`left`].
fn attempt(args: &[&str]) {
    let _ = command::run(&mut ip(args));
}

fn ip(args: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(dst: &str, dev: Option<&str>) -> Route {
        Route {
            dst: dst.to_owned(),
            dev: dev.map(str::to_owned),
        }
    }

    #[test]
    fn ranges_overlap_where_one_holds_the_other() {
        assert!(overlaps("10.0.0.0/8", "10.96.0.0/16"));
        assert!(overlaps("10.99.0.7", "10.99.0.0/24"));
        assert!(overlaps("0.0.0.0/0", "10.99.0.0/24"));
        assert!(!overlaps("10.97.0.0/16", "10.96.0.0/16"));
        assert!(!overlaps("garbage", "10.96.0.0/16"));
        assert!(!overlaps("10.0.0.0/99", "10.96.0.0/16"));
    }

    #[test]
    fn only_routes_of_others_are_in_the_way() {
        let ours = [
            route("default", Some("eth0")),
            route("10.99.0.0/24", Some(BRIDGE)),
            route("10.96.0.0/16", None),
            route("192.168.1.0/24", Some("eth0")),
        ];
        assert!(overlap(&ours).is_none());
        let foreign = [route("10.0.0.0/8", Some("tun0"))];
        let (found, range) = overlap(&foreign).unwrap();
        assert_eq!((found.dst.as_str(), range), ("10.0.0.0/8", NODE_RANGE));
    }
}
