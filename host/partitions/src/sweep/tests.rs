//! The order of a sweep, lists that are read page by page, and IPUPartitions that cannot be
//! deleted, around a fake API server.

mod replica;
mod unanswered;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use ipu_api::uid::Uid;
use ipu_ledger::sweep::Task;
use ipu_policies::namespace_usage::namespaces;
use ipu_runtime::lease::Leadership;
use ipu_runtime::scope::Scope;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tower::{BoxError, service_fn};
use vipu_client::controllers::KEY;
use vipu_client::{Deadlines, Registry};

use self::replica::Replica;
use super::*;
use crate::nodes::nodes;
use crate::pod_users::PodUsers;
use crate::store::watch::watched;

/// Requests to the fake API server, and the number of expired tokens that it still reports.
#[derive(Default)]
struct World {
    asked: Vec<String>,
    expired: usize,
}

/// An IPUPartition of the IPUJob of this name, whose UID is `<name>-uid`.
fn partition(job: &str) -> Value {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
    });
    json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPartition",
        "metadata": {"name": format!("default.{job}-0"), "uid": "u", "resourceVersion": "7"},
        "spec": {
            "owner": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": "default",
                "name": job, "uid": format!("{job}-uid"),
            },
            "slot": 0, "ipus": 4, "gcds": 1,
        },
        "status": {"attempts": [
            {"controller": controller, "id": format!("p-{job}"), "outcome": "created"},
        ]},
    })
}

/// An object after a write of a client that claims a time which cannot be read.
fn odd(mut object: Value) -> Value {
    let late = json!({"manager": "somebody", "time": "9999-12-31T23:59:59Z"});
    object["metadata"]["managedFields"] = json!([late]);
    object
}

/// Two pages of IPUPartitions. `alive` and `young` have their jobs; `young` was made after the
/// list. All are odd.
fn answer(world: &mut World, method: &str, path: &str, query: &str) -> (u16, Value) {
    let is_next = query.contains("continue=next");
    let failed = |code: u16| {
        let reason = if code == 404 { "NotFound" } else { "Failed" };
        let status = json!({"kind": "Status", "code": code, "reason": reason, "message": "no"});
        (code, status)
    };
    match (method, path.rsplit('/').next().unwrap_or_default()) {
        ("GET", "ipupartitions") if is_next && world.expired > 0 => {
            world.expired -= 1;
            failed(410)
        }
        ("GET", "ipupartitions") => {
            let (jobs, token) = if is_next {
                (vec!["stuck", "gone"], "")
            } else {
                (vec!["alive", "young"], "next")
            };
            let items: Vec<Value> = jobs.into_iter().map(|job| odd(partition(job))).collect();
            (200, list(&json!({"continue": token}), &json!(items)))
        }
        ("GET", "ipujobs" | "pods" | "workloads") => {
            let alive = odd(json!({"metadata": {"name": "alive", "uid": "alive-uid"}}));
            (200, list(&json!({}), &json!([alive])))
        }
        ("GET", "young") => (
            200,
            odd(json!({"metadata": {"name": "young", "uid": "young-uid"}})),
        ),
        ("DELETE", "default.gone-0") => (200, odd(partition("gone"))),
        ("DELETE", "default.stuck-0") => failed(500),
        _ => failed(404),
    }
}

fn list(metadata: &Value, items: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items})
}

fn client(world: &Arc<Mutex<World>>) -> Client {
    let world = Arc::clone(world);
    let service = service_fn(move |request: Request<Body>| {
        let (method, uri) = (request.method().to_string(), request.uri().clone());
        let mut world = world.lock().unwrap();
        world.asked.push(format!("{method} {}", uri.path()));
        let (code, body) = answer(
            &mut world,
            &method,
            uri.path(),
            uri.query().unwrap_or_default(),
        );
        let answer = Response::builder().status(code);
        let answer = answer.body(Body::from(body.to_string().into_bytes()));
        std::future::ready(answer.map_err(BoxError::from))
    });
    Client::new(service, "default")
}

fn judged(one: &IPUPartition) -> bool {
    ownerless::is_to_judge(one, &Scope::Cluster)
}

/// A pool of one controller that closes every connection, which is noted like a request to the API
/// server.
async fn pool(world: &Arc<Mutex<World>>) -> ControllerPool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let world = Arc::clone(world);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            world.lock().unwrap().asked.push("a controller".to_owned());
            drop(stream);
        }
    });
    pool_of(&format!("{address}:ipunode=here")).await
}

/// A pool of the controllers in an admin's list.
async fn pool_of(entries: &str) -> ControllerPool {
    let list = ConfigMap {
        data: Some([(KEY.to_owned(), entries.to_owned())].into()),
        ..ConfigMap::default()
    };
    let registry = Registry::new(Deadlines::default());
    let objects = futures::stream::iter([Ok::<_, Infallible>(Some(list))]);
    registry.follow(objects).await;
    let (partitions, _) = watched(namespaces().0, Scope::default());
    ControllerPool::new(Arc::new(registry), nodes().0, partitions)
}

#[tokio::test]
async fn the_controllers_are_listed_before_the_ipupartitions() {
    let world = Arc::new(Mutex::new(World::default()));
    let (found, held) = listed(&pool(&world).await, &client(&world), judged).await;
    assert_eq!((found.len(), held.unwrap().objects), (0, 4));
    let mut asked = world.lock().unwrap().asked.clone();
    // A read is tried again while it is not answered.
    asked.dedup();
    let page = "GET /apis/graphcore.ai/v1alpha1/ipupartitions";
    assert_eq!(asked, ["a controller", page]);
}

#[test]
fn users_of_a_partition_are_counted_right_before_its_removal() {
    let partition = |id: &str| ("pod1:8090".to_owned(), id.to_owned());
    let due = ["idle", "used", "unread", "last"].map(partition).to_vec();
    let ownerless = [Ok(vec!["object"]), Err("no list")];
    let mut course = Course::new(ownerless, due);
    let mut done = Vec::new();
    while let Some(task) = course.next_task() {
        done.push(match task {
            Task::Delete(object) => format!("delete {object}"),
            Task::Count(partition) => {
                let described = format!("count {}", partition.1);
                match partition.1.as_str() {
                    "used" => course.counted(partition, 1),
                    "unread" => course.failed("no answer"),
                    _ => course.counted(partition, 0),
                }
                described
            }
            Task::Remove((_, id)) => format!("remove {id}"),
        });
    }
    let expected =
        "delete object, count idle, remove idle, count used, count unread, count last, remove last";
    assert_eq!(done.join(", "), expected);
    assert_eq!(course.into_errors(), ["no list", "no answer"]);
}

#[tokio::test]
async fn a_replica_that_may_not_lead_any_more_deletes_and_removes_nothing() {
    let world = Arc::new(Mutex::new(World::default()));
    let (client, pool) = (client(&world), pool(&world).await);
    let orphan = Found {
        controller: Arc::new(pool.controllers().remove(0)),
        id: "p-orphan".to_owned(),
        is_in_error: false,
    };
    let ownerless = serde_json::from_value(partition("gone")).unwrap();
    let mut course = Course::new([Ok(vec![ownerless])], Vec::new());
    let (name, id) = orphan.key();
    course.counted((name.to_owned(), id.to_owned()), 0);
    let replica = Replica::leading_for(Duration::ZERO, client, pool);
    replica.executor().run(&[orphan], &mut course).await;
    assert_eq!(world.lock().unwrap().asked, [""; 0]);
    let errors = course.into_errors();
    assert!(matches!(errors[..], [SweepError::NotLeading]), "{errors:?}");
}

#[tokio::test]
async fn a_list_whose_token_has_expired_is_read_anew_and_not_for_ever() {
    let world = Arc::new(Mutex::new(World::default()));
    let client = client(&world);
    world.lock().unwrap().expired = 2;
    let held = lists::holdings(&client, judged).await.unwrap();
    assert_eq!((held.objects, held.suspects.len()), (4, 4));
    assert!(held.ids.contains(&Uid::of("p-gone")));
    assert_eq!(world.lock().unwrap().asked.len(), 6);
    world.lock().unwrap().expired = usize::MAX;
    let expired = lists::holdings(&client, judged).await;
    assert!(matches!(
        expired,
        Err(SweepError::List("the IPUPartitions", _))
    ));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_holds_up_no_sweep() {
    let no_answer = |_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>();
    let client = Client::new(service_fn(no_answer), "default");
    let asked = async {
        let gone: IPUPartition = serde_json::from_value(partition("gone")).unwrap();
        let listed = lists::holdings(&client, judged).await;
        let counted = PodUsers::new(client.clone()).of_orphan("p-gone").await;
        let deleted = ownerless::delete(&client, &gone).await;
        [listed.is_err(), counted.is_err(), deleted.is_err()]
    };
    let failed = tokio::time::timeout(Duration::from_hours(1), asked).await;
    assert_eq!(failed, Ok([true; 3]));
}

/// Deletes the suspects without an owner, as a sweep does. Returns what failed.
async fn delete_ownerless(client: &Client, suspects: Vec<IPUPartition>) -> Vec<SweepError> {
    let gone = ownerless::without_owner(client, suspects).await;
    let mut course = Course::new(gone, Vec::new());
    while let Some(Task::Delete(partition)) = course.next_task() {
        if let Err(error) = ownerless::delete(client, &partition).await {
            course.failed(error);
        }
    }
    course.into_errors()
}

#[tokio::test]
async fn one_that_cannot_be_deleted_keeps_no_other_from_being_deleted() {
    let world = Arc::new(Mutex::new(World::default()));
    let client = client(&world);
    let held = lists::holdings(&client, judged).await.unwrap();
    world.lock().unwrap().asked.clear();
    let errors = delete_ownerless(&client, held.suspects).await;
    let described: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        described,
        ["failed to delete IPUPartition default.stuck-0, whose owner is gone"]
    );
    let asked = world.lock().unwrap().asked.clone();
    let last = |one: &String| {
        let (method, path) = one.split_once(' ').unwrap();
        format!("{method} {}", path.rsplit('/').next().unwrap())
    };
    // The owner of `alive` is not read, because it was listed.
    assert_eq!(
        asked.iter().map(last).collect::<Vec<_>>(),
        [
            "GET ipujobs",
            "GET young",
            "GET stuck",
            "DELETE default.stuck-0",
            "GET gone",
            "DELETE default.gone-0",
        ]
    );
}

#[test]
fn only_owners_whose_end_the_operator_knows_are_judged() {
    let of = |change: &dyn Fn(&mut Value)| {
        let mut object = partition("web");
        change(&mut object);
        judged(&serde_json::from_value(object).unwrap())
    };
    let pod = |object: &mut Value| {
        object["spec"]["owner"]["apiVersion"] = json!("v1");
        object["spec"]["owner"]["kind"] = json!("Pod");
    };
    assert!(of(&|_| {}), "an IPUJob");
    assert!(!of(&pod), "a client may want it before the Pod exists");
    let of_operator = |object: &mut Value| {
        pod(object);
        object["metadata"]["labels"] = json!({"graphcore.ai/pod-uid": "web-uid"});
    };
    assert!(of(&of_operator));
    assert!(!of(
        &|object| object["spec"]["owner"]["kind"] = json!("Notebook")
    ));
}

#[tokio::test]
async fn the_partition_of_a_native_pod_goes_with_the_pod() {
    let world = Arc::new(Mutex::new(World::default()));
    let client = client(&world);
    let of_pod = |name: &str| -> IPUPartition {
        let mut object = partition(name);
        object["spec"]["owner"]["apiVersion"] = json!("v1");
        object["spec"]["owner"]["kind"] = json!("Pod");
        object["metadata"]["labels"] = json!({"graphcore.ai/pod-uid": "u"});
        serde_json::from_value(object).unwrap()
    };
    let suspects = ["alive", "young", "gone"].map(of_pod).to_vec();
    let errors = delete_ownerless(&client, suspects).await;
    assert!(errors.is_empty(), "{errors:?}");
    let asked = world.lock().unwrap().asked.clone();
    assert_eq!(
        asked,
        [
            "GET /api/v1/pods",
            "GET /api/v1/namespaces/default/pods/young",
            "GET /api/v1/namespaces/default/pods/gone",
            "DELETE /apis/graphcore.ai/v1alpha1/ipupartitions/default.gone-0",
        ]
    );
}

#[tokio::test]
async fn the_partition_of_a_workload_goes_with_it_unless_a_pod_has_claimed_it() {
    let world = Arc::new(Mutex::new(World::default()));
    let client = client(&world);
    let of_workload = |(name, pod): (&str, Option<&str>)| -> IPUPartition {
        let mut object = partition(name);
        object["spec"]["owner"]["apiVersion"] = json!("kueue.x-k8s.io/v1beta2");
        object["spec"]["owner"]["kind"] = json!("Workload");
        object["metadata"]["labels"] = json!({"graphcore.ai/workload-uid": "u"});
        if let Some(uid) = pod {
            object["metadata"]["labels"]["graphcore.ai/pod-uid"] = json!(uid);
        }
        serde_json::from_value(object).unwrap()
    };
    // The Workload of the second is gone, and the Pod that has claimed it lives.
    let suspects = [
        ("alive", None),
        ("stuck", Some("alive-uid")),
        ("gone", Some("gone-uid")),
    ];
    let suspects = suspects.map(of_workload).to_vec();
    assert!(suspects.iter().all(judged));
    let errors = delete_ownerless(&client, suspects).await;
    assert!(errors.is_empty(), "{errors:?}");
    let asked = world.lock().unwrap().asked.clone();
    assert_eq!(
        asked,
        [
            "GET /apis/kueue.x-k8s.io/v1beta2/workloads",
            "GET /api/v1/pods",
            "GET /apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads/gone",
            "DELETE /apis/graphcore.ai/v1alpha1/ipupartitions/default.gone-0",
        ]
    );
}
