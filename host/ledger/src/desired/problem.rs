//! Pure: why an IPUPartition can never be served, whatever the controllers have.

use ipu_api::ipupartition::{IPUPartitionSpec, IPUPartitionStatus};

/// The reason why no controller can ever serve a spec.
pub(super) fn of_spec(spec: &IPUPartitionSpec) -> Option<String> {
    if !spec.ipus.is_power_of_two() {
        return Some(format!(
            "spec.ipus is {}; it must be a power of two, such as {}",
            spec.ipus,
            spec.ipus.checked_next_power_of_two().unwrap_or(1)
        ));
    }
    if spec.gcds == 0 || spec.gcds > spec.ipus {
        return Some(format!(
            "spec.gcds is {}; it must be from 1 to spec.ipus, which is {}",
            spec.gcds, spec.ipus
        ));
    }
    let replicas = spec.options.replicas?;
    let is_divided = replicas.is_multiple_of(spec.gcds) && spec.ipus.is_multiple_of(replicas);
    (!is_divided).then(|| {
        format!(
            "spec.options.replicas is {replicas}; it must be a multiple of spec.gcds, which is {}, and divide \
             spec.ipus, which is {}",
            spec.gcds, spec.ipus
        )
    })
}

/// The reason why no attempt can follow: the generation is the largest number. Only a user can have
/// written it.
pub(super) fn exhausted(status: &IPUPartitionStatus) -> Option<String> {
    (status.generation == i64::MAX).then(|| {
        format!(
            "status.generation is {}, the largest there is, and every attempt needs a larger one; \
             set it to a number below, but not to one that was used",
            status.generation
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(ipus: u32, gcds: u32) -> IPUPartitionSpec {
        let owner =
            json!({"apiVersion": "v1", "kind": "K", "namespace": "n", "name": "o", "uid": "u"});
        serde_json::from_value(json!({"owner": owner, "slot": 0, "ipus": ipus, "gcds": gcds}))
            .unwrap()
    }

    #[test]
    fn replicas_that_no_controller_accepts_are_a_problem() {
        for (ipus, gcds, replicas, is_valid) in [
            (4, 3, None, true),
            (4, 2, Some(2), true),
            (4, 2, Some(4), true),
            (4, 1, Some(2), true),
            (1, 1, Some(2), false),
            (4, 2, Some(1), false),
            (4, 2, Some(0), false),
            (4, 2, Some(8), false),
            (4, 1, Some(3), false),
        ] {
            let mut spec = spec(ipus, gcds);
            spec.options.replicas = replicas;
            let problem = of_spec(&spec);
            assert_eq!(problem.is_none(), is_valid, "{replicas:?}: {problem:?}");
        }
        let mut spec = spec(1, 1);
        spec.options.replicas = Some(2);
        assert_eq!(
            of_spec(&spec).unwrap(),
            "spec.options.replicas is 2; it must be a multiple of spec.gcds, which is 1, and divide spec.ipus, which \
             is 1"
        );
    }
}
