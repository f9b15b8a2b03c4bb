//! The launcher's Pod: what it has of the workers' template, and what it must not have.

use guest_defaulting::network;
use ipu_api::ipujob::{IPUJob, Launcher};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Value, json};

use super::build::{held, worker};
use super::fixtures::{JobFixture, parallel, running, settings};
use super::world::environment;
use crate::build::access;
use crate::build::{PodSettings, launcher};

pub(super) fn launcher_of(job: &IPUJob) -> Pod {
    let job = job.valid();
    let command = job.launcher.clone().unwrap();
    launcher::launcher(&job, &command, &settings(), (&held(), 0))
}

/// The launcher of a job with these fields in its template.
pub(super) fn of_template(template: &Value) -> Pod {
    launcher_of(&parallel().template(template))
}

pub(super) fn spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap()
}

fn with_launcher(launcher: Launcher) -> IPUJob {
    let mut job = parallel();
    job.spec.launcher = Some(Launcher {
        command: vec!["mpirun".to_owned()],
        ..launcher
    });
    job
}

#[test]
fn the_template_holds_but_for_what_belongs_to_workers() {
    let pod = of_template(&json!({
        "metadata": {"labels": {"app": "mine"}, "annotations": {"sidecar": "none"}},
        "spec": {
            "hostUsers": false,
            "hostNetwork": true,
            "dnsPolicy": "None",
            "enableServiceLinks": false,
            "serviceAccountName": "theirs",
            "tolerations": [{"key": "ipu"}],
            "affinity": {"podAntiAffinity": {}, "nodeAffinity": {}},
            "initContainers": [
                {"name": "fetch", "image": "c", "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
                {"name": "check", "image": "c", "resources": {"limits": {"cpu": 64}}},
                {"name": "proxy", "image": "d", "restartPolicy": "Always",
                 "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
                {"name": "launcher", "image": "e", "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {"name": "main", "image": "a", "volumeMounts": [{"name": "data", "mountPath": "/d"}], "env": [{"name": "X", "value": "1"}],
                 "command": ["theirs"], "workingDir": "/w", "livenessProbe": {},
                 "resources": {"limits": {"rdma/x": 1}}},
                {"name": "side", "image": "b"},
            ],
        },
    }));
    let env = environment(&pod, 0);
    assert_eq!(env["X"], "1");
    assert!(!env.contains_key("IPUOF_VIPU_API_GCD_ID"));
    assert!(!pod.metadata.labels.as_ref().unwrap().contains_key("app"));
    let spec = spec(&pod);
    let init = spec.init_containers.iter().flatten();
    let init: Vec<&str> = init.map(|container| container.name.as_str()).collect();
    assert_eq!(init, ["ipu-operator-agent", "fetch", "launcher-init"]);
    assert_eq!(spec.containers.len(), 1);
    let container = &spec.containers[0];
    assert_eq!(container.name, "launcher");
    assert_eq!(container.command, Some(vec!["mpirun".to_owned()]));
    assert_eq!(
        (&container.resources, &container.liveness_probe),
        (&None, &None)
    );
    assert_eq!(container.working_dir.as_deref(), Some("/w"));
    assert_eq!((spec.host_network, spec.host_users), (None, Some(false)));
    assert_eq!(spec.dns_policy.as_deref(), Some("None"));
    assert_eq!(spec.enable_service_links, Some(false));
    assert_eq!(
        spec.service_account_name.as_deref(),
        Some("sample-launcher")
    );
    assert_eq!(spec.tolerations.as_ref().unwrap().len(), 1);
    let affinity = spec.affinity.as_ref().unwrap();
    assert!(affinity.node_affinity.is_some() && affinity.pod_anti_affinity.is_none());
}

#[test]
fn labels_for_webhooks_and_schedulers_hold_and_those_that_select_workers_do_not() {
    let theirs = json!({
        "sidecar.istio.io/inject": "false", "azure.workload.identity/use": "true", "example.com/team": "ml",
        "app": "mine", "app.kubernetes.io/name": "mine", "scheduling.x-k8s.io/pod-group": "g",
        "helm.sh/chart": "c", "graphcore.ai/role": "stolen", "graphcore.ai/other": "x", "team": "ml",
    });
    let template = json!({"metadata": {"labels": theirs}});
    let mut labels = of_template(&template).metadata.labels.unwrap();
    assert_eq!(labels["graphcore.ai/role"], "launcher");
    labels.retain(|key, _| theirs[key].is_string() && key != "graphcore.ai/role");
    let expected = [
        "azure.workload.identity/use",
        "example.com/team",
        "sidecar.istio.io/inject",
    ];
    assert_eq!(labels.keys().collect::<Vec<_>>(), expected);
}

#[test]
fn network_of_the_release_is_only_for_workers() {
    let template = |annotations: Value| {
        json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [{
                "name": "main", "image": "a",
                "securityContext": {"runAsUser": 7, "capabilities": {"add": ["IPC_LOCK", "SYS_PTRACE"]}},
            }]},
        })
    };
    // The guest has constants of its own, because it does not depend on the API's package.
    let (network, networks) = (network::NETWORK_ANNOTATION, network::ATTACHMENTS_ANNOTATION);
    let of_release = json!({networks: "ipu/rdma-net", network: "rdma", "mine": "stays"});
    let annotations = |pod: &Pod| json!(pod.metadata.annotations);
    let add =
        |pod: &Pod| json!(spec(pod).containers[0].security_context)["capabilities"]["add"].clone();
    let pod = of_template(&template(of_release));
    assert_eq!(annotations(&pod)["mine"], "stays");
    for key in [networks, network] {
        assert!(annotations(&pod)[key].is_null(), "{key}");
    }
    assert_eq!(add(&pod), json!(["SYS_PTRACE"]));
    let pod = of_template(&template(json!({networks: "mine"})));
    assert_eq!(annotations(&pod)[networks], "mine");
    assert_eq!(add(&pod), json!(["IPC_LOCK", "SYS_PTRACE"]));
}

#[test]
fn references_to_resources_have_the_value_of_the_workers() {
    let resources = json!({"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}});
    let reference = |name: &str, container: Option<&str>, resource: &str| {
        json!({"name": name, "valueFrom": {"resourceFieldRef": {
            "containerName": container, "resource": resource,
        }}})
    };
    let file = json!({"path": "cpu", "resourceFieldRef": {
        "containerName": "main", "resource": "limits.cpu", "divisor": "1m",
    }});
    let pod = of_template(&json!({"spec": {
        "initContainers": [{"name": "fetch", "image": "c", "volumeMounts": [{"name": "own", "mountPath": "/o"}], "env": [
            reference("MAIN", Some("main"), "limits.cpu"),
            reference("OWN", None, "limits.cpu"),
        ]}],
        "volumes": [
            {"name": "own", "downwardAPI": {"items": [file]}},
            {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": [file]}}]}},
        ],
        "containers": [
            {"name": "main", "image": "a", "volumeMounts": [{"name": "own", "mountPath": "/o"}], "resources": resources, "env": [
                reference("THREADS", Some("main"), "limits.cpu"),
                reference("UNNAMED", None, "limits.cpu"),
                reference("MEMORY", None, "limits.memory"),
                reference("SIDE", Some("side"), "requests.cpu"),
            ]},
            {"name": "side", "image": "b"},
        ],
    }}));
    let env = environment(&pod, 0);
    assert_eq!((&*env["THREADS"], &*env["UNNAMED"]), ("2", "2"));
    assert_eq!(env["SIDE"], "0");
    let spec = spec(&pod);
    let variables = spec.containers[0].env.as_ref().unwrap();
    let memory = variables.iter().find(|found| found.name == "MEMORY");
    let memory = json!(memory.unwrap().value_from);
    assert_eq!(memory["resourceFieldRef"]["containerName"], "launcher");
    let fetch = json!(spec.init_containers.as_ref().unwrap()[1].env);
    assert_eq!(fetch[0], json!({"name": "MAIN", "value": "2"}));
    assert_eq!(
        fetch[1]["valueFrom"]["resourceFieldRef"]["resource"],
        "limits.cpu"
    );
    let volumes = json!(spec.volumes);
    for (index, file) in [
        &volumes[0]["downwardAPI"]["items"][0],
        &volumes[1]["projected"]["sources"][0]["downwardAPI"]["items"][0],
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("graphcore.ai/worker-resource-{index}");
        let field = json!({"fieldPath": format!("metadata.annotations['{key}']")});
        assert_eq!(file, &json!({"path": "cpu", "fieldRef": field}));
        assert_eq!(pod.metadata.annotations.as_ref().unwrap()[&key], "2000");
    }
}

#[test]
fn annotations_name_the_containers_that_the_launcher_has() {
    let pod = of_template(&json!({
        "metadata": {"annotations": {
            "container.apparmor.security.beta.kubernetes.io/main": "unconfined",
            "container.apparmor.security.beta.kubernetes.io/side": "unconfined",
            "container.apparmor.security.beta.kubernetes.io/fetch": "unconfined",
            "container.apparmor.security.beta.kubernetes.io/check": "unconfined",
            "memory.nri.io/container.main": "1",
            "sidecar.istio.io/main": "false",
            "sidecar.istio.io/inject": "false",
            "kubectl.kubernetes.io/default-logs-container": "main",
            "vault.hashicorp.com/agent-inject-containers": "side, main",
            "example.com/branch": "main",
        }},
        "spec": {
            "initContainers": [
                {"name": "fetch", "image": "c", "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
                {"name": "check", "image": "c"},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {"name": "main", "image": "a", "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
                {"name": "side", "image": "b"},
            ],
        },
    }));
    let annotations = json!(pod.metadata.annotations);
    assert_eq!(
        annotations,
        json!({
            "container.apparmor.security.beta.kubernetes.io/launcher": "unconfined",
            "container.apparmor.security.beta.kubernetes.io/fetch": "unconfined",
            "memory.nri.io/container.launcher": "1",
            "sidecar.istio.io/main": "false",
            "sidecar.istio.io/launcher": "false",
            "sidecar.istio.io/inject": "false",
            "kubectl.kubernetes.io/default-logs-container": "launcher",
            "vault.hashicorp.com/agent-inject-containers": "side,launcher",
            "example.com/branch": "main",
            "kubectl.kubernetes.io/default-container": "launcher",
            "graphcore.ai/main-container": "launcher",
        })
    );
}

#[test]
fn only_claims_that_the_launcher_uses_are_made_for_it() {
    let claims = json!([
        {"name": "card", "resourceClaimTemplateName": "card"},
        {"name": "cache", "resourceClaimName": "cache"},
    ]);
    let pod = of_template(&json!({"spec": {
        "resourceClaims": claims,
        "initContainers": [
            {"name": "fetch", "image": "c", "resources": {"claims": [{"name": "cache"}]},
             "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [{"name": "main", "image": "a", "resources": {"claims": [{"name": "card"}]},
                        "volumeMounts": [{"name": "data", "mountPath": "/d"}]}],
    }}));
    assert_eq!(json!(spec(&pod).resource_claims), json!([claims[1]]));
}

#[test]
fn the_users_resources_replace_the_admins_default() {
    let default = json!({"requests": {"memory": "64Mi"}});
    let settings = PodSettings {
        launcher_resources: serde_json::from_value(default.clone()).unwrap(),
        ..settings()
    };
    let own = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}});
    for (resources, expected) in [(json!(null), &default), (own.clone(), &own)] {
        let job = with_launcher(Launcher {
            resources: serde_json::from_value(resources).unwrap(),
            ..Launcher::default()
        })
        .valid();
        let command = job.launcher.clone().unwrap();
        let pod = launcher::launcher(&job, &command, &settings, (&held(), 0));
        let spec = spec(&pod);
        assert_eq!(&json!(spec.containers[0].resources), expected);
        let agent = &spec.init_containers.as_ref().unwrap()[0];
        assert_eq!(&json!(agent.resources), expected);
    }
}

#[test]
fn the_agent_keeps_the_quality_of_service_and_the_user_of_the_worker() {
    let resources = json!({
        "limits": {"cpu": "2", "memory": "1Gi", "rdma/x": "1"},
        "requests": {"cpu": "2", "memory": "1Gi", "rdma/x": "1"},
    });
    let context = json!({
        "runAsUser": 0, "runAsGroup": 7, "runAsNonRoot": false,
        "seLinuxOptions": {"level": "s0:c1"}, "privileged": true,
    });
    let job = parallel().template(&json!({"spec": {"containers": [
        {"name": "main", "image": "a", "resources": resources, "securityContext": context},
    ]}}));
    let pod = worker(&job, &settings(), 0);
    let agent = json!(spec(&pod).init_containers.as_ref().unwrap()[0]);
    let same = json!({"cpu": "2", "memory": "1Gi"});
    assert_eq!(
        agent["resources"],
        json!({"limits": same, "requests": same})
    );
    let context = &agent["securityContext"];
    assert_eq!(
        (&context["runAsUser"], &context["runAsGroup"]),
        (&json!(0), &json!(7))
    );
    assert_eq!(context["seLinuxOptions"], json!({"level": "s0:c1"}));
    assert_eq!(
        (&context["runAsNonRoot"], &context["privileged"]),
        (&json!(false), &json!(null))
    );
    // The user of the Pod, or of the namespace.
    let pod = worker(&parallel(), &settings(), 0);
    let agent = json!(spec(&pod).init_containers.as_ref().unwrap()[0]);
    assert_eq!(agent["resources"], json!(null));
    for field in ["runAsUser", "runAsGroup", "runAsNonRoot"] {
        assert_eq!(agent["securityContext"][field], json!(null), "{field}");
    }
    assert_eq!(
        agent["securityContext"]["capabilities"],
        json!({"drop": ["ALL"]})
    );
}

#[test]
fn an_account_of_the_user_gets_the_right_and_is_not_changed() {
    let account = |name: &str| {
        with_launcher(Launcher {
            service_account_name: Some(name.to_owned()),
            ..Launcher::default()
        })
    };
    for (name, expected) in [
        ("trainer", "trainer"),
        ("default", "sample-launcher"),
        ("", "sample-launcher"),
    ] {
        let job = account(name);
        assert_eq!(
            spec(&launcher_of(&job)).service_account_name.as_deref(),
            Some(expected)
        );
        let (job, launcher) = (job.valid(), job.valid().launcher.unwrap());
        let subjects = json!(access::role_binding(&job, &launcher).subjects);
        assert_eq!(subjects[0]["name"], expected);
    }
    let (_, world) = running(&account("trainer"));
    assert!(world.pods().contains(&"sample-launcher"));
}
