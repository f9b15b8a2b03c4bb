//! Every manifest in `examples/` is admitted, and a snapshot of its objects is reviewed as YAML.

use std::fs;
use std::path::Path;

use guest_defaulting::defaults;
use insta::assert_yaml_snapshot;
use ipu_api::ipujob_status::JobState;
use serde::Serialize;
use serde_json::{Value, json};

use super::fixtures::{MAX_IPUS, refusal};
use super::world::World;
use crate::plan::Plan;
use crate::validate::{ValidateError, read};

/// A step of a job's life, as a reviewer reads it.
#[derive(Serialize)]
struct Review {
    when: &'static str,
    status: String,
    plan: Plan,
}

#[test]
fn every_example_is_planned_as_reviewed_and_completes() {
    insta::glob!("../../../../examples", "[0-9]*.yaml", |path| {
        let object = admitted(path);
        assert_eq!(refusal(&object, MAX_IPUS), None, "{}", path.display());
        let job = read(&object, MAX_IPUS).unwrap();
        let mut world = World::new();
        let mut number = 0;
        let mut review = |when: &'static str, world: &mut World| {
            let plan = world.step(&job).plan;
            let status = world.row();
            let review = Review { when, status, plan };
            number += 1;
            let name = format!("{number} {when}").replace(' ', "_");
            assert_yaml_snapshot!(name, review);
        };
        review("nothing is there yet", &mut world);
        world.ready(0..job.instances);
        review("the partitions are ready", &mut world);
        world.run_pods();
        review("the workers are ready", &mut world);
        world.run_pods();
        review("all Pods run", &mut world);
        let last = match job.launcher {
            Some(_) => format!("{}-launcher", job.name),
            None => format!("{}-worker-0", job.name),
        };
        world.end(&last, 0);
        review("the program has ended with 0", &mut world);
        review("the end is recorded", &mut world);
        assert_eq!(world.status().launcher_status, JobState::Completed);
    });
}

#[test]
fn every_bad_example_is_refused_with_field_and_reason() {
    insta::glob!("../../../../examples/bad", "*.yaml", |path| {
        let error = refusal(&admitted(path), MAX_IPUS).unwrap();
        assert!(matches!(error, ValidateError::Broken(_)), "{error:?}");
        assert_yaml_snapshot!(error.to_string());
    });
}

/// The IPUJob of a manifest as the API server stores it: with defaults, and with the fields that the server adds.
fn admitted(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    let object: Value = serde_saphyr::from_str(&text).unwrap();
    let mut object = defaults::apply(object).unwrap().object;
    json_patch::merge(
        &mut object,
        &json!({"metadata": {
            "namespace": "default",
            "uid": "beb81bbe-2309-494a-9e28-2a75a704be15",
            "generation": 1,
        }}),
    );
    object
}
