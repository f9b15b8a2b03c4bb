//! The variables of a launcher and of its workers, and how long their processes may take to end.

use std::collections::BTreeSet;

use guest_validation::rules::WORKER_VARIABLES;
use ipu_api::ipujob::IPUJob;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::build::{held, worker};
use super::fixtures::{JobFixture, parallel, settings};
use super::launcher::{launcher_of, of_template, spec};
use super::world::{World, environment};
use crate::build::launcher;

#[test]
fn variables_come_before_those_of_env_from_in_a_config_map() {
    let from = json!([{"secretRef": {"name": "mine"}}]);
    let job = parallel().template(&json!({"spec": {"containers": [
        {"name": "main", "image": "a", "envFrom": from, "env": [{"name": "X", "value": "1"}]},
        {"name": "side", "image": "b"},
    ]}}));
    let valid = job.valid();
    let pods = [
        worker(&job, &settings(), 0),
        worker(&job, &settings(), 1),
        launcher_of(&job),
    ];
    let maps = [
        crate::build::workers::config_map(&valid, 0, &held()).unwrap(),
        crate::build::workers::config_map(&valid, 1, &held()).unwrap(),
        launcher::config_map(&valid, &held()).unwrap(),
    ];
    for (pod, map) in pods.iter().zip(&maps) {
        let main = &spec(pod).containers[0];
        let name = map.metadata.name.as_ref().unwrap();
        assert!(name.starts_with("sample-env-"), "{name}");
        let ours = json!({"configMapRef": {"name": name}});
        assert_eq!(json!(main.env_from), json!([ours, from[0]]));
        assert_eq!(json!(main.env), json!([{"name": "X", "value": "1"}]));
        let data = map.data.as_ref().unwrap();
        assert_eq!(data["IPUOF_VIPU_API_HOST"], "pod1");
        assert_eq!(map.immutable, Some(true));
        assert_eq!(map.metadata.owner_references, pod.metadata.owner_references);
    }
    assert_eq!(environment(&pods[0], 1)["IPUOF_VIPU_API_HOST"], "pod1");
    let gcd = |index: usize| {
        maps[index]
            .data
            .as_ref()
            .unwrap()
            .get("IPUOF_VIPU_API_GCD_ID")
    };
    assert_eq!(gcd(0).unwrap(), "0");
    assert_eq!(gcd(1).unwrap(), "1");
    assert_eq!(gcd(2), None);
    assert!(
        maps[2]
            .data
            .as_ref()
            .unwrap()
            .contains_key("OMPI_MCA_plm_rsh_agent")
    );
    // Without such a list, no object is needed.
    assert_eq!(launcher::config_map(&parallel().valid(), &held()), None);
    assert_eq!(
        crate::build::workers::config_map(&parallel().valid(), 0, &held()),
        None
    );
}

#[test]
fn config_maps_are_created_with_the_pods_that_refer_to_them() {
    let from = json!([{"configMapRef": {"name": "mine"}}]);
    let job = parallel().template(&json!({"spec": {"containers": [
        {"name": "main", "image": "a", "envFrom": from},
    ]}}));
    let job = job.valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    let mut steps = world.settle(&job);
    world.run_pods();
    steps.extend(world.settle(&job));
    for step in steps {
        assert_eq!(
            step.plan.create_config_maps.len(),
            step.plan.create_pods.len()
        );
    }
}

#[test]
fn the_grace_period_is_that_of_the_template() {
    for (period, agent, daemon) in [
        (json!(null), "28", None),
        (json!(300), "298", Some("149")),
        (json!(2), "1", None),
        (json!(0), "1", None),
    ] {
        let template = json!({"spec": {"terminationGracePeriodSeconds": period}});
        let pod = worker(&parallel().template(&template), &settings(), 0);
        let command = spec(&pod).containers[0].command.clone().unwrap();
        assert_eq!(command[2..], ["--grace-seconds", agent], "{period}");
        let pod = launcher_of(&IPUJob::sample().interactive(60).template(&template));
        let command = spec(&pod).containers[0].command.clone().unwrap();
        assert_eq!(command[6..], ["--grace-seconds", agent, "--seconds", "60"]);
        let env = environment(&of_template(&template), 0);
        let timeout = env.get("OMPI_MCA_odls_base_sigkill_timeout");
        assert_eq!(timeout.map(String::as_str), daemon, "{period}");
    }
}

#[test]
fn the_agent_knows_whether_its_container_has_a_pid_namespace() {
    for (template, shares) in [
        (json!({}), false),
        (json!({"shareProcessNamespace": false}), false),
        (json!({"shareProcessNamespace": true}), true),
        (json!({"hostPID": true}), true),
    ] {
        let pod = worker(
            &parallel().template(&json!({"spec": template})),
            &settings(),
            0,
        );
        let command = spec(&pod).containers[0].command.clone().unwrap();
        assert_eq!(
            command.contains(&"--shares-processes".to_owned()),
            shares,
            "{template}"
        );
    }
}

#[test]
fn references_to_labels_have_the_value_of_the_template() {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let file = |path: &str| json!({"path": "x", "fieldRef": {"fieldPath": path}});
    let (app, role) = (
        "metadata.labels['app']",
        "metadata.labels['graphcore.ai/role']",
    );
    let data = json!([{"name": "data", "mountPath": "/d"}]);
    let pod = of_template(&json!({
        "metadata": {"labels": {"app": "mine", "graphcore.ai/role": "stolen"}},
        "spec": {
            "initContainers": [
                {"name": "fetch", "image": "c", "volumeMounts": data, "env": [field("APP", app)]},
            ],
            "volumes": [
                {"name": "data", "downwardAPI": {"items": [file(app), file(role)]}},
                {"name": "all", "projected": {"sources": [{"downwardAPI": {"items": [file("metadata.labels")]}}]}},
            ],
            "containers": [{"name": "main", "image": "a", "volumeMounts": data, "env": [
                field("APP", app),
                field("ROLE", role),
                field("OTHER", "metadata.labels['other']"),
                field("NAME", "metadata.name"),
            ]}],
        },
    }));
    let spec = spec(&pod);
    let value = json!({"name": "APP", "value": "mine"});
    let variables = json!(spec.containers[0].env);
    let last = variables.as_array().unwrap().iter().rev().take(4).rev();
    let last: Vec<_> = last.cloned().collect();
    let (other, name) = ("metadata.labels['other']", "metadata.name");
    assert_eq!(
        last,
        [
            value.clone(),
            field("ROLE", role),
            field("OTHER", other),
            field("NAME", name)
        ]
    );
    let fetch = json!(spec.init_containers.as_ref().unwrap()[1].env);
    assert_eq!(fetch, json!([value]));
    let volumes = json!(spec.volumes);
    let key = |number: u32| format!("graphcore.ai/worker-label-{number}");
    let annotation = |number: u32| file(&format!("metadata.annotations['{}']", key(number)));
    let items = &volumes[0]["downwardAPI"]["items"];
    assert_eq!(items, &json!([annotation(0), file(role)]));
    let all = &volumes[1]["projected"]["sources"][0]["downwardAPI"]["items"][0];
    assert_eq!(all, &annotation(1));
    let annotations = pod.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[&key(0)], "mine");
    let all: Vec<&str> = annotations[&key(1)].split('\n').collect();
    assert_eq!(all[0], "app=\"mine\"");
    assert!(all.contains(&"graphcore.ai/role=\"launcher\""), "{all:?}");
}

#[test]
fn a_label_that_many_references_name_does_not_multiply() {
    const REFERENCES: usize = 400;
    let field = |path: &str| json!({"fieldPath": path});
    let variables = (0..REFERENCES).map(|number| {
        let source = json!({"fieldRef": field("metadata.labels['long']")});
        json!({"name": format!("V{number}"), "valueFrom": source})
    });
    let files = (0..REFERENCES).map(|number| {
        let path = ["metadata.labels", "metadata.labels['short']"][number % 2];
        json!({"path": number.to_string(), "fieldRef": field(path)})
    });
    let template = json!({
        "metadata": {"labels": {"long": "x".repeat(50_000), "short": "mine"}},
        "spec": {
            "volumes": [{"name": "v", "downwardAPI": {"items": files.collect::<Vec<_>>()}}],
            "containers": [{"name": "main", "image": "a", "env": variables.collect::<Vec<_>>()}],
        },
    });
    let written = template.to_string().len();
    let launcher = json!(of_template(&template)).to_string().len();
    assert!(launcher < 2 * written, "{launcher} of {written} bytes");
}

#[test]
fn an_init_container_that_writes_variables_runs_in_the_launcher() {
    let variable = json!([{"name": "A", "valueFrom": {"fileKeyRef": {
        "volumeName": "env", "path": "a", "key": "A",
    }}}]);
    let spec_of = |env: &Value| {
        json!({"spec": {
            "initContainers": [
                {"name": "write", "image": "c", "volumeMounts": [{"name": "env", "mountPath": "/e"}]},
            ],
            "volumes": [{"name": "env", "emptyDir": {}}],
            "containers": [{"name": "main", "image": "a", "env": env}],
        }})
    };
    let of_workers = parallel().template(&spec_of(&variable));
    let mut of_launcher = parallel().template(&spec_of(&json!([])));
    let launcher = of_launcher.spec.launcher.as_mut().unwrap();
    launcher.env = serde_json::from_value(variable).unwrap();
    for (job, expected) in [
        (of_workers, &["ipu-operator-agent", "write"][..]),
        (of_launcher, &["ipu-operator-agent", "write"]),
        (
            parallel().template(&spec_of(&json!([]))),
            &["ipu-operator-agent"],
        ),
    ] {
        let pod = launcher_of(&job);
        let init_containers = spec(&pod).init_containers.iter().flatten();
        let names: Vec<&str> = init_containers.map(|container| &*container.name).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn paths_that_name_a_variable_of_workers_are_not_mounted() {
    let mount = |path: &str, expression: Option<&str>| {
        let mut mount = json!({"name": "data", "mountPath": path});
        if let Some(expression) = expression {
            mount["subPathExpr"] = json!(expression);
        }
        mount
    };
    let mounts = json!([
        mount("/all", None),
        mount("/host", Some("$(IPUOF_VIPU_API_HOST)")),
        mount("/gcd", Some("gcd-$(IPUOF_VIPU_API_GCD_ID)")),
        mount("/mine", Some("$(MINE)")),
        mount("/replica", Some("$(POPDIST_REPLICA_INDEX_OFFSET)")),
        mount("/text", Some("$$(IPUOF_VIPU_API_GCD_ID)")),
    ]);
    let template = json!({"spec": {
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [{
            "name": "main", "image": "a", "volumeMounts": mounts,
            "env": [{"name": "MINE", "value": "$(IPUOF_VIPU_API_GCD_ID)"}],
        }],
    }});
    let paths = |pod: &Pod| -> Vec<String> {
        let mounts = spec(pod).containers[0].volume_mounts.iter().flatten();
        mounts.map(|mount| mount.mount_path.clone()).collect()
    };
    let pod = of_template(&template);
    assert_eq!(paths(&pod)[..3], ["/all", "/host", "/text"]);
    let pod = worker(&parallel().template(&template), &settings(), 0);
    assert_eq!(paths(&pod).len(), 7, "and the agent's folder");
    // The launcher has the variable after all.
    let mut job = parallel().template(&template);
    let launcher = job.spec.launcher.as_mut().unwrap();
    launcher.env = serde_json::from_value(json!([{"name": "MINE", "value": "0"}])).unwrap();
    assert_eq!(
        paths(&launcher_of(&job))[..4],
        ["/all", "/host", "/mine", "/text"]
    );
}

#[test]
fn variables_that_only_workers_have_are_known() {
    let job = parallel().replicas_per_worker("2");
    let (worker, launcher) = (
        environment(&worker(&job, &settings(), 0), 0),
        environment(&launcher_of(&job), 0),
    );
    let names = worker.keys().filter(|name| !launcher.contains_key(*name));
    let names: BTreeSet<&str> = names.map(String::as_str).collect();
    assert_eq!(names, WORKER_VARIABLES.into());
}
