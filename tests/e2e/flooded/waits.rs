//! The delays of other users of the operator: an API server's dry run, users of the REST API and of
//! metrics, and probes. Also the delays of requests to servers without load.
//!
//! Each kind of work in a request to the operator has a witness: the API server's own work (a dry
//! run without webhooks), TLS with a new token that the API server reviews (a list from the API
//! server), and a process in a Pod with the operator's share of the processors (a witness beside
//! each Pod).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use cluster::plan::{API_PORT, HOST_IP};
use ipu_api::ipujob::IPUJob;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use libtest_mimic::Failed;
use tests::flood::delays::{Comparison, HIGH, MEDIAN, Measured, time_of};
use tests::flood::{exchange, exchange_tls};

use super::{PROBES, Running};
use crate::fixture::Fixture;

/// Longest additional wait of a user under load, beyond the delay of the slowest witness.
///
/// On a machine without idle processors, every process waits for a processor, regardless of the
/// operator. Without witnesses, the limit would apply to the machine. The durations of a witness
/// without load do not count, and the table shows both, so that the operator's part is visible.
const DELAY: Duration = Duration::from_secs(1);

/// Maximum number of the load's requests that end during the median wait that the load adds. On a
/// slow machine, the load is as slow as the user. The load sends about 600 concurrent requests:
/// without fairness, a user waits for all of them.
const REQUESTS_AHEAD: u32 = 300;

/// Name of the account of a user, and of its ClusterRole.
const USER: &str = "flooded-user";

/// Name of the binding that lets the user read metrics.
const READER: &str = "flooded-reader";

/// Requests that the operator serves or takes part in.
const REQUESTS: [&str; 5] = [
    "a dry run of an IPUJob",
    "`GET /stats`",
    "`GET /partitions`",
    "`GET /metrics`",
    "a probe",
];

/// Requests in which the operator takes no part.
const WITNESSES: [&str; 3] = [
    "a dry run of a ConfigMap",
    "IPUPartitions from the API server, with a new token",
    "`GET /healthz` of a Pod like the operator's",
];

/// The requests and their targets.
pub(super) struct Sent<'a> {
    pub(super) pods: &'a [Running],
    pub(super) job: &'a IPUJob,
    pub(super) user: &'a User,
    /// Addresses of the witness Pods.
    pub(super) witnesses: &'a [SocketAddr],
}

/// A user who may list IPUPartitions and read metrics.
pub(super) struct User(Api<ServiceAccount>);

/// The durations of all requests.
pub(super) struct Waits(Measured<{ REQUESTS.len() }, { WITNESSES.len() }>);

impl User {
    /// Creates the account and its rights.
    pub(super) async fn create(fixture: &Fixture) -> Result<Self, Failed> {
        let resource = "--resource=ipupartitions.graphcore.ai";
        let role = ["create", "clusterrole", USER, "--verb=list", resource];
        let account = format!("--serviceaccount=default:{USER}");
        fixture.kubectl(&["create", "serviceaccount", USER]).await?;
        fixture.kubectl(&role).await?;
        for (binding, role) in [(USER, USER), (READER, "ipu-operator-metrics-reader")] {
            let role = format!("--clusterrole={role}");
            let bind = ["create", "clusterrolebinding", binding, &role, &account];
            fixture.kubectl(&bind).await?;
        }
        let client = fixture.operated.client.clone();
        Ok(Self(Api::namespaced(client, "default")))
    }

    /// Deletes the account and its rights.
    pub(super) async fn delete(fixture: &Fixture) -> Result<(), Failed> {
        let names = [
            ("clusterrolebinding", READER),
            ("clusterrolebinding", USER),
            ("clusterrole", USER),
            ("serviceaccount", USER),
        ];
        for (kind, name) in names {
            fixture
                .kubectl(&["delete", kind, name, "--ignore-not-found"])
                .await?;
        }
        Ok(())
    }

    /// Creates a token for this audience (`None`: the API server's). The operator must have it
    /// reviewed.
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
    /// Sends every kind of request repeatedly during a period.
    pub(super) async fn measure(
        fixture: &Fixture,
        sent: &Sent<'_>,
        during: Duration,
    ) -> Result<Self, Failed> {
        let end = Instant::now() + during;
        let mut waits = Self(Measured::default());
        // The rate of the requests stays within the limits of one address and one user.
        let mut rounds = tokio::time::interval(Duration::from_millis(50));
        while Instant::now() < end {
            rounds.tick().await;
            let start = Instant::now();
            fixture.would_take(sent.job).await?;
            waits.0.requests[0].add(start.elapsed());
            // Each round has new tokens, because a reviewed token is cached.
            let of_rest = sent.user.token(Some("ipu-operator")).await?;
            let of_metrics = sent.user.token(None).await?;
            for pod in sent.pods {
                waits.add_pod(pod, [&of_rest, &of_metrics]).await?;
            }
            let of_witness = sent.user.token(None).await?;
            waits
                .add_witnesses(fixture, sent.witnesses, &of_witness)
                .await?;
        }
        Ok(waits)
    }

    async fn add_pod(
        &mut self,
        pod: &Running,
        [of_rest, of_metrics]: [&str; 2],
    ) -> Result<(), Failed> {
        let [_, stats, partitions, metrics, probe] = &mut self.0.requests;
        let (plain, secure) = (pod.at(8080), pod.at(8443));
        if pod.component == "vipu-proxy" {
            stats.add(answered(plain, &get("/stats", "")).await?);
            let request = get("/partitions", &bearer(of_rest));
            partitions.add(answered_tls(secure, &request).await?);
        } else {
            let request = get("/metrics", &bearer(of_metrics));
            metrics.add(answered_tls(secure, &request).await?);
        }
        probe.add(answered(pod.at(PROBES), &get("/readyz", "")).await?);
        Ok(())
    }

    async fn add_witnesses(
        &mut self,
        fixture: &Fixture,
        witnesses: &[SocketAddr],
        token: &str,
    ) -> Result<(), Failed> {
        let [dry_run, list, beside] = &mut self.0.witnesses;
        let start = Instant::now();
        would_take_a_map(fixture).await?;
        dry_run.add(start.elapsed());
        let api_server = SocketAddr::new(HOST_IP.parse::<IpAddr>()?, API_PORT);
        let path = "/apis/graphcore.ai/v1alpha1/ipupartitions";
        let request = get(path, &bearer(token));
        list.add(answered_tls(api_server, &request).await?);
        for witness in witnesses {
            beside.add(answered(*witness, &get("/healthz", "")).await?);
        }
        Ok(())
    }

    /// Prints the durations without and under load, on a machine that may do other work. Checks
    /// that few requests of the load, of which `ended` ended in `during`, delayed a user, beyond
    /// the delay of the slowest witness.
    pub(super) fn are_fair(
        &self,
        quiet: &Self,
        ended: u64,
        during: Duration,
    ) -> Result<(), Failed> {
        let allowed = time_of(REQUESTS_AHEAD, ended, during);
        let allowed = allowed.ok_or("no request of the load has ended")?;
        println!("{ended} requests of the load ended in {during:.1?}");
        self.are_within(quiet, MEDIAN, allowed)
    }

    /// Prints the durations without and under load, on a machine that does nothing else. Checks
    /// that no user waited more than a second longer than without load, beyond the delay of the
    /// slowest witness.
    pub(super) fn are_short(&self, quiet: &Self) -> Result<(), Failed> {
        self.are_within(quiet, HIGH, DELAY)
    }

    fn are_within(&self, quiet: &Self, percent: usize, allowed: Duration) -> Result<(), Failed> {
        let comparison = Comparison {
            requests: REQUESTS,
            witnesses: WITNESSES,
            quiet: &quiet.0,
            loaded: &self.0,
        };
        println!("{comparison}");
        let exceeding = comparison.exceeding(percent, allowed);
        let exceeding =
            exceeding.ok_or_else(|| format!("something was not measured:\n{comparison}"))?;
        if exceeding.is_empty() {
            return Ok(());
        }
        Err(format!("{}\n{comparison}", exceeding.join("; ")).into())
    }
}

/// Sends a request to the API server for which it calls no webhook.
async fn would_take_a_map(fixture: &Fixture) -> Result<(), kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(fixture.operated.client.clone(), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("witness".into());
    let asked = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    maps.create(&asked, &map).await.map(drop)
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// Sends a request over a new connection.
pub(super) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}connection: close\r\n\r\n")
}

/// Measures a request in plain text, whose response has the status 200.
pub(super) async fn answered(address: SocketAddr, request: &str) -> Result<Duration, Failed> {
    let start = Instant::now();
    let answer = exchange(address, &[request.as_bytes()]).await?;
    took(start, &answer)
}

/// Measures a request over TLS, whose response has the status 200.
async fn answered_tls(address: SocketAddr, request: &str) -> Result<Duration, Failed> {
    let start = Instant::now();
    let answer = exchange_tls(address, &[request.as_bytes()]).await?;
    took(start, &answer)
}

fn took(start: Instant, answer: &str) -> Result<Duration, Failed> {
    let took = start.elapsed();
    if answer.starts_with("HTTP/1.1 200 ") {
        return Ok(took);
    }
    let text: String = answer.chars().take(400).collect();
    Err(format!("it was answered after {took:.1?}: {text}").into())
}
