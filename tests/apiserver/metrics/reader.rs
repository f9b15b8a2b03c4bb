//! A reader of metrics: an account with its right, its token, and the CA that it trusts.

use cluster::wait::{Seen, eventually};
use http::Request;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use kube::client::Body;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use crate::partition::install::apply;

/// A client of the port.
pub(super) struct Reader(Client);

impl Reader {
    /// A reader with a token, who trusts this CA (PEM).
    pub(super) fn new(port: u16, server: &str, ca: &str, token: &str) -> Self {
        let address = format!("https://127.0.0.1:{port}");
        let mut config = Config::new(address.parse().unwrap());
        let ca = CertificateDer::from_pem_slice(ca.as_bytes());
        config.root_cert = Some(vec![ca.unwrap().to_vec()]);
        config.tls_server_name = Some(server.to_owned());
        config.auth_info.token = Some(token.to_owned().into());
        Self(Client::try_from(config).unwrap())
    }

    /// Returns the status and the text of `/metrics`, once the port responds.
    pub(super) async fn read(&self) -> (u16, String) {
        eventually("the metrics are served", async || {
            let request = Request::get("/metrics").body(Body::empty()).unwrap();
            let response = match self.0.send(request).await {
                Ok(response) => response,
                Err(error) => return Seen::NotYet(error.to_string()),
            };
            let status = response.status().as_u16();
            let bytes = response.into_body().collect_bytes().await.unwrap();
            Seen::Yes((status, String::from_utf8(bytes.to_vec()).unwrap()))
        })
        .await
    }
}

/// Returns the CA of a Secret that the operator creates.
pub(super) async fn ca(client: &Client, namespace: &str, secret: &str) -> String {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    eventually("the certificate is made", async || {
        let secret = secrets.get_opt(secret).await.unwrap()?;
        String::from_utf8(secret.data?["ca.crt"].0.clone()).ok()
    })
    .await
}

/// Creates a token of an account, as for a Pod of it.
pub(super) async fn token(client: &Client, account: &str) -> String {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    let object = serde_json::from_value(json!({"metadata": {"name": account}})).unwrap();
    apply::<ServiceAccount>(accounts.clone(), &object).await;
    let (params, request) = (PostParams::default(), TokenRequest::default());
    let made = accounts.create_token_request(account, &params, &request);
    made.await.unwrap().status.unwrap().token.unwrap()
}

/// Binds the chart's role for readers to an account.
pub(super) async fn may_read(client: &Client, account: &str) {
    let role = json!({
        "metadata": {"name": "op-metrics-reader"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    });
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    apply(Api::all(client.clone()), &role).await;
    let binding = json!({
        "metadata": {"name": account},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "op-metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
    });
    let binding: ClusterRoleBinding = serde_json::from_value(binding).unwrap();
    apply(Api::all(client.clone()), &binding).await;
}
