//! A launcher on real nodes: the template of its workers holds for it, and a sidecar of somebody
//! else does not cost its log.

use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::fixture::{Fixture, PATIENCE};

/// Resource of policies that add containers. It exists since Kubernetes 1.36.
const POLICIES: &str = "mutatingadmissionpolicies";

/// The variable of the workers' CPU limit has their value, a ConfigMap of the user takes precedence
/// over the operator, an init container has filled a volume, and the log remains although a proxy
/// runs in each Pod, as a mesh adds it.
pub(crate) fn holds_the_template_and_keeps_its_log(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let map = ["create", "configmap", "mine", "--from-literal=IPUOF_VIPU_API_TIMEOUT=9"];
        fixture.kubectl(&map).await?;
        let meshed = inject(fixture).await?;
        let said = "echo $(cat /code/it) $OMP_NUM_THREADS $IPUOF_VIPU_API_TIMEOUT";
        let command = ["sh", "-c", &format!("{said} && mpirun -np 2 --bind-to none true")];
        let mut job = fixture.parallel(OpenMpi::Four, 0, &command)?;
        let pod = &mut job.spec.workers.template.0["spec"];
        let image = pod["containers"][0]["image"].clone();
        let code = json!([{"name": "code", "mountPath": "/code"}]);
        pod["volumes"] = json!([{"name": "code", "emptyDir": {}}]);
        pod["initContainers"] = json!([{
            "name": "fetch", "image": image, "imagePullPolicy": "IfNotPresent", "volumeMounts": code,
            "command": ["sh", "-c", "echo fetched > /code/it"],
        }]);
        let main = &mut pod["containers"][0];
        let threads = json!({"containerName": main["name"], "resource": "limits.cpu"});
        main["volumeMounts"] = code;
        main["resources"] = json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "2"}});
        main["envFrom"] = json!([{"configMapRef": {"name": "mine"}}]);
        main["env"] = json!([
            {"name": "OMP_NUM_THREADS", "valueFrom": {"resourceFieldRef": threads}},
        ]);
        fixture.create(&job).await?;
        fixture.once("parallel", JobState::Completed).await?;
        // The sidecars have ended, and not only the programs.
        fixture.once_no_partition().await?;
        let log = fixture.kubectl(&["logs", "parallel-launcher"]).await?;
        // Open MPI may add a warning, because a shell has started it.
        assert_eq!(log.lines().next(), Some("fetched 2 9"), "{log}");
        let containers = "jsonpath={.spec.containers[*].name}";
        let pod = ["get", "pod", "parallel-launcher", "--output", containers];
        let expected = if meshed { "launcher proxy" } else { "launcher" };
        assert_eq!(fixture.kubectl(&pod).await?, expected);
        remove(fixture).await?;
        fixture.clear().await
    })
}

/// Adds a proxy to every new Pod of the trial's namespace, where this version of Kubernetes can.
async fn inject(fixture: &Fixture) -> Result<bool, Failed> {
    let resources = [
        "api-resources",
        "--api-group=admissionregistration.k8s.io",
        "--output=name",
    ];
    if !fixture.kubectl(&resources).await?.contains(POLICIES) {
        return Ok(false);
    }
    let path = fixture
        .settings
        .run
        .join(format!("{}-mesh.json", fixture.namespace));
    std::fs::write(&path, policy(&fixture.namespace).to_string())?;
    fixture.operated.kubectl.apply(&path).await?;
    // A policy takes effect some time after its creation.
    let pod =
        "run probe --image=none --dry-run=server --output=jsonpath={.spec.containers[*].name}";
    let pod: Vec<&str> = pod.split(' ').collect();
    until("a proxy to be added to Pods", PATIENCE, || async {
        let containers = fixture.kubectl(&pod).await?;
        Ok::<_, KubectlError>(Seen::when(containers, |names| names == "probe proxy"))
    })
    .await?;
    Ok(true)
}

async fn remove(fixture: &Fixture) -> Result<(), Failed> {
    let kinds = format!("{POLICIES},mutatingadmissionpolicybindings");
    let delete = ["delete", &kinds, &fixture.namespace, "--ignore-not-found"];
    fixture.kubectl(&delete).await?;
    Ok(())
}

/// The policy of a mesh, and its binding to one namespace.
fn policy(namespace: &str) -> Value {
    let api = "admissionregistration.k8s.io/v1";
    let proxy = r#"[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{
        name: "proxy", image: "ipu-operator.local/openmpi:4", imagePullPolicy: "IfNotPresent",
        command: ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"]}}]"#;
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": {"name": namespace},
            "spec": {
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods"],
                }]},
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": proxy}}],
            },
        },
        {
            "apiVersion": api, "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": namespace},
            "spec": {"policyName": namespace, "matchResources": {"namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": namespace},
            }}},
        },
    ]})
}
