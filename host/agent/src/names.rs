//! Pure: names of the workers of a job, as Pods and as hosts of Open MPI.

/// Name of the Pod of worker `index` of a job. The index counts over all instances.
pub fn worker(job: &str, index: u32) -> String {
    format!("{}{index}", worker_prefix(job))
}

/// Name of worker `index` in the hostfile. Open MPI 4 cuts names at the first dot, and version 5
/// compares the part before it, so dots are dashes. Within a job, the names still differ by their
/// index.
pub fn host(job: &str, index: u32) -> String {
    worker(&without_dots(job), index)
}

/// Name of the Pod for a name in the hostfile of a job. Other names stay as they are, and so do
/// names of Pods.
pub fn pod(job: &str, host: &str) -> String {
    let prefix = worker_prefix(&without_dots(job));
    match host.strip_prefix(&prefix) {
        Some(index) => format!("{}{index}", worker_prefix(job)),
        None => host.to_owned(),
    }
}

/// The name with dashes instead of dots.
pub fn without_dots(name: &str) -> String {
    name.replace('.', "-")
}

fn worker_prefix(job: &str) -> String {
    format!("{job}-worker-")
}

#[cfg(test)]
mod tests {
    use super::{host, pod, worker};

    #[test]
    fn hosts_have_no_dots_and_lead_to_their_pods() {
        for job in ["mnist", "parallel.v1", "a.b.c-d", "v1.0-worker-1"] {
            for index in [0, 1, 10, u32::MAX] {
                let name = host(job, index);
                assert!(!name.contains('.'), "{name}");
                assert_eq!(pod(job, &name), worker(job, index));
                assert_eq!(pod(job, &worker(job, index)), worker(job, index));
            }
        }
    }

    #[test]
    fn names_without_dots_are_names_of_pods() {
        assert_eq!(host("mnist", 3), worker("mnist", 3));
        let long = "j".repeat(200);
        assert_eq!(host(&long, 3), worker(&long, 3));
    }

    #[test]
    fn names_of_other_pods_are_unchanged() {
        for name in ["parallel-v1-launcher", "other", "parallel-v10-worker-0", ""] {
            assert_eq!(pod("parallel.v1", name), name);
        }
    }
}
