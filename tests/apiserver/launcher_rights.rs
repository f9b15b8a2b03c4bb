//! The rights that the launchers of a namespace share, with the policy of the chart: an API server
//! shows what a token of a launcher reaches.

use cluster::wait::{Seen, eventually};
use ipu_agent::hold::annotation::{self, OwnPod};
use ipu_api::ipujob_status::JobState;
use ipu_api::naming::SHARED_LAUNCHERS;
use ipu_jobs::build::agent;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use serde_json::json;

use crate::job::parallel;
use crate::planes;
use crate::processes::{Given, Installation};

/// The name of the policy, as the chart passes it to the controller.
pub(crate) const ARGUMENT: &str = "--launcher-policy=ipu-operator-launchers.ipu-operator";

/// The value that turns shared rights on.
pub(crate) const VALUE: &str = "launcher.sharedRights=true";

/// The reply to an exec that admission allows, because no Pod here has a node.
const ALLOWED: &str = "does not have a host assigned";

/// A client with other credentials than those of the admin.
async fn client_as(installation: &Installation, credentials: AuthInfo) -> Client {
    let kubeconfig = Kubeconfig::read_from(installation.plane.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.unwrap();
    config.auth_info = credentials;
    Client::try_from(config).unwrap()
}

/// A client with a token of the shared account, bound to a Pod if one is given.
async fn with_token(installation: &Installation, pod: Option<&Pod>) -> Client {
    with_token_of(installation, SHARED_LAUNCHERS, pod).await
}

/// The same of any account.
async fn with_token_of(installation: &Installation, account: &str, pod: Option<&Pod>) -> Client {
    let bound = pod.map(|pod| BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.name_any()),
        uid: pod.uid(),
    });
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            bound_object_ref: bound,
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::default_namespaced(installation.client.clone());
    let params = PostParams::default();
    let made = accounts.create_token_request(account, &params, &request);
    let token = made.await.unwrap().status.unwrap().token.unwrap();
    let credentials = AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    };
    client_as(installation, credentials).await
}

/// Asks for an exec. Returns the reply of the API server.
async fn exec(client: &Client, pod: &str, command: &[&str]) -> String {
    let words = command.iter().map(|word| format!("&command={word}"));
    let query: String = words.collect();
    let path =
        format!("/api/v1/namespaces/default/pods/{pod}/exec?container=main&stdout=true{query}");
    let request = http::Request::post(path).body(Vec::new()).unwrap();
    client.request_text(request).await.unwrap_err().to_string()
}

/// A job of two workers runs, with shared rights. Returns its launcher.
async fn running(installation: &Installation, job: &str) -> Pod {
    installation.submit(&parallel(job)).await;
    for worker in 0..2 {
        installation.runs(&format!("{job}-worker-{worker}")).await;
    }
    let launcher = installation.runs(&format!("{job}-launcher")).await;
    installation.once(job, JobState::Running).await;
    launcher
}

async fn installed() -> Installation {
    let given = Given {
        values: vec![VALUE],
        controller: vec![ARGUMENT],
        ..Given::default()
    };
    Installation::of(planes::with_definitions().await, given).await
}

#[tokio::test]
async fn a_launcher_reaches_the_workers_of_its_own_job_and_nothing_else() {
    let installation = installed().await;
    let _controller = installation
        .controller("rights-controller", Vec::new())
        .await;
    let _proxy = installation.proxy("rights-proxy", Vec::new()).await;
    let launcher = running(&installation, "mnist").await;
    running(&installation, "other").await;
    let spec = launcher.spec.as_ref().unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some(SHARED_LAUNCHERS));
    let client = with_token(&installation, Some(&launcher)).await;
    let command = [agent::PROGRAM, "run", "--", "true"];
    // An API server learns of a new RoleBinding with a short delay.
    eventually("the launcher reaches its worker", async || {
        let reply = exec(&client, "mnist-worker-0", &command).await;
        Seen::when(reply, |reply| reply.contains(ALLOWED))
    })
    .await;
    let named = [agent::PROGRAM, "host-name", "mnist-worker-1", "--", "prted"];
    let reply = exec(&client, "mnist-worker-1", &named).await;
    assert!(reply.contains(ALLOWED), "{reply}");
    for pod in [
        "other-worker-0",
        "mnist-launcher",
        "mnist-worker-00",
        "mnist-worker-01",
        "mnist-worker-0-x",
        "mnist-worker-0.x",
        "mnist-worker-0-worker-0",
        "mnist-worker-99999999999999999999",
        "mnist-2-worker-0",
        "my-mnist-worker-0",
    ] {
        let reply = exec(&client, pod, &command).await;
        assert!(
            reply.contains("workers of its own job only"),
            "{pod}: {reply}"
        );
    }
    // A stranger's Pod with the name of a worker that does not exist lacks the agent.
    let commands: [&[&str]; 4] = [
        &["true"],
        &["sh", "run"],
        &[agent::PROGRAM],
        &[agent::PROGRAM, "exec"],
    ];
    for command in commands {
        let reply = exec(&client, "mnist-worker-7", command).await;
        assert!(reply.contains("kubeexec.sh"), "{command:?}: {reply}");
    }
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let read = pods.get("mnist-worker-0").await.unwrap_err().to_string();
    assert!(read.contains("cannot get resource"), "{read}");
    let unbound = with_token(&installation, None).await;
    let reply = exec(&unbound, "mnist-worker-0", &command).await;
    assert!(reply.contains("token of a launcher's Pod"), "{reply}");
}

#[tokio::test]
async fn a_launcher_with_rights_of_its_own_follows_its_pod_and_no_other() {
    let installation = Installation::new().await;
    let _controller = installation.controller("follow-controller", vec![]).await;
    let _proxy = installation.proxy("follow-proxy", Vec::new()).await;
    let launcher = running(&installation, "mnist").await;
    let client = with_token_of(&installation, "mnist-launcher", Some(&launcher)).await;
    let own = OwnPod {
        name: launcher.name_any(),
        uid: launcher.uid().unwrap(),
    };
    let released = annotation::is_released(client.clone(), "default", &own).await;
    assert!(released.unwrap());
    for name in ["mnist-worker-0", "other-launcher"] {
        let other = OwnPod {
            name: name.to_owned(),
            ..own.clone()
        };
        let refused = annotation::is_released(client.clone(), "default", &other).await;
        let refused = refused.unwrap_err().to_string();
        assert!(
            refused.contains("cannot watch resource"),
            "{name}: {refused}"
        );
    }
}

/// The Pods of the namespace, for a user who may create Pods and nothing else.
async fn pods_of_a_tenant(installation: &Installation) -> Api<Pod> {
    let role = json!({
        "metadata": {"name": "tenant"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}],
    });
    let role: Role = serde_json::from_value(role).unwrap();
    let roles: Api<Role> = Api::default_namespaced(installation.client.clone());
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding = json!({
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}],
    });
    let binding: RoleBinding = serde_json::from_value(binding).unwrap();
    let bindings: Api<RoleBinding> = Api::default_namespaced(installation.client.clone());
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    let kubeconfig = Kubeconfig::read_from(installation.plane.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let tenant = AuthInfo {
        impersonate: Some("tenant".to_owned()),
        ..config.unwrap().auth_info
    };
    Api::default_namespaced(client_as(installation, tenant).await)
}

#[tokio::test]
async fn only_the_operator_creates_pods_with_the_shared_account() {
    let installation = installed().await;
    let account = json!({"metadata": {"name": SHARED_LAUNCHERS}});
    let account: ServiceAccount = serde_json::from_value(account).unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(installation.client.clone());
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let pods = pods_of_a_tenant(&installation).await;
    let pod = |account: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "mnist-launcher"},
            "spec": {"serviceAccountName": account, "containers": [{"name": "main", "image": "a"}]},
        }))
        .unwrap()
    };
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the tenant is refused", async || {
        let made = pods.create(&dry_run, &pod(SHARED_LAUNCHERS)).await;
        let reply = made
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        Seen::when(reply, |reply| {
            reply.contains("only the operator creates Pods")
        })
    })
    .await;
    // Without an account of its own, a Pod has another one. It exists when the controller manager
    // has created it.
    let other = json!({"metadata": {"name": "mine"}});
    let other: ServiceAccount = serde_json::from_value(other).unwrap();
    accounts
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    pods.create(&dry_run, &pod("mine")).await.unwrap();
}
