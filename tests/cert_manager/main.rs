//! The operator's certificates from a real cert-manager: its controller and its cainjector run
//! beside the suite's API server. Their build takes minutes, so this is a part of `make test-full`.
#![allow(
    clippy::unwrap_used,
    reason = "an error in a test's helper fails the test"
)]

#[expect(dead_code, reason = "only its own suite uses the rest of it")]
#[path = "../apiserver/definitions.rs"]
mod definitions;
#[expect(dead_code, reason = "only its own suite uses the rest of it")]
#[path = "../apiserver/planes.rs"]
mod planes;
#[expect(dead_code, reason = "only its own suite uses the rest of it")]
#[path = "../apiserver/processes.rs"]
mod processes;
/// The admin with Helm, whom the processes need.
#[path = "../apiserver/chart"]
mod chart {
    #[expect(dead_code, reason = "only its own suite uses the rest of it")]
    pub(crate) mod admin;
}

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use chart::admin::Admin;
use cluster::control_plane::ControlPlane;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::supervisor::{Program, Supervisor};
use cluster::tools::Tools;
use cluster::wait::{Seen, eventually};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use processes::{Given, Installation};
use serde_json::{Value, json};

/// Namespace and release.
const NAMESPACE: &str = "ipu-operator";

/// The Secret of the webhooks, and the Certificate from which cert-manager creates it. The chart
/// names both.
const SECRET: &str = "ipu-operator-admission";

/// The admin's own CA, and the issuer that signs with it.
const ISSUERS: &str = "
apiVersion: v1
kind: Namespace
metadata: { name: ipu-operator }
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: { name: self-signed, namespace: ipu-operator }
spec: { selfSigned: {} }
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: { name: test-ca, namespace: ipu-operator }
spec:
  isCA: true
  commonName: test-ca
  secretName: test-ca
  issuerRef: { name: self-signed, kind: Issuer, group: cert-manager.io }
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: { name: test-ca, namespace: ipu-operator }
spec: { ca: { secretName: test-ca } }
";

#[tokio::test(flavor = "multi_thread")]
async fn cert_manager_makes_the_certificates_and_renews_them_without_a_lost_request() {
    let plane = ControlPlane::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let _cert_manager = cert_manager(&plane, folder.path()).await;
    let given = Given {
        values: vec![
            "certificates.source=certManager",
            "certificates.certManager.issuerRef.name=test-ca",
        ],
        // The arguments are those of the chart with these values.
        controller: vec!["--webhook-certificate=given", "--webhook-ca-bundle=false"],
        proxy: vec![
            "--certificate=given",
            "--certificate-secret=ipu-operator-vipu-proxy-tls",
        ],
        ..Given::default()
    };
    let installation = Installation::of(plane.into(), given).await;
    let proxy = installation.proxy("proxy", Vec::new()).await;
    let controller = installation.controller("controller", Vec::new()).await;
    installation.submit(&job("first")).await;
    installation.runs("first-worker-0").await;
    installation.once("first", JobState::Running).await;
    refused(&installation).await;

    let requests = Requests::start(&installation);
    let admin = Admin::of(NAMESPACE, installation.plane.kubeconfig());
    let first = once_another(&installation, None).await;
    renew(&admin);
    let second = once_another(&installation, Some(&first)).await;
    requests.go_on(&controller, 1).await;

    let secrets: Api<Secret> = Api::namespaced(installation.client.clone(), NAMESPACE);
    secrets
        .delete(SECRET, &DeleteParams::default())
        .await
        .unwrap();
    once_another(&installation, Some(&second)).await;
    requests.go_on(&controller, 2).await;
    requests.end().await;
    for process in [&controller, &proxy] {
        process.must_run();
    }
}

/// Starts both programs of cert-manager, and waits until an issuer of the admin works.
async fn cert_manager(plane: &ControlPlane, folder: &Path) -> Supervisor {
    let settings = Settings::from_env().unwrap();
    let fetched = tokio::task::spawn_blocking(move || {
        let tools = Tools::fetch_some(&settings, &Progress::start(), &["cert-manager"]);
        let source = Tools::source(&settings, "cert-manager");
        (tools.unwrap(), source.unwrap())
    });
    let (tools, source) = fetched.await.unwrap();
    let admin = Admin::of(NAMESPACE, plane.kubeconfig());
    define_all(plane, &admin, &source.join("deploy/crds")).await;
    let program = |name: &'static str, args: &[&str]| Program {
        name,
        path: tools.program(name).to_owned(),
        args: [
            &[&*format!("--kubeconfig={}", plane.kubeconfig().display())],
            &["--leader-elect=false"][..],
            args,
        ]
        .concat()
        .iter()
        .map(ToString::to_string)
        .collect(),
        env: Vec::new(),
        log: folder.join(format!("{name}.log")),
    };
    let controller = [
        "--metrics-listen-address=127.0.0.1:0",
        "--cluster-resource-namespace=ipu-operator",
    ];
    let programs = vec![
        program("cert-manager-controller", &controller),
        program("cert-manager-cainjector", &[]),
    ];
    let supervisor = Supervisor::start(programs).unwrap();
    let issuers = admin.file("issuers.yaml", ISSUERS);
    admin.kubectl(&["apply", "--filename", &issuers]).unwrap();
    eventually("cert-manager's issuer is ready", async || {
        let logs = ["controller", "cainjector"].map(|name| {
            let log = folder.join(format!("cert-manager-{name}.log"));
            fs::read_to_string(log).unwrap_or_default()
        });
        assert_eq!(supervisor.first_dead(), None, "{}", logs.concat());
        let ready = "--output=jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        let get = ["get", "issuer", "test-ca", "--namespace", NAMESPACE, ready];
        let found = admin.kubectl(&get).map_err(|error| error.to_string());
        match found {
            Ok(ready) if ready == "True" => Seen::Yes(()),
            other => Seen::NotYet(format!("{other:?}")),
        }
    })
    .await;
    supervisor
}

/// Applies every CRD of a folder, and waits until the API server serves them.
async fn define_all(plane: &ControlPlane, admin: &Admin, folder: &Path) {
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        if file
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            define(admin, &file);
        }
    }
    let client = plane.client().await.unwrap();
    cluster::definitions::once_served(&client).await;
}

/// Applies a CRD of cert-manager. The files are templates of its chart, in which only labels depend
/// on values.
fn define(admin: &Admin, file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.contains("{{"));
    let plain = lines.collect::<Vec<_>>().join("\n");
    let plain = admin.file("definition.yaml", &plain);
    let apply = ["apply", "--server-side", "--filename", &plain];
    admin.kubectl(&apply).unwrap();
}

/// Requests a new certificate, as `cmctl renew` does.
fn renew(admin: &Admin) {
    let condition = json!({"status": {"conditions": [{
        "type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
        "message": "the test wants a new one", "lastTransitionTime": jiff::Timestamp::now(),
    }]}});
    let patch = condition.to_string();
    let patch = [
        "patch",
        "certificate",
        SECRET,
        "--namespace",
        NAMESPACE,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ];
    admin.kubectl(&patch).unwrap();
}

/// Returns the webhooks' certificate, once it differs from the former one.
async fn once_another(installation: &Installation, before: Option<&Vec<u8>>) -> Vec<u8> {
    let secrets: Api<Secret> = Api::namespaced(installation.client.clone(), NAMESPACE);
    eventually("cert-manager makes a certificate", async || {
        let data = secrets.get_opt(SECRET).await.unwrap()?.data?;
        let certificate = data.get("tls.crt")?.0.clone();
        (!certificate.is_empty() && Some(&certificate) != before).then_some(certificate)
    })
    .await
}

/// Checks that the webhooks refuse a job, which shows that the API server has called them.
async fn refused(installation: &Installation) {
    let mut bad = job("bad");
    bad["spec"]["ipusPerJobInstance"] = json!("3");
    let bad: IPUJob = serde_json::from_value(bad).unwrap();
    let refused = installation
        .jobs()
        .create(&PostParams::default(), &bad)
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("power of two"), "{refused}");
}

/// Users who create jobs without a pause, in dry runs.
struct Requests {
    stop: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Requests {
    fn start(installation: &Installation) -> Self {
        let (stop, taken) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (jobs, until, count) = (installation.jobs(), Arc::clone(&stop), Arc::clone(&taken));
        let job: IPUJob = serde_json::from_value(job("asked")).unwrap();
        let task = tokio::spawn(async move {
            let asked = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            while !until.load(Ordering::Relaxed) {
                jobs.create(&asked, &job).await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, taken, task }
    }

    /// Waits until the controller has loaded this number of new certificates, and until users were
    /// answered since.
    async fn go_on(&self, controller: &processes::Running, renewals: usize) {
        eventually("the server uses the new certificate", async || {
            let said = controller.said();
            let served = said.matches("the server uses a new certificate").count();
            // Its metrics use the same certificate.
            Seen::when(served, |served| *served >= 2 * renewals)
        })
        .await;
        let so_far = self.taken.load(Ordering::Relaxed);
        eventually("users are answered", async || {
            assert!(!self.task.is_finished(), "a request was lost");
            Seen::when(self.taken.load(Ordering::Relaxed), |now| *now > so_far + 20)
        })
        .await;
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "4",
            "workers": {"template": {"spec": {"containers": [{"name": "main", "image": "program:1"}]}}},
        },
    })
}
