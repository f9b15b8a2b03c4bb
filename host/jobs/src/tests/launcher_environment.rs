//! The variables of a launcher and of its workers, and how long their processes may take to end.

use ipu_api::ipujob::IPUJob;
use serde_json::json;

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
