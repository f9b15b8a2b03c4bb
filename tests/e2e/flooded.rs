//! Nine Pods without rights load every port of the operator, and nobody else notices; then beside policies whose answers
//! are hostile, and both processes live on within their memory.

mod hostile;
mod load;
mod waits;

use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use tests::flood;
use tests::lab::cgroups;
use tests::lab::operator::NAMESPACE;
use tests::operator_process::OperatorProcess;

use hostile::Hostile;
use load::Flood;
use waits::{User, Waits};

use crate::scene::Scene;

/// How long the load lasts beside hostile policies, in seconds; `make flood` makes it ten minutes.
const SECONDS: &str = "IPU_OPERATOR_FLOOD_SECONDS";

/// The same where nothing is said, and how long others' waiting is measured.
const SHORT: u64 = 40;

/// A process of the operator: the component of its Pods, its container, and the ports that anybody reaches.
const PROCESSES: [(&str, &str, &[u16]); 2] = [
    ("controller", "controller", &[9443, 8443]),
    ("vipu-proxy", "vipu-proxy", &[8080, 8443]),
];

/// The port of the probes of both processes.
const PROBES: u16 = 8081;

/// Whatever is loaded: no container ends, every probe is answered, memory stays under its limit, and users wait for no
/// more than a second longer. With hostile policies: no container ends, and memory stays under its limit.
pub(crate) fn nobody_notices(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        // What was made for it goes in any case: a policy would decide for the trials that follow.
        let outcome = AssertUnwindSafe(loaded(scene)).catch_unwind().await;
        Flood::delete(scene).await?;
        Hostile::delete(scene).await?;
        User::delete(scene).await?;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

async fn loaded(scene: &Scene) -> Result<(), Failed> {
    let pods = Running::all(scene).await?;
    let user = User::create(scene).await?;
    let mut hostile = Hostile::new(scene);
    hostile.apply_slow().await?;
    let job = scene.example("01-single-worker.yaml")?;
    let hostile_for = std::env::var(SECONDS).ok();
    let hostile_for = hostile_for.map_or(Ok(SHORT), |text| text.parse())?;
    let quiet = Waits::measure(scene, &pods, (&job, &user), Duration::from_secs(10)).await?;
    let mut flood = Flood::begin(scene, &pods).await?;
    let during = Duration::from_secs(SHORT);
    let loaded = Waits::measure(scene, &pods, (&job, &user), during).await?;
    println!("without load: {quiet}\nwith it: {loaded}");
    loaded.are_within(&quiet)?;
    probes_were_answered(scene, &quiet).await?;
    // Such policies cost what an admin lets them cost, on cores that all share here: nobody's waiting is bounded, but
    // memory is.
    hostile.apply_all().await?;
    let hostile_for = Duration::from_secs(hostile_for);
    if let Ok(refused) = tokio::time::timeout(hostile_for, hostile.reload()).await {
        match refused? {}
    }
    let sent = flood.end()?;
    println!("the load: {sent:?}");
    for (kind, count) in &sent {
        assert!(*count > 0, "nothing of the load was {kind:?}");
    }
    for (before, after) in pods.iter().zip(Running::all(scene).await?) {
        before.went_on(&after)?;
    }
    hostile.are_active().await
}

/// No probe has failed since this was measured.
async fn probes_were_answered(scene: &Scene, since_then: &Waits) -> Result<(), Failed> {
    let events: Api<Event> = Api::namespaced(scene.operated.client.clone(), NAMESPACE);
    let unhealthy = ListParams::default().fields("reason=Unhealthy");
    let failed = events.list(&unhealthy).await?.items;
    let failed = failed
        .iter()
        .filter(|event| since(event, &since_then.began));
    let failed: Vec<_> = failed.filter_map(|event| event.message.clone()).collect();
    assert!(failed.is_empty(), "probes failed: {failed:?}");
    Ok(())
}

/// Is the load itself, on these targets in JSON, in the cgroups of this process.
pub(crate) fn load(pid: &str, targets: &str) -> anyhow::Result<()> {
    // Before there is a second thread, and before anything is sent.
    cgroups::join(pid.parse()?)?;
    let targets = serde_json::from_str(targets)?;
    tokio::runtime::Runtime::new()?.block_on(flood::run(targets))
}

/// Whether an event was told again after this.
fn since(event: &Event, began: &jiff::Timestamp) -> bool {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    last.is_some_and(|last| last > *began)
}

/// A quantity of memory, which the API server writes with the largest unit that leaves no fraction.
fn mib(quantity: &str) -> Option<u64> {
    let gib = quantity.strip_suffix("Gi").map(|gib| (gib, 1 << 10));
    let (number, unit) = gib.or_else(|| Some((quantity.strip_suffix("Mi")?, 1)))?;
    Some(number.parse::<u64>().ok()? * unit)
}

/// A Pod of the operator.
struct Running {
    name: String,
    component: &'static str,
    address: IpAddr,
    restarts: i32,
    /// The memory limit of its container, in KiB.
    limit: u64,
    ports: &'static [u16],
}

impl Running {
    async fn all(scene: &Scene) -> Result<Vec<Self>, Failed> {
        let pods: Api<Pod> = Api::namespaced(scene.operated.client.clone(), NAMESPACE);
        let mut all = Vec::new();
        for (component, container, ports) in PROCESSES {
            let of = format!("app.kubernetes.io/component={component}");
            for pod in pods.list(&ListParams::default().labels(&of)).await?.items {
                let (name, spec) = (pod.name_any(), pod.spec.unwrap_or_default());
                let status = pod.status.unwrap_or_default();
                let limit = spec
                    .containers
                    .iter()
                    .find(|one| one.name == container)
                    .and_then(|one| one.resources.as_ref()?.limits.as_ref()?.get("memory"))
                    .and_then(|limit| mib(&limit.0))
                    .ok_or("the container has no memory limit in Mi or Gi")?;
                let restarts = status.container_statuses.iter().flatten();
                all.push(Self {
                    name,
                    component,
                    address: status.pod_ip.ok_or("the Pod has no address")?.parse()?,
                    restarts: restarts.map(|one| one.restart_count).sum(),
                    limit: limit << 10,
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
