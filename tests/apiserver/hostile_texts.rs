//! Hostile texts of guests and of V-IPU controllers, wherever users and programs read them: output
//! of kubectl, responses of the API server, statuses, events, logs, and responses of the REST API.
//! Also a hostile wait, which delays no job.

use std::collections::BTreeMap;

use cluster::http::{HttpError, request};
use cluster::wait::{Seen, eventually};
use http::Request;
use ipu_api::guest::digest::digest_of;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::ipupartition::IPUPartition;
use ipu_api::ipupolicy::{IPUPolicy, PolicyPhase};
use ipu_text::is_plain;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams};
use kube::client::Body;
use kube::core::ApiResource;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tests::guests::hostile;
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Fail, Method, Order};

use crate::chart::admin::Admin;
use crate::job::single;
use crate::partition::install::apply;
use crate::processes::{Installation, RELEASE, Running};

/// Size limit of a text in a status: the message of a waiting partition.
const STATUS_MAX: usize = 4_096;

/// Size limit of an event's note, by the API server's rule.
const EVENT_MAX: usize = 1_024;

/// Size limit of a warning in a header: its 256 bytes and the text around them.
const WARNING_MAX: usize = 300;

/// Size limit of the response to a request that breaks one rule, which the response contains twice.
const ANSWER_MAX: usize = 8_192;

/// Size limit of a log line, which can contain an error with its causes.
const LINE_MAX: usize = 8_192;

/// Replacement of a character that is not printable.
const REPLACED: char = char::REPLACEMENT_CHARACTER;

/// The message of a V-IPU controller, after words that identify it.
fn hostile_words(begin: &str) -> String {
    format!("{begin} \u{1b}[31m\u{7}\r\n\0\u{202e}{}", "x".repeat(3_000))
}

#[track_caller]
fn is_fit(place: &str, text: &str, most: usize) {
    let (length, begin) = (text.len(), &text[..text.floor_char_boundary(200)]);
    assert!(length <= most, "{place} has {length} bytes: {begin:?}");
    let unfit = text.chars().find(|character| !is_plain(*character));
    assert_eq!(unfit, None, "{place}: {text:?}");
}

/// Returns every text of a JSON value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// A response in JSON, all of whose texts must be printable.
#[track_caller]
fn fit_answer(place: &str, body: &[u8]) -> String {
    assert!(body.len() <= ANSWER_MAX, "{place}: {} bytes", body.len());
    let answer: Value = serde_json::from_slice(body).unwrap();
    for text in texts(&answer) {
        is_fit(place, text, STATUS_MAX);
    }
    texts(&answer).join(" ")
}

/// Returns every text in the statuses of a kind.
async fn statuses<K: Resource<DynamicType = ()>>(installation: &Installation) -> Vec<String> {
    let kind = ApiResource::erase::<K>(&());
    let objects: Api<DynamicObject> = Api::all_with(installation.client.clone(), &kind);
    let found = objects.list(&ListParams::default()).await.unwrap();
    let found = found.iter().flat_map(|one| texts(&one.data["status"]));
    found.map(str::to_owned).collect()
}

/// Returns the notes of all events, or of those of one object.
async fn notes(installation: &Installation, object: Option<&str>) -> Vec<String> {
    let events: Api<Event> = Api::all(installation.client.clone());
    let of = ListParams {
        field_selector: object.map(|name| format!("involvedObject.name={name}")),
        ..ListParams::default()
    };
    let found = events.list(&of).await.unwrap().into_iter();
    found.filter_map(|event| event.message).collect()
}

/// Waits until a status of a kind contains this text.
async fn once_in_statuses<K: Resource<DynamicType = ()>>(installation: &Installation, words: &str) {
    let what = format!("a status of the {} contains {words:?}", K::plural(&()));
    eventually(&what, async || {
        Seen::when(statuses::<K>(installation).await, |all| contain(all, words))
    })
    .await;
}

/// Waits until an event of any object, or of one, contains this text.
async fn once_in_events(installation: &Installation, object: Option<&str>, words: &str) {
    eventually(&format!("an event contains {words:?}"), async || {
        Seen::when(notes(installation, object).await, |all| contain(all, words))
    })
    .await;
}

fn contain(all: &[String], words: &str) -> bool {
    all.iter().any(|text| text.contains(words))
}

/// Checks that no status, event or log line contains an unprintable text.
async fn everything_is_fit(installation: &Installation, processes: [&Running; 2]) {
    for (kind, found) in [
        ("IPUJob", statuses::<IPUJob>(installation).await),
        ("IPUPartition", statuses::<IPUPartition>(installation).await),
        ("IPUPolicy", statuses::<IPUPolicy>(installation).await),
    ] {
        for text in found {
            is_fit(&format!("the status of an {kind}"), &text, STATUS_MAX);
        }
    }
    for note in notes(installation, None).await {
        is_fit("an event", &note, EVENT_MAX);
    }
    for process in processes {
        for line in process.said().lines() {
            is_fit("a log", line, LINE_MAX);
        }
        process.must_run();
    }
}

/// Applies a policy with this module as an admin, and waits until it has that phase.
async fn policy(
    installation: &Installation,
    (name, hook): (&str, &str),
    module: Vec<u8>,
    phase: PolicyPhase,
) {
    let digest = digest_of(&module).to_string();
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        binary_data: Some(BTreeMap::from([(
            "policy.wasm".to_owned(),
            ByteString(module),
        )])),
        ..ConfigMap::default()
    };
    apply(Api::namespaced(installation.client.clone(), RELEASE), &map).await;
    let wanted = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy", "metadata": {"name": name},
        "spec": {
            "hook": hook,
            "module": {"configMap": {"name": name, "key": "policy.wasm"}, "digest": digest},
        },
    });
    let policies: Api<IPUPolicy> = Api::all(installation.client.clone());
    let admin = PatchParams::apply("an-admin").force();
    let wanted = Patch::Apply(&wanted);
    policies.patch(name, &admin, &wanted).await.unwrap();
    eventually(&format!("the IPUPolicy {name} is {phase:?}"), async || {
        let found = policies.get(name).await.unwrap();
        Seen::when(found.status.unwrap_or_default(), |status| {
            status.phase == phase && status.observed_generation > 0
        })
    })
    .await;
}

async fn delete_policy(installation: &Installation, name: &str) {
    let policies: Api<IPUPolicy> = Api::all(installation.client.clone());
    let params = DeleteParams::default();
    policies.delete(name, &params).await.unwrap();
}

/// A job for which hostile guests return hostile answers.
fn large_job() -> Value {
    let mut large = single("large");
    large["metadata"]["annotations"] = json!({"long": "x".repeat(5_000)});
    large
}

/// Creates a large job until it is refused. Returns everything that a client of the API server
/// receives.
async fn refusal(installation: &Installation) -> String {
    let url = format!("{}?dryRun=All", installation.jobs().resource_url());
    let tried = async || {
        let request = Request::post(&url).header("content-type", "application/json");
        let request = request.body(Body::from(large_job().to_string().into_bytes()));
        let answer = installation.client.send(request.unwrap()).await.unwrap();
        let (head, body) = answer.into_parts();
        if head.status.is_success() {
            return None;
        }
        Some((head.headers, body.collect_bytes().await.unwrap()))
    };
    let (headers, body) = eventually("a large job is refused", tried).await;
    for warning in headers.get_all("warning") {
        let warning = std::str::from_utf8(warning.as_bytes()).unwrap();
        is_fit("a warning", warning, WARNING_MAX);
    }
    fit_answer("a refusal", &body)
}

/// Returns what kubectl prints in the same case.
fn kubectl_refusal(installation: &Installation) -> String {
    let admin = Admin::of(RELEASE, installation.plane.kubeconfig());
    let file = admin.file("large.json", &large_job().to_string());
    let create = ["create", "--dry-run=server", "--namespace=default"];
    let refused = admin.kubectl(&[&create[..], &["--filename", &file]].concat());
    let refused = refused.unwrap_err().to_string();
    for line in refused.lines() {
        is_fit("what kubectl prints", line, ANSWER_MAX);
    }
    refused
}

/// Returns all texts of a response of the REST API, successful or not.
async fn rest(proxy: &Running, method: &str, path: &str, body: &str) -> String {
    let url = format!("http://127.0.0.1:{}{path}", proxy.port);
    let answer = match request(method, &url, body).await {
        Ok(body) | Err(HttpError::Status { body, .. }) => body,
        Err(error) => panic!("{error}"),
    };
    fit_answer(path, answer.as_bytes())
}

async fn operator(installation: &Installation) -> [Running; 2] {
    let proxy = installation.proxy("proxy", Vec::new()).await;
    [
        installation.controller("controller", Vec::new()).await,
        proxy,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_guest_reaches_anybody_as_the_guest_wrote_it() {
    let installation = Installation::new().await;
    let [controller, proxy] = operator(&installation).await;

    let refuses = |length| hostile::defaulting(&hostile::refuse_with(length));
    let shouts = hostile::validation(&hostile::shout(1 << 20));
    for (name, hook, module, is_quoted) in [
        ("words", "Defaulting", refuses(3 << 20), true),
        // More than a guest may return: the message is the operator's own.
        ("more-words", "Defaulting", refuses(8 << 20), false),
        ("shout", "Validation", shouts, true),
    ] {
        policy(&installation, (name, hook), module, PolicyPhase::Active).await;
        for message in [refusal(&installation).await, kubectl_refusal(&installation)] {
            assert_eq!(message.contains(REPLACED), is_quoted, "{name}: {message}");
        }
        delete_policy(&installation, name).await;
    }
    // It logs the same text.
    controller.says(&REPLACED.to_string()).await;

    let unsettled = ("unsettled", "Validation");
    let module = hostile::unsettled();
    policy(&installation, unsettled, module, PolicyPhase::Refused).await;
    once_in_statuses::<IPUPolicy>(&installation, "no\u{fffd}\u{fffd}[31m").await;

    let rejects = ("rejects", "Placement");
    let module = hostile::rejecting();
    policy(&installation, rejects, module, PolicyPhase::Active).await;
    installation.submit(&single("rejected")).await;
    installation.once("rejected", JobState::Failed).await;
    let words = "no\u{fffd}\u{fffd}[2J \u{fffd}!";
    once_in_statuses::<IPUPartition>(&installation, words).await;
    once_in_statuses::<IPUJob>(&installation, words).await;
    once_in_events(&installation, None, words).await;
    let message = rest(&proxy, "POST", "/query", r#"{"size": 4}"#).await;
    assert!(message.contains(words), "{message}");
    let described = installation.described("rejected", &[words]).await;
    for line in described.lines() {
        is_fit("what kubectl describes", line, STATUS_MAX);
    }
    everything_is_fit(&installation, [&controller, &proxy]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_v_ipu_controller_reaches_anybody_as_it_was_sent() {
    let installation = Installation::new().await;
    let [controller, proxy] = operator(&installation).await;
    installation.simulator.server.order(Order {
        fail: Some(Fail {
            code: CodeName::ResourceExhausted,
            message: hostile_words("out of order"),
        }),
        ..Order::on(Method::CreatePartition)
    });
    installation.submit(&single("waits")).await;
    let words = "out of order \u{fffd}[31m\u{fffd}  \u{fffd}\u{fffd}x";
    once_in_statuses::<IPUPartition>(&installation, words).await;
    once_in_statuses::<IPUJob>(&installation, words).await;
    once_in_events(&installation, None, words).await;
    for (method, path, body) in [
        ("GET", "/controllers", ""),
        ("GET", "/stats", ""),
        ("POST", "/query", r#"{"size": 4}"#),
    ] {
        rest(&proxy, method, path, body).await;
    }
    everything_is_fit(&installation, [&controller, &proxy]).await;

    installation.simulator.server.clear();
    installation.runs("waits-worker-0").await;
    installation.once("waits", JobState::Running).await;
    let id = installation.id("waits").await.unwrap();
    let error = hostile_words("link 3 is down");
    installation.simulator.server.with(|world, now| {
        world.pod.break_down(&id, &error, false, now).unwrap();
    });
    let words = "link 3 is down \u{fffd}[31m\u{fffd}  \u{fffd}\u{fffd}x";
    once_in_statuses::<IPUPartition>(&installation, words).await;
    once_in_events(&installation, None, words).await;
    everything_is_fit(&installation, [&controller, &proxy]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_policy_waits_without_a_reason_is_placed_by_the_built_in_walk() {
    let installation = Installation::new().await;
    let [controller, proxy] = operator(&installation).await;
    let policies: Api<IPUPolicy> = Api::all(installation.client.clone());
    for (name, entries) in [("waits-for-none", 0), ("waits-for-many", 170_000)] {
        let module = hostile::waiting(entries);
        let placement = (name, "Placement");
        policy(&installation, placement, module, PolicyPhase::Active).await;
        installation.run_job(name).await;
        let partitions: Api<IPUPartition> = Api::all(installation.client.clone());
        let found = partitions.list(&ListParams::default()).await.unwrap();
        let of_job = found.into_iter().find(|one| one.spec.owner.name == name);
        let of_job = of_job.unwrap();
        let object = of_job.name_any();
        let attempts = of_job.status.unwrap().attempts;
        let by = attempts.last().unwrap().decided_by.clone().unwrap();
        assert_eq!((by.policy.as_str(), by.digest), ("built-in", None));
        once_in_events(&installation, Some(&object), "its wait names").await;
        // The operator called it, and none of its answers was usable.
        let what = format!("the failures of {name} are counted");
        let calls = eventually(&what, async || {
            let found = policies.get(name).await.unwrap();
            let calls = found.status.unwrap_or_default().calls;
            Seen::when(calls, |calls| calls.failed > 0)
        });
        assert_eq!(calls.await.answered, 0, "{name}");
        everything_is_fit(&installation, [&controller, &proxy]).await;
        installation.delete_job(name).await;
        delete_policy(&installation, name).await;
    }
}
