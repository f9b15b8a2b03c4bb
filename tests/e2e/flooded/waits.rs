//! How long others wait for the operator: an API server's dry run, users of the REST and of metrics, and probes.

use std::fmt::{Display, Formatter, Result as Formatted};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ipu_api::ipujob::IPUJob;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};
use libtest_mimic::Failed;
use tests::flood::{exchange, exchange_tls};

use super::{PROBES, Running};
use crate::scene::Scene;

/// How much longer than without load anybody else may wait.
const DELAY: Duration = Duration::from_secs(1);

/// Name of the account of a user, and of the ClusterRole that it has.
const USER: &str = "flooded-user";

/// Name of the binding by which that user reads metrics.
const READER: &str = "flooded-reader";

/// What is measured, in the order of [`Waits::took`]. The witnesses are the last: nothing of the operator is asked for
/// them, and nobody loads who is, so that what they wait for is the machine.
const WHAT: [&str; 5 + WITNESSES] = [
    "a dry run of an IPUJob",
    "GET /stats",
    "GET /partitions",
    "GET /metrics",
    "a probe",
    "a dry run of a ConfigMap",
    "a probe of the DNS server",
];

/// How many of them are witnesses.
const WITNESSES: usize = 2;

/// A user who may list IPUPartitions and read metrics.
pub(super) struct User(Api<ServiceAccount>);

/// Durations of requests, each list from the shortest to the longest.
pub(super) struct Waits {
    pub(super) began: Timestamp,
    took: [Vec<Duration>; WHAT.len()],
}

impl User {
    /// Creates the account and its rights.
    pub(super) async fn create(scene: &Scene) -> Result<Self, Failed> {
        let resource = "--resource=ipupartitions.graphcore.ai";
        let role = ["create", "clusterrole", USER, "--verb=list", resource];
        let account = format!("--serviceaccount=default:{USER}");
        scene.kubectl(&["create", "serviceaccount", USER]).await?;
        scene.kubectl(&role).await?;
        for (binding, role) in [(USER, USER), (READER, "ipu-operator-metrics-reader")] {
            let role = format!("--clusterrole={role}");
            let bind = ["create", "clusterrolebinding", binding, &role, &account];
            scene.kubectl(&bind).await?;
        }
        let client = scene.operated.client.clone();
        Ok(Self(Api::namespaced(client, "default")))
    }

    /// Deletes the account and its rights.
    pub(super) async fn delete(scene: &Scene) -> Result<(), Failed> {
        let names = [
            ("clusterrolebinding", READER),
            ("clusterrolebinding", USER),
            ("clusterrole", USER),
            ("serviceaccount", USER),
        ];
        for (kind, name) in names {
            scene
                .kubectl(&["delete", kind, name, "--ignore-not-found"])
                .await?;
        }
        Ok(())
    }

    /// A new token for this audience (`None`: the API server's), which the operator has to have reviewed.
    async fn token(&self, audience: Option<&str>) -> Result<String, Failed> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: audience.map(|audience| vec![audience.to_owned()]),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let parameters = PostParams::default();
        let created = self.0.create_token_request(USER, &parameters, &request);
        let status = created.await?.status.ok_or("the token has no status")?;
        Ok(status.token.ok_or("the status has no token")?)
    }
}

impl Waits {
    /// Sends every kind of request again and again for a time.
    pub(super) async fn measure(
        scene: &Scene,
        pods: &[Running],
        (job, user): (&IPUJob, &User),
        during: Duration,
    ) -> Result<Self, Failed> {
        let dns = dns(scene).await?;
        let (began, end) = (Timestamp::now(), Instant::now() + during);
        let mut took = WHAT.map(|_| Vec::new());
        // What is measured stays within the rate of one address and one user.
        let mut rounds = tokio::time::interval(Duration::from_millis(50));
        while Instant::now() < end {
            rounds.tick().await;
            let start = Instant::now();
            scene.would_take(job).await?;
            took[0].push(start.elapsed());
            // Each round has tokens of its own: one that was reviewed before is not reviewed again.
            let of_rest = user.token(Some("ipu-operator")).await?;
            let of_metrics = user.token(None).await?;
            for pod in pods {
                Self::of_pod(&mut took, pod, [&of_rest, &of_metrics]).await?;
            }
            let start = Instant::now();
            witness(scene).await?;
            took[5].push(start.elapsed());
            let ready = get("/ready", "");
            took[6].push(answered(exchange(dns, &[ready.as_bytes()])).await?);
        }
        for took in &mut took {
            took.sort_unstable();
        }
        Ok(Self { began, took })
    }

    async fn of_pod(
        took: &mut [Vec<Duration>; WHAT.len()],
        pod: &Running,
        [of_rest, of_metrics]: [&str; 2],
    ) -> Result<(), Failed> {
        let (plain, secure) = (pod.at(8080), pod.at(8443));
        let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
        if pod.component == "vipu-proxy" {
            let stats = get("/stats", "");
            took[1].push(answered(exchange(plain, &[stats.as_bytes()])).await?);
            let partitions = get("/partitions", &bearer(of_rest));
            let partitions = &[partitions.as_bytes()];
            took[2].push(answered(exchange_tls(secure, partitions)).await?);
        } else {
            let metrics = get("/metrics", &bearer(of_metrics));
            took[3].push(answered(exchange_tls(secure, &[metrics.as_bytes()])).await?);
        }
        let probe = get("/readyz", "");
        took[4].push(answered(exchange(pod.at(PROBES), &[probe.as_bytes()])).await?);
        Ok(())
    }

    /// Nobody waited for more than a second longer than without load, and than the machine itself made everybody wait.
    pub(super) fn are_within(&self, quiet: &Self) -> Result<(), Failed> {
        let longest = |waits: &Self| -> Option<Vec<Duration>> {
            waits.took.iter().map(|took| took.last().copied()).collect()
        };
        let [loaded, quiet] = [longest(self), longest(quiet)];
        let (loaded, quiet) = loaded.zip(quiet).ok_or("nothing was measured")?;
        let (asked, witnesses) = loaded.split_at(WHAT.len() - WITNESSES);
        let machine: Duration = *witnesses.iter().max().ok_or("there is no witness")?;
        for ((what, most), before) in WHAT.iter().zip(asked).zip(quiet) {
            let allowed = before + machine + DELAY;
            assert!(
                *most <= allowed,
                "{what} took {most:?}, more than {allowed:?}"
            );
        }
        Ok(())
    }
}

impl Display for Waits {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Formatted {
        for (what, took) in WHAT.iter().zip(&self.took) {
            let (median, most) = (took.get(took.len() / 2), took.last());
            let [median, most] = [median, most].map(Option::<&_>::copied);
            let [median, most] = [median, most].map(Option::unwrap_or_default);
            let times = took.len();
            write!(
                formatter,
                "{what} {times}: {median:.1?}, at most {most:.1?}; "
            )?;
        }
        Ok(())
    }
}

/// The address at which the cluster's DNS server answers its own probe.
async fn dns(scene: &Scene) -> Result<SocketAddr, Failed> {
    let pods: Api<Pod> = Api::namespaced(scene.operated.client.clone(), "kube-system");
    let of = ListParams::default().labels("k8s-app=kube-dns");
    let pod = pods.list(&of).await?.items.into_iter().next();
    let ip = pod.and_then(|pod| pod.status?.pod_ip);
    let ip = ip.ok_or("the DNS server has no address")?;
    Ok(SocketAddr::new(ip.parse()?, 8181))
}

/// Asks the API server for what no webhook is called for.
async fn witness(scene: &Scene) -> Result<(), kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(scene.operated.client.clone(), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("witness".into());
    let asked = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    maps.create(&asked, &map).await.map(drop)
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}connection: close\r\n\r\n")
}

/// How long a request takes that is answered with 200.
async fn answered(
    exchange: impl Future<Output = std::io::Result<String>>,
) -> Result<Duration, Failed> {
    let start = Instant::now();
    let answer = exchange.await?;
    if answer.starts_with("HTTP/1.1 200 ") {
        return Ok(start.elapsed());
    }
    let told: String = answer.chars().take(400).collect();
    Err(format!("it was answered: {told}").into())
}
