//! Nine Pods without rights load every port of the operator; nobody else notices.

mod load;
mod slow;

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ipu_operator::api::ipujob::IPUJob;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use tests::flood::{self, exchange, exchange_tls};
use tests::lab::operator::NAMESPACE;
use tests::operator_process::OperatorProcess;

use load::Flood;

use crate::scene::Scene;

/// How long the load lasts, in seconds; `make flood` makes it ten minutes.
const SECONDS: &str = "IPU_OPERATOR_FLOOD_SECONDS";

/// The same where nothing is said.
const SHORT: u64 = 40;

/// How much longer than without load anybody else may wait.
const DELAY: Duration = Duration::from_secs(1);

/// Name of the account of a user.
const USER: &str = "flooded-user";

/// A process of the operator: the component of its Pods, its container, and the ports that anybody reaches.
const PROCESSES: [(&str, &str, &[u16]); 2] = [
    ("controller", "controller", &[9443, 8443]),
    ("vipu-proxy", "vipu-proxy", &[8080, 8443]),
];

/// The port of the probes of both processes.
const PROBES: u16 = 8081;

/// Whatever is loaded: no container ends, every probe is answered, memory stays under its limit, and users wait for no
/// more than a second longer.
pub(crate) fn nobody_notices(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let pods = Running::all(scene).await?;
        let token = user(scene).await?;
        slow::apply(scene).await?;
        let job = scene.example("01-single-worker.yaml")?;
        let seconds = std::env::var(SECONDS).ok();
        let seconds = seconds.map_or(Ok(SHORT), |text| text.parse())?;
        let quiet = Waits::measure(
            scene,
            &pods,
            (&job, token.as_str()),
            Duration::from_secs(10),
        )
        .await?;
        let mut flood = Flood::begin(scene, &pods).await?;
        let during = Duration::from_secs(seconds);
        let loaded = Waits::measure(scene, &pods, (&job, token.as_str()), during).await;
        let sent = flood.end()?;
        let loaded = loaded?;
        println!("without load: {quiet}\nwith it: {loaded}\nthe load: {sent:?}");
        for (kind, count) in &sent {
            assert!(*count > 0, "nothing of the load was {kind:?}");
        }
        loaded.are_within(&quiet)?;
        for (before, after) in pods.iter().zip(Running::all(scene).await?) {
            before.went_on(&after)?;
        }
        let events: Api<Event> = Api::namespaced(scene.operated.client.clone(), NAMESPACE);
        let unhealthy = ListParams::default().fields("reason=Unhealthy");
        let failed = events.list(&unhealthy).await?.items;
        let failed = failed.iter().filter(|event| since(event, &quiet.began));
        let failed: Vec<_> = failed.filter_map(|event| event.message.clone()).collect();
        assert!(failed.is_empty(), "probes failed: {failed:?}");
        slow::is_in_force_and_goes(scene).await?;
        flood.delete(scene).await
    })
}

/// Is the load itself, on these targets in JSON.
pub(crate) fn load(targets: &str) -> anyhow::Result<()> {
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

/// Makes a user who may list IPUPartitions. Answers a token.
async fn user(scene: &Scene) -> Result<String, Failed> {
    let resource = "--resource=ipupartitions.graphcore.ai";
    let role = ["create", "clusterrole", USER, "--verb=list", resource];
    let account = format!("--serviceaccount=default:{USER}");
    let of_role = format!("--clusterrole={USER}");
    scene.kubectl(&["create", "serviceaccount", USER]).await?;
    scene.kubectl(&role).await?;
    scene
        .kubectl(&["create", "clusterrolebinding", USER, &of_role, &account])
        .await?;
    let audience = ["create", "token", USER, "--audience=ipu-operator"];
    Ok(scene.kubectl(&audience).await?.trim().to_owned())
}

/// How long things took.
struct Waits {
    began: jiff::Timestamp,
    took: Vec<(&'static str, Vec<Duration>)>,
}

impl Waits {
    /// Asks for everything again and again for so long.
    async fn measure(
        scene: &Scene,
        pods: &[Running],
        (job, token): (&IPUJob, &str),
        during: Duration,
    ) -> Result<Self, Failed> {
        let (began, end) = (jiff::Timestamp::now(), Instant::now() + during);
        let proxies = pods.iter().filter(|pod| pod.component == "vipu-proxy");
        let proxies: Vec<_> = proxies.collect();
        let stats = get("/stats", "");
        let partitions = get("/partitions", &format!("authorization: Bearer {token}\r\n"));
        let probe = get("/readyz", "");
        let mut took = [
            "a dry run of an IPUJob",
            "GET /stats",
            "GET /partitions",
            "a probe",
        ]
        .map(|what| (what, Vec::new()));
        // What is measured stays within the rate of one address and one user.
        let mut rounds = tokio::time::interval(Duration::from_millis(50));
        while Instant::now() < end {
            rounds.tick().await;
            let start = Instant::now();
            scene.would_take(job).await?;
            took[0].1.push(start.elapsed());
            for proxy in &proxies {
                let start = Instant::now();
                is_good(&exchange(proxy.at(8080), &[stats.as_bytes()]).await?)?;
                took[1].1.push(start.elapsed());
                let start = Instant::now();
                let request = &[partitions.as_bytes()];
                is_good(&exchange_tls(proxy.at(8443), request).await?)?;
                took[2].1.push(start.elapsed());
            }
            for pod in pods {
                let start = Instant::now();
                is_good(&exchange(pod.at(PROBES), &[probe.as_bytes()]).await?)?;
                took[3].1.push(start.elapsed());
            }
        }
        for (_, took) in &mut took {
            took.sort_unstable();
        }
        let took = took.into();
        Ok(Self { began, took })
    }

    /// Nobody waited for more than a second longer than without load.
    fn are_within(&self, quiet: &Self) -> Result<(), Failed> {
        for ((what, took), (_, before)) in self.took.iter().zip(&quiet.took) {
            let (most, before) = (took.last(), before.last());
            let most = most.ok_or("nothing was measured")?;
            let allowed = *before.ok_or("nothing was measured")? + DELAY;
            assert!(
                *most <= allowed,
                "{what} took {most:?}, more than {allowed:?}"
            );
        }
        Ok(())
    }
}

impl Display for Waits {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, took) in &self.took {
            let (median, most) = (took.get(took.len() / 2), took.last());
            write!(
                formatter,
                "{what} {}: {median:?}, at most {most:?}; ",
                took.len()
            )?;
        }
        Ok(())
    }
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}connection: close\r\n\r\n")
}

fn is_good(answer: &str) -> Result<(), Failed> {
    if answer.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    let start: String = answer.chars().take(400).collect();
    Err(format!("it was answered: {start}").into())
}
