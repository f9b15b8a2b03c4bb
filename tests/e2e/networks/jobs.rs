//! Jobs of two workers that exchange messages over the second interface.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::labels::{JOB_NAME_LABEL, ROLE_LABEL};
use ipu_api::naming;
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE};
use crate::pods::node_of;

/// Bytes that each rank sends to the other one.
const SENT: u64 = 8 << 20;

/// The most that may arrive over the network of Pods meanwhile: what MPI's daemons say to each
/// other.
const BESIDE: u64 = 1 << 20;

/// A rank that waits until the file `/tmp/go` exists, exchanges messages, and reports what it sees
/// of its networks: the addresses of `ip -4 address`, the table of `route -n`, and the bytes that
/// have arrived.
const RANK: &str = r#"
import fcntl, json, os, socket, struct, time
from mpi4py import MPI

def address(interface):
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    reply = fcntl.ioctl(probe, 0x8915, struct.pack("256s", interface.encode()))
    return socket.inet_ntoa(reply[20:24])

def dotted(word):
    return socket.inet_ntoa(struct.pack("<L", int(word, 16)))

def received():
    rows = [line.split(":") for line in open("/proc/net/dev") if ":" in line]
    return {row[0].strip(): int(row[1].split()[0]) for row in rows}

open("/tmp/runs", "w").close()
while not os.path.exists("/tmp/go"):
    time.sleep(0.1)
world = MPI.COMM_WORLD
before, other = received(), 1 - world.rank
world.sendrecv(b"x" * (8 << 20), dest=other, source=other)
after = received()
rows = [line.split() for line in open("/proc/net/route")][1:]
report = {
    "addresses": {name: address(name) for _, name in socket.if_nameindex()},
    "routes": [[dotted(row[1]), dotted(row[2]), dotted(row[7]), row[0]] for row in rows],
    "received": {name: after[name] - before[name] for name in after},
}
print(json.dumps(report) + "\n", end="", flush=True)
"#;

/// What a rank prints.
#[derive(Debug, Deserialize)]
struct Report {
    addresses: BTreeMap<String, Ipv4Addr>,
    /// Destination, gateway, mask and interface.
    routes: Vec<(Ipv4Addr, Ipv4Addr, Ipv4Addr, String)>,
    received: BTreeMap<String, u64>,
}

/// Where the two workers of a job run.
#[derive(Clone, Copy)]
pub(super) enum Spread {
    /// On different nodes. A worker waits for a node that may not run it yet.
    OnBoth,
    /// On different nodes, of those that may run them.
    OnFitting,
}

/// A job of two workers, of a user who is not root.
pub(super) fn job(fixture: &Fixture, name: &str, spread: Spread) -> Result<IPUJob, Failed> {
    let policy = match spread {
        Spread::OnBoth => "Ignore",
        Spread::OnFitting => "Honor",
    };
    let mpirun = "mpirun -np 2 --bind-to none --mca btl_tcp_if_include net1 python3 -c";
    let command: Vec<&str> = mpirun.split(' ').chain([RANK]).collect();
    let mut job = fixture.parallel(OpenMpi::Four, 1000, &command)?;
    job.metadata.name = Some(name.to_owned());
    let workers = json!({JOB_NAME_LABEL: name, ROLE_LABEL: "worker"});
    job.spec.workers.template.0["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": policy,
        "labelSelector": {"matchLabels": workers},
    }]);
    Ok(job)
}

/// Waits until these jobs run at the same time, each on these nodes, lets them exchange their
/// messages over the second interface, and deletes them.
pub(super) async fn exchange(
    fixture: &Fixture,
    names: &[&str],
    nodes: &[&str],
) -> Result<(), Failed> {
    for name in names {
        let mut used = BTreeSet::new();
        for index in 0..2 {
            let worker = naming::worker(name, index);
            once_started(fixture, &worker).await?;
            used.insert(node_of(fixture, &worker).await?);
        }
        assert!(used.iter().eq(nodes), "{name}: {used:?}");
        has_one_network(fixture, &naming::launcher(name)).await?;
    }
    for name in names {
        for index in 0..2 {
            let worker = naming::worker(name, index);
            let go = ["exec", &worker, "--", "touch", "/tmp/go"];
            fixture.kubectl(&go).await?;
        }
    }
    let mut addresses = BTreeSet::new();
    for name in names {
        fixture.once(name, JobState::Completed).await?;
        let launcher = naming::launcher(name);
        let log = fixture.kubectl(&["logs", &launcher]).await?;
        let reports = log.lines().filter(|line| line.starts_with('{'));
        for report in reports {
            let report: Report = serde_json::from_str(report)?;
            report.check();
            addresses.insert(report.addresses["net1"]);
        }
    }
    assert_eq!(addresses.len(), 2 * names.len(), "{addresses:?}");
    fixture.clear().await
}

/// Waits until the rank of a worker runs.
async fn once_started(fixture: &Fixture, worker: &str) -> Result<(), Failed> {
    until(
        format!("the rank in {worker} to run"),
        PATIENCE,
        async || {
            let look = ["exec", worker, "--", "ls", "/tmp/runs"];
            fixture.kubectl(&look).await.map(Seen::Yes)
        },
    )
    .await?;
    Ok(())
}

/// Checks that Multus gave a Pod only the network of Pods.
async fn has_one_network(fixture: &Fixture, pod: &str) -> Result<(), Failed> {
    let status = r"jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}";
    let status = ["get", "pod", pod, "--output", status];
    let networks: Vec<serde_json::Value> = serde_json::from_str(&fixture.kubectl(&status).await?)?;
    assert_eq!(networks.len(), 1, "{networks:?}");
    assert_eq!(networks[0]["interface"], "eth0");
    Ok(())
}

impl Report {
    /// The Pod has three interfaces. Only the subnet of the cards is reached over the third one,
    /// and so were the messages.
    fn check(&self) {
        let interfaces: Vec<&str> = self.addresses.keys().map(String::as_str).collect();
        assert_eq!(interfaces, ["eth0", "lo", "net1"], "{self:?}");
        let [subnet @ .., number] = self.addresses["net1"].octets();
        assert!(subnet == [10, 247, 208] && number >= 128, "{self:?}");
        let over = |interface: &str| {
            let of_interface = self.routes.iter().filter(|route| route.3 == interface);
            let routes =
                of_interface.map(|(destination, gateway, mask, _)| (*destination, *gateway, *mask));
            routes.collect::<Vec<_>>()
        };
        let none = Ipv4Addr::UNSPECIFIED;
        let subnet = (
            Ipv4Addr::new(10, 247, 208, 0),
            none,
            Ipv4Addr::new(255, 255, 255, 0),
        );
        assert_eq!(over("net1"), [subnet], "{self:?}");
        let is_default = |route: &(Ipv4Addr, Ipv4Addr, Ipv4Addr)| {
            route.0 == none && route.1 != none && route.2 == none
        };
        assert!(over("eth0").iter().any(is_default), "{self:?}");
        assert!(self.received["net1"] >= SENT, "{self:?}");
        assert!(self.received["eth0"] < BESIDE, "{self:?}");
    }
}
