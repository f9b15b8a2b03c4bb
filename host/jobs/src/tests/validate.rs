//! Parsing into a `ValidJob`, and the refusals: each case differs from a valid job in one property.

use ipu_api::ipujob::IPUJob;
use serde_json::{Value, json};

use super::fixtures::{JobFixture, MAX_IPUS, refusal};
use crate::validate::{Size, Suspension, ValidateError, awaits_admission, read};

#[test]
fn a_good_job_is_read_into_numbers() {
    let job = IPUJob::sample()
        .instances(3)
        .ipus("16")
        .workers("4")
        .replicas_per_worker("2")
        .valid();
    assert_eq!(job.instances, 3);
    assert_eq!(
        job.size,
        Size {
            ipus: 16,
            workers: 4,
            replicas_per_worker: 2
        }
    );
    assert_eq!(job.size.replicas(), 8);
    assert_eq!(job.worker_index(2, 1), 9);
    assert_eq!(job.template.first.name, "main");
}

#[test]
fn only_the_status_says_what_kueue_has_granted() {
    let job = |suspend: bool, status: Value, manager: Option<&str>| {
        let mut job = IPUJob::sample().suspend(suspend);
        job.spec.managed_by = manager.map(str::to_owned);
        let mut object = job.object();
        object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "team"});
        object["metadata"]["annotations"] = json!({
            "graphcore.ai/admitted-pod-sets": "{\"worker\":{\"nodeSelector\":{\"pool\":\"a\"}}}",
            "graphcore.ai/reserve-partitions": "true",
        });
        object["status"] = status;
        object
    };
    let with =
        |admission: Value| json!({"desiredReplicas": 1, "lastMessage": "", "admission": admission});
    let granted = |reserve: bool| {
        with(json!({"podSets": [{"name": "worker"}], "reservePartitions": reserve}))
    };
    let (nothing, unreadable) = (|| with(Value::Null), || with(json!(5)));
    let multikueue = Some("kueue.x-k8s.io/multikueue");
    for (suspend, status, manager, suspension, sets, awaits) in [
        (true, nothing(), None, Suspension::Suspended, 0, true),
        (false, nothing(), None, Suspension::Active, 0, true),
        (true, granted(false), None, Suspension::Suspended, 1, false),
        (true, granted(true), None, Suspension::Reserving, 1, false),
        (false, granted(true), None, Suspension::Active, 1, false),
        // A status that its controller cannot have written grants nothing, and does not make the
        // job invalid.
        (true, unreadable(), None, Suspension::Suspended, 0, true),
        (true, json!({}), None, Suspension::Suspended, 0, true),
        // The status is that of another cluster.
        (
            true,
            granted(true),
            multikueue,
            Suspension::Suspended,
            0,
            true,
        ),
    ] {
        let object = job(suspend, status.clone(), manager);
        let read = read(&object, MAX_IPUS).unwrap();
        assert_eq!(
            (read.suspension, read.pod_set_updates.len()),
            (suspension, sets),
            "{status}"
        );
        assert_eq!(awaits_admission(&object), awaits, "{status}");
    }
    assert!(
        !awaits_admission(&IPUJob::sample().object()),
        "it is in no queue"
    );
}

#[test]
fn one_wrong_thing_is_named() {
    let cases: [(IPUJob, &str); 10] = [
        (IPUJob::sample().ipus("3"), "spec.ipusPerJobInstance"),
        (IPUJob::sample().ipus("128"), "spec.ipusPerJobInstance"),
        (IPUJob::sample().ipus("-4"), "spec.ipusPerJobInstance"),
        (IPUJob::sample().ipus(""), "spec.ipusPerJobInstance"),
        (
            IPUJob::sample().workers("1e1"),
            "spec.workersPerJobInstance",
        ),
        (IPUJob::sample().workers("8"), "spec.ipusPerJobInstance"),
        (IPUJob::sample().instances(-1), "spec.jobInstances"),
        (IPUJob::sample().launcher(&[]), "spec.launcher.command"),
        (
            IPUJob::sample().launcher(&["mpirun"]).interactive(60),
            "spec.interactive",
        ),
        (
            IPUJob::sample().template(&json!({"spec": {"containers": []}})),
            "spec.workers.template.spec.containers",
        ),
    ];
    for (job, field) in cases {
        let error = refusal(&job.object(), MAX_IPUS).unwrap();
        let ValidateError::Broken(violations) = &error else {
            panic!("{field}: {error:?}");
        };
        assert_eq!(violations.len(), 1, "{error}");
        assert_eq!(violations[0].field, field, "{error}");
        assert_eq!(error.reason(), "IPUJobInvalid");
    }
}

#[test]
fn an_object_past_the_schema_is_reported_by_field() {
    let good = IPUJob::sample().object();
    let cases: [(Value, &str); 6] = [
        (
            json!({"spec": {"jobInstances": "one"}}),
            "spec.jobInstances",
        ),
        (
            json!({"spec": {"ipusPerJobInstance": 4}}),
            "spec.ipusPerJobInstance",
        ),
        (
            json!({"spec": {"restartPolicy": {"type": "Sometimes"}}}),
            "spec.restartPolicy.type",
        ),
        (json!({"spec": {"launcher": "mpirun"}}), "spec.launcher"),
        (json!({"spec": {"workers": null}}), "spec"),
        (json!({"spec": null}), "."),
    ];
    for (patch, field) in cases {
        let mut object = good.clone();
        json_patch::merge(&mut object, &patch);
        match refusal(&object, MAX_IPUS).unwrap() {
            ValidateError::Undecodable { field: found, .. } => assert_eq!(found, field, "{patch}"),
            other @ ValidateError::Broken(_) => panic!("{patch}: {other:?}"),
        }
    }
}

#[test]
fn an_invalid_template_is_reported_by_field() {
    let job = IPUJob::sample().template(&json!({"spec": {"hostIPC": "yes"}}));
    let error = refusal(&job.object(), MAX_IPUS).unwrap();
    assert!(
        error
            .to_string()
            .starts_with("spec.workers.template.spec.hostIPC cannot be read"),
        "{error}"
    );
}

#[test]
fn hostile_input_is_refused_and_nothing_else() {
    for object in [
        json!(null),
        json!([]),
        json!("IPUJob"),
        json!({}),
        json!({"spec": {"jobInstances": 1e300}}),
        json!({"metadata": {"name": 1}}),
    ] {
        assert!(read(&object, MAX_IPUS).is_err(), "{object}");
    }
}

#[test]
fn a_job_that_has_left_its_queue_reserves_nothing() {
    let mut object = IPUJob::sample().suspend(true).object();
    object["status"] =
        json!({"desiredReplicas": 1, "lastMessage": "", "admission": {"reservePartitions": true}});
    let suspension = |object: &Value| read(object, MAX_IPUS).unwrap().suspension;
    assert_eq!(suspension(&object), Suspension::Suspended);
    object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "team"});
    assert_eq!(suspension(&object), Suspension::Reserving);
}
