//! Accounts with ordinary rights: requests of `system:masters` skip the checks of rights and the
//! API server's fairness.

use std::path::{Path, PathBuf};

use cluster::control_plane::ControlPlane;
use cluster::kubeconfig;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, PostParams};

use super::{LoadError, api};

/// Writes a kubeconfig with a token of a ServiceAccount, as a Pod of it has one.
pub(super) async fn kubeconfig_of(
    plane: &ControlPlane,
    folder: &Path,
    (namespace, account): (&str, &str),
) -> Result<PathBuf, LoadError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().await?, namespace);
    let (params, request) = (PostParams::default(), TokenRequest::default());
    let token = accounts.create_token_request(account, &params, &request);
    let token = token.await.map_err(api("create a token"))?.status;
    let token = token.and_then(|status| status.token).unwrap_or_default();
    let path = folder.join(format!("{account}.kubeconfig"));
    kubeconfig::write_with_token(&plane.kubeconfig(), &path, &token)?;
    Ok(path)
}

/// Creates a ServiceAccount.
pub(super) async fn create(
    plane: &ControlPlane,
    (namespace, account): (&str, &str),
) -> Result<(), LoadError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().await?, namespace);
    let object = ServiceAccount {
        metadata: ObjectMeta {
            name: Some(account.to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    let created = accounts.create(&PostParams::default(), &object).await;
    created.map(drop).map_err(api("create a ServiceAccount"))
}

/// Gives a ServiceAccount the rights of a ClusterRole.
pub(super) async fn bind(
    plane: &ControlPlane,
    (namespace, account): (&str, &str),
    role: &str,
) -> Result<(), LoadError> {
    let bindings: Api<ClusterRoleBinding> = Api::all(plane.client().await?);
    let object = ClusterRoleBinding {
        metadata: ObjectMeta {
            name: Some(account.to_owned()),
            ..ObjectMeta::default()
        },
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: role.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account.to_owned(),
            namespace: Some(namespace.to_owned()),
            ..Subject::default()
        }]),
    };
    let created = bindings.create(&PostParams::default(), &object).await;
    created
        .map(drop)
        .map_err(api("bind rights to a ServiceAccount"))
}
