//! Nine Pods without rights load every port of the operator, and other users are unaffected. Then
//! the same beside policies with hostile answers: both processes respect their memory limits. No
//! probe fails and no container ends from start to end.

mod hostile;
mod load;
mod probes;
mod waits;
mod witnesses;

use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::{Duration, Instant};

use cluster::cgroups;
use cluster::wait::{Seen, until};
use futures::FutureExt;
use harness::operator::NAMESPACE;
use harness::operator_process::OperatorProcess;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use tests::flood;

use hostile::Hostile;
use load::Flood;
use waits::{Sent, User, Waits};

use crate::fixture::{Fixture, PATIENCE};

/// Duration of the load beside hostile policies, in seconds. `make flood` sets ten minutes.
const SECONDS: &str = "IPU_OPERATOR_FLOOD_SECONDS";

/// The default of this duration, and the duration of the measurement of other users' delays.
const SHORT: u64 = 40;

/// A process of the operator: the component of its Pods, its container, and the ports that every
/// Pod reaches.
const PROCESSES: [(&str, &str, &[u16]); 2] = [
    ("controller", "controller", &[9443, 8443]),
    ("vipu-proxy", "vipu-proxy", &[8080, 8443]),
];

/// The port of the probes of both processes.
const PROBES: u16 = 8081;

/// Under any load, no container ends, every probe is answered, memory stays below its limit, and a
/// user waits for few requests of the load, or at most a second longer in `make flood`, beyond the
/// delay that the machine causes for everybody. With hostile policies the same holds, except for
/// the delay.
pub(crate) fn users_are_unaffected(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        // The cleanup always runs, because a policy would affect the following trials.
        let outcome = AssertUnwindSafe(loaded(fixture)).catch_unwind().await;
        Flood::delete(fixture).await?;
        Hostile::delete(fixture).await?;
        witnesses::delete(fixture).await?;
        User::delete(fixture).await?;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))?;
        // After the policies: they refuse changes of large objects.
        fixture.clear().await
    })
}

async fn loaded(fixture: &Fixture) -> Result<(), Failed> {
    let pods = Running::all(fixture).await?;
    let user = User::create(fixture).await?;
    let witnesses = witnesses::create(fixture, &pods).await?;
    let mut hostile = Hostile::new(fixture);
    hostile.apply_slow().await?;
    let job = fixture.example("01-single-worker.yaml")?;
    let hostile_for = std::env::var(SECONDS).ok();
    let is_long = hostile_for.is_some();
    let hostile_for = hostile_for.map_or(Ok(SHORT), |text| text.parse())?;
    let sent = Sent {
        pods: &pods,
        job: &job,
        user: &user,
        witnesses: &witnesses,
    };
    let quiet = Waits::measure(fixture, &sent, Duration::from_secs(10)).await?;
    let probes = probes::now(fixture, &pods).await?;
    let mut flood = Flood::begin(fixture, &pods).await?;
    let during = Duration::from_secs(SHORT);
    let (began, before) = (Instant::now(), flood.ended()?);
    let loaded = Waits::measure(fixture, &sent, during).await?;
    if is_long {
        loaded.are_short(&quiet)?;
    } else {
        loaded.are_fair(&quiet, flood.ended()? - before, began.elapsed())?;
    }
    // The admin defines the cost of such policies, and all processes share the same cores. So the
    // delay of other users has no limit here, and memory has one.
    hostile.apply_all().await?;
    let hostile_for = Duration::from_secs(hostile_for);
    let reloaded = tokio::time::timeout(hostile_for, hostile.reload());
    let (reloaded, placed) = tokio::join!(reloaded, is_placed(fixture, &job));
    if let Ok(refused) = reloaded {
        match refused? {}
    }
    placed?;
    let load = flood.end()?;
    println!("the load: {load:?}");
    for (kind, count) in &load {
        assert!(*count > 0, "the load contained no {kind:?}");
    }
    probes::were_answered(&probes, &probes::now(fixture, &pods).await?, &pods)?;
    let after = Running::all(fixture).await?;
    assert_eq!(after.len(), pods.len(), "another number of Pods");
    for (before, after) in pods.iter().zip(&after) {
        before.went_on(after)?;
    }
    hostile.are_active().await
}

/// Creates a job beside the load, and waits until it has completed. The operator calls the hostile
/// placement policy for its partition, and the built-in walk decides.
async fn is_placed(fixture: &Fixture, job: &IPUJob) -> Result<(), Failed> {
    until("the job to be accepted", PATIENCE, || async {
        match fixture.create(job).await {
            // An earlier request has created it, and its answer came too late.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Seen::Yes(())),
            created => created.map(Seen::Yes),
        }
    })
    .await?;
    fixture.once(&job.name_any(), JobState::Completed).await?;
    Ok(())
}

/// Runs the load itself, on these targets in JSON, in the cgroups of this process.
pub(crate) fn load(pid: &str, targets: &str) -> anyhow::Result<()> {
    // Before a second thread starts, and before the first request.
    cgroups::join(pid.parse()?)?;
    let targets = serde_json::from_str(targets)?;
    tokio::runtime::Runtime::new()?.block_on(flood::run(targets))
}

/// Parses a quantity of memory, which the API server writes with the largest unit that leaves no
/// fraction.
fn mib(quantity: &str) -> Option<u64> {
    let gib = quantity.strip_suffix("Gi").map(|gib| (gib, 1 << 10));
    let (number, unit) = gib.or_else(|| Some((quantity.strip_suffix("Mi")?, 1)))?;
    Some(number.parse::<u64>().ok()? * unit)
}

/// A Pod of the operator.
struct Running {
    name: String,
    component: &'static str,
    node: String,
    address: IpAddr,
    restarts: i32,
    resources: ResourceRequirements,
    /// The memory limit of its container, in KiB.
    limit: u64,
    ports: &'static [u16],
}

impl Running {
    async fn all(fixture: &Fixture) -> Result<Vec<Self>, Failed> {
        let pods: Api<Pod> = Api::namespaced(fixture.operated.client.clone(), NAMESPACE);
        let mut all = Vec::new();
        for (component, container, ports) in PROCESSES {
            let of = format!("app.kubernetes.io/component={component}");
            for pod in pods.list(&ListParams::default().labels(&of)).await?.items {
                let (name, spec) = (pod.name_any(), pod.spec.unwrap_or_default());
                let status = pod.status.unwrap_or_default();
                let found = spec.containers.iter().find(|one| one.name == container);
                let resources = found.and_then(|one| one.resources.clone());
                let resources = resources.ok_or("the container has no resources")?;
                let limit = resources.limits.as_ref();
                let limit = limit
                    .and_then(|limits| mib(&limits.get("memory")?.0))
                    .ok_or("the container has no memory limit in Mi or Gi")?;
                let restarts = status.container_statuses.iter().flatten();
                all.push(Self {
                    name,
                    component,
                    node: spec.node_name.ok_or("the Pod has no node")?,
                    address: status.pod_ip.ok_or("the Pod has no address")?.parse()?,
                    restarts: restarts.map(|one| one.restart_count).sum(),
                    limit: limit << 10,
                    resources,
                    ports,
                });
            }
        }
        Ok(all)
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }

    fn went_on(&self, after: &Self) -> Result<(), Failed> {
        assert_eq!((&self.name, self.restarts), (&after.name, after.restarts));
        let most = OperatorProcess::find(self.component, Some(&self.name))?.most_resident_kib()?;
        println!("{}: {} of {} MiB", self.name, most >> 10, self.limit >> 10);
        assert!(most < self.limit, "{} took {most} KiB", self.name);
        Ok(())
    }
}
