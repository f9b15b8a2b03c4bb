//! A script waits for the end of a job, whatever it is, with the command of
//! `examples/docs/status.md`.

use super::single;
use crate::chart::admin::Admin;
use crate::job_fixture::JobFixture;

// kubectl blocks its thread while the controller of the fixture runs on the others.
#[tokio::test(flavor = "multi_thread")]
async fn one_command_of_kubectl_waits_for_success_and_for_failure() {
    let mut fixture = JobFixture::new("waited").await;
    let admin = Admin::of("waited", fixture.kubeconfig.clone());
    let namespace = format!("--namespace={}", fixture.namespace);
    fixture.start();
    for (name, exit_code, state) in [("good", 0, "Completed"), ("bad", 1, "Failed")] {
        let job = format!("ipujob/{name}");
        let ends = |timeout: &str| {
            let timeout = format!("--timeout={timeout}");
            let until = "--for=jsonpath={.status.completionTime}";
            admin.kubectl(&["wait", &job, until, &timeout, &namespace])
        };
        fixture.submit(&single(name)).await;
        fixture.job_partition_ready(name).await;
        let worker = format!("{name}-worker-0");
        fixture.pod_runs(&worker).await;
        // Without a time, kubectl looks once.
        ends("0").unwrap_err();
        fixture.pod_ends(&worker, exit_code).await;
        ends("1m").unwrap();
        let output = "--output=jsonpath={.status.launcherStatus}";
        let found = admin.kubectl(&["get", &job, output, &namespace]).unwrap();
        assert_eq!(found, state);
    }
    fixture.kill().await;
}
