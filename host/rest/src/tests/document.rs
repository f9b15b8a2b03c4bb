//! The OpenAPI document and the routes are consistent.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fixture::{Ports, create_body};

/// Every method that a client may use.
const METHODS: [&str; 7] = ["get", "post", "put", "patch", "delete", "options", "trace"];

/// The paths of both ports.
const READS: [&str; 6] = [
    "get /controllers",
    "get /health",
    "get /openapi.json",
    "get /readyz",
    "get /stats",
    "post /query",
];

fn operations(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| format!("{method} {path}"))
    });
    operations.collect()
}

#[tokio::test]
async fn each_port_documents_its_own_operations() {
    let ports = Ports::open().await;
    let plain = ports.plain("GET", "/openapi.json", "").await.body;
    let mut expected: BTreeSet<_> = READS.map(str::to_owned).into();
    assert_eq!(operations(&plain), expected);
    let secure = ports.secure("other", "GET", "/openapi.json", "").await.body;
    expected.extend([
        "delete /partitions/{name}".to_owned(),
        "get /partitions".to_owned(),
        "get /partitions/{name}".to_owned(),
        "post /partitions".to_owned(),
    ]);
    assert_eq!(operations(&secure), expected);
}

/// The fixture validates every response against the document: status, media type and body. Here
/// every path is requested with every method, so that neither a route nor a description is without
/// the other.
#[tokio::test]
async fn every_path_answers_the_methods_of_the_document_and_no_others() {
    let ports = Ports::open().await;
    let document = ports.secure("admin", "GET", "/openapi.json", "").await.body;
    let known = operations(&document);
    for template in document["paths"].as_object().unwrap().keys() {
        let path = template.replace("{name}", "p");
        for method in METHODS {
            let body = create_body(|_| {}).to_string();
            let answer = ports
                .secure("admin", &method.to_uppercase(), &path, &body)
                .await;
            let is_known = known.contains(&format!("{method} {template}"));
            assert_eq!(
                answer.status != 405,
                is_known,
                "{method} {path}: {answer:?}"
            );
            if READS.contains(&format!("{method} {template}").as_str()) {
                ports.plain(&method.to_uppercase(), &path, body).await;
            }
        }
    }
}

#[tokio::test]
async fn the_document_is_whole() {
    let ports = Ports::open().await;
    for document in [
        ports.plain("GET", "/openapi.json", "").await.body,
        ports.secure("other", "GET", "/openapi.json", "").await.body,
    ] {
        assert_eq!(document["openapi"], "3.1.0");
        let mut ids = BTreeSet::new();
        for methods in document["paths"].as_object().unwrap().values() {
            for operation in methods.as_object().unwrap().values() {
                assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()));
                assert!(operation["responses"].as_object().unwrap().len() <= 13);
            }
        }
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for reference in text.split("\"$ref\":\"").skip(1) {
            let target = reference.split('"').next().unwrap();
            let name = target.strip_prefix("#/components/schemas/").unwrap();
            assert!(schemas.contains_key(name), "{target} leads nowhere");
        }
    }
    let secure = ports.secure("other", "GET", "/openapi.json", "").await.body;
    let schemas: Vec<_> = secure["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    for name in [
        "IPUPartition",
        "PartitionList",
        "Problem",
        "Wanted",
        "Given",
        "Stats",
    ] {
        assert!(
            schemas.iter().any(|schema| schema == name),
            "{name}: {schemas:?}"
        );
    }
}
