//! The proxy's port with TLS on a real API server: real tokens, real rights, and a real
//! certificate.
#![cfg(test)]

mod caller;

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::{IPUPartition, PartitionPhase};
use ipu_api::labels::REQUESTED_BY_ANNOTATION;
use ipu_ports::certificates::Source;
use ipu_ports::certificates::renewal::CertificateManager;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use self::caller::{Caller, SECRET, ca, grant, token};
use crate::partition::fixture::{AUDIENCE, Fixture, NAMESPACE, id};

/// The requested partition of these tests.
fn create_request(owner: &str, ipus: u32) -> Value {
    json!({
        "owner": {
            "apiVersion": "example.com/v1", "kind": "Notebook", "namespace": "default",
            "name": owner, "uid": format!("uid-of-{owner}"),
        },
        "slot": 0, "ipus": ipus, "gcds": 1,
    })
}

/// The API server follows new rights with a short delay.
async fn once_allowed(caller: &Caller) {
    eventually("the right is granted", async || {
        let answer = caller.ask("GET", "/partitions", &Value::Null).await;
        Seen::when(answer.status, |status| *status == 200)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_requested_created_and_released() {
    let fixture = Fixture::start(&[16]).await;
    grant(&fixture, "rest-admin", &["list", "get", "create", "delete"]).await;
    let caller = Caller::new(&fixture, &token(&fixture, "rest-admin", AUDIENCE).await).await;
    once_allowed(&caller).await;

    let made = caller
        .ask("POST", "/partitions", &create_request("book", 4))
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    let path = made.headers["location"].to_str().unwrap().to_owned();
    let object: IPUPartition = serde_json::from_value(made.body).unwrap();
    let ready = fixture.once_in(&object, PartitionPhase::Ready).await;
    assert_eq!(fixture.ids(), [[id(&ready)]]);

    let again = caller
        .ask("POST", "/partitions", &create_request("book", 4))
        .await;
    assert_eq!(again.status, 409, "{again:?}");
    let read = caller.ask("GET", &path, &Value::Null).await;
    assert_eq!(read.body["metadata"]["uid"], json!(object.uid()));
    eventually("the list contains it", async || {
        let list = caller
            .ask("GET", "/partitions?namespace=default", &Value::Null)
            .await;
        Seen::when(list.body["items"][0]["status"]["phase"].clone(), |phase| {
            *phase == json!("Ready")
        })
    })
    .await;
    let controllers = caller.ask("GET", "/controllers", &Value::Null).await;
    let by = &read.body["metadata"]["annotations"][REQUESTED_BY_ANNOTATION];
    assert!(
        by.as_str().is_some_and(|by| by.ends_with(":rest-admin")),
        "{by}"
    );
    assert_eq!(
        controllers.body[0]["partitions"][0]["id"],
        json!(id(&ready))
    );

    let given = caller.ask("DELETE", &path, &Value::Null).await;
    assert_eq!(given.status, 202, "{given:?}");
    assert_eq!(given.body["warnings"], json!([]));
    assert!(given.body["partition"]["metadata"]["deletionTimestamp"].is_string());
    fixture.once_gone(&object).await;
    fixture
        .once_ids("its controller has removed it", |ids| ids[0].is_empty())
        .await;
    let gone = caller.ask("DELETE", &path, &Value::Null).await;
    assert_eq!(gone.status, 404, "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_deletes_the_partition_of_an_existing_job_gets_a_warning() {
    let fixture = Fixture::start(&[16]).await;
    grant(&fixture, "rest-admin", &["list", "get", "create", "delete"]).await;
    let caller = Caller::new(&fixture, &token(&fixture, "rest-admin", AUDIENCE).await).await;
    once_allowed(&caller).await;
    let job = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
        "metadata": {"name": "rest-job"},
        "spec": {
            "jobInstances": 1, "ipusPerJobInstance": "1",
            "workers": {"template": {"spec": {"containers": [{"name": "main", "image": "none"}]}}},
        },
    });
    let job: IPUJob = serde_json::from_value(job).unwrap();
    let jobs = Api::<IPUJob>::namespaced(fixture.client.clone(), "default");
    let job = jobs.create(&Default::default(), &job).await.unwrap();
    let mut body = create_request("rest-job", 1);
    body["owner"]["apiVersion"] = json!("graphcore.ai/v1alpha1");
    body["owner"]["kind"] = json!("IPUJob");
    body["owner"]["uid"] = json!(job.uid());
    let made = caller.ask("POST", "/partitions", &body).await;
    let path = made.headers["location"].to_str().unwrap().to_owned();
    let given = caller.ask("DELETE", &path, &Value::Null).await;
    jobs.delete("rest-job", &DeleteParams::default())
        .await
        .unwrap();
    let warning = given.body["warnings"][0].as_str().unwrap();
    assert!(warning.contains("default/rest-job"), "{warning}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_the_right_are_refused() {
    let fixture = Fixture::start(&[16]).await;
    grant(&fixture, "rest-reader", &["list", "get"]).await;
    let nobody = Caller::new(&fixture, &token(&fixture, "rest-nobody", AUDIENCE).await).await;
    let reader = Caller::new(&fixture, &token(&fixture, "rest-reader", AUDIENCE).await).await;
    once_allowed(&reader).await;
    let object = fixture.request("kept", 4).await;
    let path = format!("/partitions/{}", object.name_any());
    assert_eq!(reader.ask("GET", &path, &Value::Null).await.status, 200);
    for (caller, method, path) in [
        (&reader, "POST", "/partitions"),
        (&reader, "DELETE", path.as_str()),
        (&nobody, "GET", "/partitions"),
        (&nobody, "GET", path.as_str()),
        (&nobody, "POST", "/partitions"),
        (&nobody, "DELETE", path.as_str()),
    ] {
        let answer = caller.ask(method, path, &create_request("other", 4)).await;
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
    let all = fixture
        .partitions()
        .list(&Default::default())
        .await
        .unwrap();
    let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, [object.name_any()]);
    assert!(all.items[0].metadata.deletion_timestamp.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_live_tokens_for_this_audience_are_accepted() {
    let fixture = Fixture::start(&[16]).await;
    grant(&fixture, "rest-admin", &["list", "get", "create", "delete"]).await;
    let elsewhere = "https://kubernetes.default.svc.cluster.local";
    let mut good = token(&fixture, "rest-admin", AUDIENCE).await;
    let for_others = token(&fixture, "rest-admin", elsewhere).await;
    let revoked = token(&fixture, "rest-leaver", AUDIENCE).await;
    let accounts = Api::<ServiceAccount>::namespaced(fixture.client.clone(), "default");
    accounts
        .delete("rest-leaver", &DeleteParams::default())
        .await
        .unwrap();
    good.truncate(good.len() - 4);
    for bad in [good, for_others, "garbage".to_owned()] {
        let caller = Caller::new(&fixture, &bad).await;
        let answer = caller.ask("GET", "/partitions", &Value::Null).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        let challenge = answer.headers["www-authenticate"].to_str().unwrap();
        assert!(challenge.starts_with("Bearer "), "{challenge}");
    }
    // The API server notices the deletion of an account with a short delay. Until then the account
    // has no rights.
    let caller = Caller::new(&fixture, &revoked).await;
    eventually(
        "the token of an account that is gone is refused",
        async || {
            let answer = caller.ask("GET", "/partitions", &Value::Null).await;
            Seen::when(answer.status, |status| *status == 401)
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_served_without_a_restart() {
    let fixture = Fixture::start(&[16]).await;
    let before = ca(&fixture).await;
    let old = Caller::new(&fixture, "none").await;
    assert_eq!(old.ask("GET", "/health", &Value::Null).await.status, 200);
    let secrets = Api::<Secret>::namespaced(fixture.client.clone(), NAMESPACE);
    secrets
        .delete(SECRET, &DeleteParams::default())
        .await
        .unwrap();
    eventually("there is another CA", async || {
        Seen::when(ca(&fixture).await == before, |is_same| !is_same)
    })
    .await;
    // The client trusts only the new CA.
    let new = Caller::new(&fixture, "none").await;
    assert_eq!(new.ask("GET", "/health", &Value::Null).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_that_start_together_have_one_certificate() {
    let fixture = Fixture::without_proxy(&[16]).await;
    let manager = || CertificateManager {
        client: fixture.client.clone(),
        namespace: NAMESPACE.to_owned(),
        secret: "two-replicas".to_owned(),
        names: vec!["ipu-operator-vipu-proxy".to_owned()],
        source: Source::Made,
    };
    let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
    let (first, second) = (manager(), manager());
    let (first, second) = tokio::join!(first.ensure(|| now), second.ensure(|| now));
    assert!(first.unwrap() == second.unwrap());
}
