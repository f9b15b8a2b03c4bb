//! Jobs whose Pods do not start.

use super::*;

#[test]
fn a_job_whose_pods_could_not_start_is_evicted() {
    let failed = || {
        job(|job| {
            start(job);
            job["status"]["launcherStatus"] = json!("Pending");
            let start = json!({"releasing": true, "message": "no node accepts them"});
            job["status"]["run"] = json!({"starts": {"0": start, "1": {"releasing": false}}});
        })
    };
    let evict = step(failed(), with(admit), held());
    assert_eq!(evict, Some(Step::Evict("no node accepts them".to_owned())));
    let evicted = with(|workload| {
        admit(workload);
        condition(workload, "Evicted", "True", "PodsReadyTimeout");
    });
    let stop = step(failed(), evicted, held());
    assert!(matches!(stop, Some(Step::Stop(_))), "{stop:?}");
}

#[test]
fn pods_that_cannot_start_are_not_ready() {
    let with_problem = |reason: &str| {
        job(|job| {
            start(job);
            job["status"]["launcherStatus"] = json!("Running");
            job["status"]["conditions"] = json!([
                {"type": "Running", "status": "True"},
                {"type": "PodsReady", "status": "False", "reason": reason},
            ]);
        })
    };
    let ready = Some(Step::SetPodsReady {
        is_ready: true,
        reason: "Started",
    });
    assert_eq!(step(running(), with(admit), held()), ready);
    assert_eq!(
        step(with_problem("WorkerFailed"), with(admit), held()),
        ready
    );
    assert_eq!(
        step(with_problem("ContainersWaiting"), with(admit), held()),
        ready
    );
    assert_eq!(step(with_problem("PodsWaiting"), with(admit), held()), None);
}
