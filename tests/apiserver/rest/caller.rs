//! A caller of the proxy's port with TLS: an account with its rights, its token, and the CA that it
//! trusts.

use cluster::wait::eventually;
use http::Request;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use kube::client::Body;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::partition::fixture::{Fixture, NAMESPACE};
use crate::partition::install::apply;

/// The Secret with the certificate of the port.
pub(super) const SECRET: &str = "ipu-operator-vipu-proxy-tls";

/// One of the names in the certificate.
const SERVER: &str = "ipu-operator-vipu-proxy.ipu-operator-system.svc";

/// A response of the port.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Value,
}

/// A client of the port.
pub(super) struct Caller(Client);

impl Caller {
    /// A caller with a token, who trusts the CA in the Secret.
    pub(super) async fn new(fixture: &Fixture, token: &str) -> Self {
        let address = format!("https://127.0.0.1:{}", fixture.secure_port);
        let mut config = Config::new(address.parse().unwrap());
        config.root_cert = Some(vec![ca(fixture).await.to_vec()]);
        config.tls_server_name = Some(SERVER.to_owned());
        config.auth_info.token = Some(token.to_owned().into());
        Self(Client::try_from(config).unwrap())
    }

    /// Retries until the port responds. The proxy serves it when there is a certificate.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let what = format!("{method} {path} is answered");
        eventually(&what, async || self.try_ask(method, path, body).await).await
    }

    async fn try_ask(&self, method: &str, path: &str, body: &Value) -> Result<Answer, String> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let request = request.body(Body::from(body.to_string().into_bytes()));
        let response = self.0.send(request.unwrap()).await;
        let (parts, body) = response.map_err(|error| error.to_string())?.into_parts();
        let body = body
            .collect_bytes()
            .await
            .map_err(|error| error.to_string())?;
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_slice(&body).unwrap(),
        })
    }
}

/// Returns the CA that the proxy has stored in its Secret.
pub(super) async fn ca(fixture: &Fixture) -> CertificateDer<'static> {
    let secrets = Api::<Secret>::namespaced(fixture.client.clone(), NAMESPACE);
    eventually("the proxy has made its certificate", async || {
        let secret = secrets.get_opt(SECRET).await.unwrap()?;
        CertificateDer::from_pem_slice(&secret.data?["ca.crt"].0).ok()
    })
    .await
}

/// Creates an account if it does not exist, and returns a token of it for an audience.
pub(super) async fn token(fixture: &Fixture, account: &str, audience: &str) -> String {
    let accounts = Api::<ServiceAccount>::namespaced(fixture.client.clone(), "default");
    let object = serde_json::from_value(json!({"metadata": {"name": account}})).unwrap();
    apply::<ServiceAccount>(accounts.clone(), &object).await;
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(vec![audience.to_owned()]),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let params = PostParams::default();
    let made = accounts.create_token_request(account, &params, &request);
    made.await.unwrap().status.unwrap().token.unwrap()
}

/// Grants an account these verbs on IPUPartitions.
pub(super) async fn grant(fixture: &Fixture, account: &str, verbs: &[&str]) {
    let role = json!({
        "metadata": {"name": account},
        "rules": [{
            "apiGroups": ["graphcore.ai"], "resources": ["ipupartitions"], "verbs": verbs,
        }],
    });
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    apply(Api::all(fixture.client.clone()), &role).await;
    let binding = json!({
        "metadata": {"name": account},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account,
        },
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    });
    let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
    apply(Api::all(fixture.client.clone()), &binding).await;
}
