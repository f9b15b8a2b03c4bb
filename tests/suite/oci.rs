//! Incorrect registries: slow, false, redirecting and endless ones, and ones that require tokens.
#![cfg(test)]

mod fake;
mod secure;
mod signed;

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ipu_oci::credentials::Credentials;
use ipu_oci::fetch::{component, find, signers};
use ipu_oci::manifest::artefact;
use ipu_oci::push::push;
use ipu_oci::registry::Access;
use ipu_text::explain;
use serde_json::json;

use self::fake::{Content, Fake, RecordedRequest, challenged, endless, moved, stuck};

/// Most bytes of a component in these tests.
const LIMIT: u64 = 1 << 20;

/// The output of `printf team:a-secret | base64`.
const BASIC: &str = "Basic dGVhbTphLXNlY3JldA==";

fn user() -> Access {
    Access {
        credentials: Some(Credentials {
            user: "team".to_owned(),
            password: "a-secret".to_owned(),
        }),
        ..Access::default()
    }
}

/// Fetches as the operator does. Returns the component, or the error.
async fn fetched(fake: &Fake, version: &str, access: Access) -> Result<Vec<u8>, String> {
    let registry = fake.client(access);
    let found = find(&registry, &fake.reference(version)).await;
    let found = found.map_err(|error| explain(&error))?;
    let bytes = component(&registry, &found, LIMIT).await;
    bytes.map_err(|error| explain(&error))
}

#[tokio::test]
async fn a_correct_registry_is_accepted() {
    let content = Content::new();
    let fake = Fake::start(|_| None).await;
    let by_digest = format!("@{}", content.digest());
    for version in [":1", &by_digest, &format!(":other{by_digest}")] {
        let bytes = fetched(&fake, version, Access::default()).await;
        assert_eq!(bytes.as_ref(), Ok(&content.component));
    }
    assert!(
        fake.requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
}

/// Gives this reply to requests whose line ends with this text.
fn at(
    end: impl Into<String>,
    answer: impl Fn() -> Response + Send + Sync + 'static,
) -> impl Fn(&RecordedRequest) -> Option<Response> + Send + Sync + 'static {
    let end = end.into();
    move |request| request.line.ends_with(&end).then(&answer)
}

/// The reply of a false registry.
type Lie = Box<dyn Fn() -> Response + Send + Sync>;

/// Cases of false registries: the requested version, the end of the path with the false reply, and
/// a part of the error.
fn lies(content: &Content) -> Vec<(String, String, Lie, String)> {
    let blob = content.blob();
    let mut turned = content.component.clone();
    turned.reverse();
    let longer = [content.component.clone(), vec![0]].concat();
    let digest = content.digest();
    let headed = (
        [(
            "docker-content-digest",
            format!("sha256:{}", "0".repeat(64)),
        )],
        content.manifest.clone(),
    );
    let size = json!({"schemaVersion": 2, "layers": [{"mediaType": "application/wasm",
        "digest": format!("sha256:{}", "0".repeat(64)), "size": LIMIT + 1}]});
    vec![
        (
            format!("@{digest}"),
            digest.clone(),
            Box::new(|| "{}".into_response()),
            format!("but {digest} was requested as the manifest {digest}"),
        ),
        (
            ":1".into(),
            "manifests/1".into(),
            Box::new(move || headed.clone().into_response()),
            format!("answers with {digest}, but sha256:0000"),
        ),
        (
            ":1".into(),
            blob.clone(),
            Box::new(move || turned.clone().into_response()),
            "changes its content".into(),
        ),
        (
            ":1".into(),
            blob,
            Box::new(move || longer.clone().into_response()),
            format!("reads at most {} bytes", content.component.len()),
        ),
        (
            ":1".into(),
            "manifests/1".into(),
            Box::new(move || Json(size.clone()).into_response()),
            format!("reads at most {LIMIT} bytes"),
        ),
        (
            ":1".into(),
            "manifests/1".into(),
            Box::new(|| "<html>".into_response()),
            "it is no OCI manifest".into(),
        ),
    ]
}

#[tokio::test]
async fn replies_of_a_false_registry_are_refused() {
    for (version, end, lie, words) in lies(&Content::new()) {
        let fake = Fake::start(at(end, lie)).await;
        let error = fetched(&fake, &version, Access::default())
            .await
            .unwrap_err();
        assert!(error.contains(&words), "{words}: {error}");
    }
}

#[tokio::test]
async fn bodies_without_an_end_are_cut_off() {
    let blob = Content::new().blob();
    let complaint = || (StatusCode::IM_A_TEAPOT, endless()).into_response();
    for (end, answer, words) in [
        (
            "manifests/1",
            endless as fn() -> Response,
            "the manifest 1 is too large: the operator reads at most 4194304 bytes",
        ),
        (&*blob, endless, "reads at most 22 bytes"),
        ("manifests/1", complaint, "answered 418"),
    ] {
        let fake = Fake::start(at(end, answer)).await;
        let error = fetched(&fake, ":1", Access::default()).await.unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[tokio::test]
async fn an_unresponsive_registry_ends_the_fetch_at_its_timeout() {
    let hasty = Access {
        timeout: Duration::from_millis(200),
        ..Access::default()
    };
    let fake = Fake::start(at("manifests/1", stuck)).await;
    let error = fetched(&fake, ":1", hasty.clone()).await.unwrap_err();
    assert!(
        error.contains("gave no answer to the request for the manifest 1"),
        "{error}"
    );
    assert!(error.contains("sent nothing for 200 ms"), "{error}");
    // No process listens on this port.
    let gone = fake.moved_to("127.0.0.1:1");
    let error = fetched(&gone, ":1", hasty).await.unwrap_err();
    assert!(error.contains("127.0.0.1:1 gave no answer"), "{error}");
}

#[tokio::test]
async fn the_error_of_a_registry_is_reported_in_short() {
    let reply = |status: StatusCode, message: String| {
        let body = json!({"errors": [{"code": "SOME", "message": message}]});
        (status, Json(body)).into_response()
    };
    for (status, message, words) in [
        (
            StatusCode::NOT_FOUND,
            "no \u{7}su\u{202e}ch\nError: none",
            "does not have the manifest 1 (SOME no \u{fffd}su\u{fffd}ch Error: none); check",
        ),
        (
            StatusCode::FORBIDDEN,
            "no",
            "denies clients without credentials access to the manifest 1 (SOME no)",
        ),
        (
            StatusCode::TOO_MANY_REQUESTS,
            "later",
            "answered 429 Too Many Requests to the request for the manifest 1 (SOME later)",
        ),
    ] {
        let answer = at("manifests/1", move || reply(status, message.to_owned()));
        let fake = Fake::start(answer).await;
        let error = fetched(&fake, ":1", Access::default()).await.unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let answer = at("manifests/1", move || {
        reply(StatusCode::BAD_GATEWAY, "x".repeat(10_000))
    });
    let error = fetched(&Fake::start(answer).await, ":1", Access::default()).await;
    assert!(error.unwrap_err().len() < 400);
}

#[tokio::test]
async fn user_and_password_are_sent_only_to_the_registry_and_only_after_its_challenge() {
    let other = Fake::start(|_| None).await;
    let blob = Content::new().blob();
    let to = format!("http://{}{blob}", other.host);
    let fake = Fake::start(move |request| match request.authorization.as_deref() {
        Some(BASIC) if request.line.ends_with(&blob) => Some(moved(&to)),
        Some(BASIC) => None,
        _ => Some(challenged("Basic realm=\"registry\"")),
    })
    .await;
    let bytes = fetched(&fake, ":1", user()).await;
    assert_eq!(bytes, Ok(Content::new().component));
    let shown: Vec<_> = fake
        .requests()
        .into_iter()
        .map(|request| request.authorization)
        .collect();
    let basic = Some(BASIC.to_owned());
    assert_eq!(shown, [None, basic.clone(), basic]);
    let requests = other.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].authorization, None);

    let error = fetched(&fake, ":1", Access::default()).await.unwrap_err();
    assert!(
        error.contains("denies clients without credentials access to"),
        "{error}"
    );
}

#[tokio::test]
async fn another_host_that_asks_for_credentials_gets_none() {
    let thief = Fake::start(|_| Some(challenged("Basic realm=\"give\""))).await;
    let to = format!("http://{}/give", thief.host);
    let fake = Fake::start(move |_| Some(moved(&to))).await;
    let error = fetched(&fake, ":1", user()).await.unwrap_err();
    assert!(
        error.contains("denies the user \"team\" access to the manifest 1"),
        "{error}"
    );
    assert!(
        thief
            .requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
}

#[tokio::test]
async fn redirects_end() {
    let fake = Fake::start(|request| {
        let step = request.line.matches('x').count();
        Some(moved(&format!("/v2/{}", "x".repeat(step + 1))))
    })
    .await;
    let error = fetched(&fake, ":1", Access::default()).await.unwrap_err();
    assert!(error.contains("redirect"), "{error}");
    assert!(fake.requests().len() <= 6, "{:?}", fake.requests());
}

/// A registry that requires tokens of a server with this reply.
async fn with_tokens(answer: fn() -> Response) -> (Fake, Fake) {
    let server = Fake::start(move |_| Some(answer())).await;
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"reg\",scope=\"repository:team/policy:pull\"",
        server.host
    );
    let fake = Fake::start(move |request| match request.authorization.as_deref() {
        Some("Bearer good") => None,
        _ => Some(challenged(&challenge)),
    });
    (fake.await, server)
}

#[tokio::test]
async fn a_token_is_requested_with_user_and_password_and_sent_instead_of_them() {
    for token in ["token", "access_token"] {
        let answer = match token {
            "token" => || Json(json!({"token": "good"})).into_response(),
            _ => || Json(json!({"access_token": "good"})).into_response(),
        };
        let (fake, server) = with_tokens(answer).await;
        let bytes = fetched(&fake, ":1", user()).await;
        assert_eq!(bytes, Ok(Content::new().component));
        let requests = server.requests();
        assert_eq!(requests.len(), 1, "one token is enough: {requests:?}");
        let query = "GET /token?service=reg&scope=repository%3Ateam%2Fpolicy%3Apull";
        assert_eq!(requests[0].line, query);
        assert_eq!(requests[0].authorization.as_deref(), Some(BASIC));
        let shown = fake
            .requests()
            .into_iter()
            .filter_map(|request| request.authorization);
        assert!(shown.into_iter().all(|shown| shown == "Bearer good"));
    }
}

#[tokio::test]
async fn a_token_server_without_a_token_is_an_error() {
    for (answer, words) in [
        (
            (|| "{}".into_response()) as fn() -> Response,
            "contains no token",
        ),
        (
            || Json(json!({"token": "a\nb"})).into_response(),
            "contains no token",
        ),
        (
            || Json(json!({"token": "bad"})).into_response(),
            "denies the user \"team\" access to",
        ),
        (endless, "reads at most 65536 bytes"),
        (|| moved("http://127.0.0.1:1/"), "answered 307"),
    ] {
        let (fake, _server) = with_tokens(answer).await;
        let error = fetched(&fake, ":1", user()).await.unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
    let fake = Fake::start(|_| Some(challenged("Negotiate"))).await;
    let error = fetched(&fake, ":1", user()).await.unwrap_err();
    assert!(
        error.contains("an authentication scheme other than Basic and Bearer"),
        "{error}"
    );
}

#[tokio::test]
async fn unreadable_signatures_do_not_count_and_a_failing_registry_is_an_error() {
    let keys: Vec<_> = Vec::new();
    let judged = async |fake: &Fake| {
        let registry = fake.client(Access::default());
        let found = find(&registry, &fake.reference(":1")).await.unwrap();
        explain(&signers(&registry, &found, &keys).await.unwrap_err())
    };
    let malformed = Fake::start(|request| {
        request
            .line
            .contains("sha256-")
            .then(|| "[".into_response())
    });
    let error = judged(&malformed.await).await;
    assert!(error.contains("has no signature for it"), "{error}");
    let strange = json!({"layers": [{"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
        "digest": "../../x", "size": 3, "annotations": {"dev.cosignproject.cosign/signature": "x"}}]});
    let strange = at(".sig", move || Json(strange.clone()).into_response());
    let error = judged(&Fake::start(strange).await).await;
    assert!(error.contains("has no signature for it"), "{error}");
    let broken = at(".sig", || StatusCode::BAD_GATEWAY.into_response());
    let error = judged(&Fake::start(broken).await).await;
    assert!(error.contains("answered 502"), "{error}");
}

#[tokio::test]
async fn an_upload_goes_to_the_location_of_the_registry_without_credentials_for_another_host() {
    let store = Fake::start(|_| Some(StatusCode::CREATED.into_response())).await;
    let to = format!("http://{}/store?upload=1", store.host);
    let fake = Fake::start(move |request| {
        if request.authorization.is_none() {
            return Some(challenged("Basic realm=\"registry\""));
        }
        let headers = [("location", to.clone())];
        match request.line.split_whitespace().next() {
            Some("HEAD") => Some(StatusCode::NOT_FOUND.into_response()),
            Some("POST") => Some((StatusCode::ACCEPTED, headers).into_response()),
            _ => Some(StatusCode::CREATED.into_response()),
        }
    })
    .await;
    let artefact = artefact(b"component", &[], &[]);
    let registry = fake.client(user());
    let pushed = push(&registry, &fake.reference(":1"), b"component", artefact).await;
    pushed.unwrap();
    let sent = store.requests();
    assert_eq!(sent.len(), 2, "{sent:?}");
    let upload = "PUT /store?upload=1&digest=sha256%3A";
    for request in sent {
        assert!(request.line.starts_with(upload), "{request:?}");
        assert_eq!(request.authorization, None);
    }
    let last = fake.requests().pop().unwrap();
    assert_eq!(last.line, "PUT /v2/team/policy/manifests/1");
}
