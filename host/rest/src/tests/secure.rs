//! Port 8443: authorization, operations and responses.

use axum::body::Body;
use axum::http::Request;
use ipu_api::labels::PARTITION_FINALIZER;
use serde_json::{Value, json};

use super::fixture::{Answer, Ports, create_body};
use crate::limits::UserRate;

#[tokio::test]
async fn a_partition_is_created_read_and_released() {
    let ports = Ports::open().await;
    let metadata = json!({"labels": {"team": "vision"}, "priorityClassName": "urgent"});
    let body =
        create_body(|create_body| create_body["ownerMetadata"] = metadata.clone()).to_string();
    let made = ports.secure("admin", "POST", "/partitions", &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let path = made.headers["location"].to_str().unwrap().to_owned();
    assert!(path.starts_with("/partitions/default.mnist-0-"), "{path}");
    assert_eq!(
        made.body["metadata"]["finalizers"],
        json!([PARTITION_FINALIZER])
    );
    assert_eq!(made.body["spec"]["ipus"], json!(4));
    assert_eq!(made.body["spec"]["ownerMetadata"], metadata);
    assert!(made.body["metadata"].get("managedFields").is_none());

    let read = ports.secure("reader", "GET", &path, "").await;
    assert_eq!((read.status, &read.body), (200, &made.body));
    let given = ports.secure("admin", "DELETE", &path, "").await;
    assert_eq!(given.status, 202);
    assert!(given.body["partition"]["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(given.body["warnings"], json!([]));
}

#[tokio::test]
async fn a_partition_that_nobody_here_would_make_is_refused() {
    let ports = Ports::open().await;
    let body =
        create_body(|create_body| create_body["owner"]["namespace"] = json!("else")).to_string();
    let refused = ports.secure("admin", "POST", "/partitions", &body).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let error = &refused.body["errors"][0];
    assert!(refused.body["detail"].is_string() && error.is_object());
    let message = error.to_string();
    for part in ["owner.namespace", "else", "namespaces default, team"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(ports.world().partitions.is_empty());
}

#[tokio::test]
async fn whoever_takes_a_living_jobs_partition_is_warned() {
    let ports = Ports::open().await;
    let body = create_body(|create_body| create_body["name"] = json!("p")).to_string();
    for (uid, warnings) in [("another", 0), ("a-uid", 1)] {
        ports
            .world()
            .jobs
            .insert("default/mnist".to_owned(), uid.to_owned());
        ports.world().partitions.clear();
        ports.secure("admin", "POST", "/partitions", &body).await;
        let given = ports.secure("admin", "DELETE", "/partitions/p", "").await;
        let given_warnings = given.body["warnings"].as_array().unwrap();
        assert_eq!(given_warnings.len(), warnings, "{given_warnings:?}");
    }
}

#[tokio::test]
async fn whoever_has_no_good_token_is_challenged() {
    let ports = Ports::open().await;
    for (token, expected) in [
        ("expired", "token has expired"),
        ("elsewhere", "audience ipu-operator"),
        ("of-old", "audience ipu-operator"),
        ("nobody", "does not know the token"),
    ] {
        let answer = ports.secure(token, "GET", "/partitions", "").await;
        assert_eq!(answer.status, 401, "{token}: {answer:?}");
        assert!(
            answer.headers["www-authenticate"]
                .to_str()
                .unwrap()
                .contains("invalid_token")
        );
        assert!(
            answer.body["detail"].as_str().unwrap().contains(expected),
            "{answer:?}"
        );
    }
    assert!(
        ports.world().rights.is_empty(),
        "nobody's rights are asked for"
    );
}

#[tokio::test]
async fn headers_that_hold_no_token_ask_nothing_of_the_api_server() {
    let ports = Ports::open().await;
    let long = format!("Bearer {}", "x".repeat(1 << 20));
    let cases: [&[&[u8]]; 6] = [
        &[],
        &[b"Bearer admin", b"Bearer admin"],
        &[b"Basic YWRtaW46YWRtaW4="],
        &[b"Bearer"],
        &[b"\xff\xfe"],
        &[long.as_bytes()],
    ];
    for lines in cases {
        for (method, path) in [
            ("GET", "/partitions"),
            ("POST", "/partitions"),
            ("GET", "/partitions/p"),
            ("DELETE", "/partitions/p"),
        ] {
            let mut request = Request::builder().method(method).uri(path);
            for line in lines {
                request = request.header("authorization", *line);
            }
            let answer = ports.send(request.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status, 401, "{method} {path}");
            assert!(answer.headers.contains_key("www-authenticate"));
            assert!(
                !answer.body.to_string().contains("admin"),
                "no token is repeated"
            );
        }
    }
    assert_eq!(ports.world().asked, Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_right_is_named_with_how_to_grant_it() {
    let ports = Ports::open().await;
    let body = create_body(|_| {}).to_string();
    for (token, method, path, verb) in [
        ("reader", "POST", "/partitions", "create"),
        ("reader", "DELETE", "/partitions/p", "delete"),
        ("other", "GET", "/partitions", "list"),
        ("other", "GET", "/partitions/p", "get"),
    ] {
        let answer = ports.secure(token, method, path, &body).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        let detail = answer.body["detail"].as_str().unwrap();
        for part in [
            format!("may not {verb} ipupartitions.graphcore.ai"),
            format!("--verb={verb}"),
            format!("--serviceaccount=default:{token}"),
        ] {
            assert!(detail.contains(&part), "{part}: {detail}");
        }
    }
    assert!(ports.world().partitions.is_empty());
}

#[tokio::test]
async fn rights_are_asked_for_the_whole_user_and_the_one_object() {
    let ports = Ports::open().await;
    ports.secure("reader", "GET", "/partitions/p", "").await;
    assert_eq!(
        ports.world().rights,
        [json!({
            "user": "system:serviceaccount:default:reader",
            "groups": ["system:serviceaccounts"],
            "uid": "of-the-account",
            "extra": {"a": ["b"]},
            "resourceAttributes": {
                "group": "graphcore.ai", "version": "v1alpha1", "resource": "ipupartitions",
                "verb": "get", "name": "p",
            },
        })]
    );
}

#[tokio::test]
async fn a_good_token_is_asked_about_once_and_its_rights_each_time() {
    let ports = Ports::open().await;
    for _ in 0..3 {
        ports.secure("reader", "GET", "/partitions/p", "").await;
    }
    let world = ports.world();
    let count = |end: &str| {
        world
            .asked
            .iter()
            .filter(|path| path.ends_with(end))
            .count()
    };
    assert_eq!(
        (count("/tokenreviews"), count("/subjectaccessreviews")),
        (1, 3)
    );
}

#[tokio::test]
async fn without_the_api_server_nothing_is_decided() {
    let ports = Ports::open().await;
    ports.world().is_down = true;
    let answer = ports.secure("admin", "GET", "/partitions/p", "").await;
    assert_eq!(answer.status, 503);
    assert!(answer.headers.contains_key("retry-after"));
    assert!(
        answer.body["detail"]
            .as_str()
            .unwrap()
            .contains("cannot be reached")
    );
}

#[tokio::test]
async fn a_refusal_of_the_api_server_names_the_fields() {
    let ports = Ports::open().await;
    let body = create_body(|create_body| create_body["name"] = json!("p")).to_string();
    let made = ports.secure("admin", "POST", "/partitions", &body).await;
    assert_eq!(made.status, 201);
    let again = ports.secure("admin", "POST", "/partitions", &body).await;
    assert_eq!(again.status, 409, "{again:?}");
    let invalid = json!({
        "status": "Failure", "message": "it is invalid", "reason": "Invalid", "code": 422,
        "details": {"causes": [{"field": "spec.ipus", "message": "too many", "reason": "FieldValueInvalid"}]},
    });
    let forbidden =
        json!({"status": "Failure", "message": "no", "reason": "Forbidden", "code": 403});
    let broken =
        json!({"status": "Failure", "message": "etcd", "reason": "InternalError", "code": 500});
    for (code, status, expected) in [
        (422, invalid, 422),
        (403, forbidden, 503),
        (500, broken, 503),
    ] {
        ports.world().refusal = Some((code, status));
        let answer = ports.secure("admin", "POST", "/partitions", &body).await;
        assert_eq!(answer.status, expected, "{answer:?}");
        if code == 422 {
            assert_eq!(answer.body["errors"][0]["field"], json!("spec.ipus"));
        }
    }
}

#[tokio::test]
async fn missing_partitions_and_invalid_names_are_rejected() {
    let ports = Ports::open().await;
    for (method, path, status) in [
        ("GET", "/partitions/p", 404),
        ("DELETE", "/partitions/p", 404),
        ("GET", "/partitions/UPPER", 400),
        ("DELETE", "/partitions/a%2F..%2Fb", 400),
        ("GET", "/partitions/..", 400),
        ("GET", "/partitions/%ff", 400),
        ("GET", "/partitions/", 404),
        ("GET", "/partition", 404),
        ("PUT", "/partitions", 405),
        ("PATCH", "/partitions/p", 405),
    ] {
        let answer = ports.secure("admin", method, path, "").await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        is_a_problem(&answer, path);
    }
    let asked = ports.world().asked.join("\n");
    assert!(!asked.contains("..") && !asked.contains('%'), "{asked}");
}

#[tokio::test]
async fn what_is_listed_is_bounded_and_checked() {
    let ports = Ports::open().await;
    for (query, status) in [
        ("limit=0", 400),
        ("limit=1001", 400),
        ("limit=x", 400),
        ("namespaces=default", 400),
        ("namespace=default", 503),
    ] {
        let path = format!("/partitions?{query}");
        let answer = ports.secure("admin", "GET", &path, "").await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
}

#[tokio::test]
async fn only_json_is_read_and_only_so_much() {
    let ports = Ports::open().await;
    let send = async |content_type: Option<&str>, body: Body| {
        let mut request = Request::post("/partitions").header("authorization", "Bearer admin");
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        ports.send(request.body(body).unwrap()).await
    };
    let good = || Body::from(create_body(|_| {}).to_string());
    let json = Some("application/json; charset=utf-8");
    for content_type in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        assert_eq!(send(content_type, good()).await.status, 415);
    }
    // With a content length, and chunked without one.
    let pieces =
        futures::stream::iter((0..160).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1 << 16])));
    for body in [Body::from(vec![b' '; 10 << 20]), Body::from_stream(pieces)] {
        let answer = send(json, body).await;
        assert_eq!(answer.status, 413, "{answer:?}");
        assert_eq!(answer.headers["connection"], "close");
    }
    let broken = futures::stream::iter([Ok(vec![b'{']), Err(std::io::Error::other("gone"))]);
    assert_eq!(send(json, Body::from_stream(broken)).await.status, 400);
    assert_eq!(send(json, good()).await.status, 201);
}

#[tokio::test]
async fn a_client_over_the_limit_must_retry_later() {
    let ports = Ports::open_at(UserRate::of_an_hour()).await;
    let ask = async || ports.secure("reader", "GET", "/partitions/p", "").await;
    assert_ne!(ask().await.status, 429);
    let response = ask().await;
    assert_eq!(response.status, 429);
    let again: u64 = response.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((60..=3_601).contains(&again), "{again}");
    is_a_problem(&response, "/partitions/p");
}

fn is_a_problem(answer: &Answer, path: &str) {
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    let body = answer.body.as_object().unwrap();
    let keys: Vec<_> = body.keys().map(String::as_str).collect();
    let mut expected = ["type", "title", "status", "detail", "instance", "errors"];
    expected.sort_unstable();
    let mut keys = keys;
    keys.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(answer.body["status"], Value::from(answer.status));
    assert_eq!(answer.body["instance"], json!(path));
}
