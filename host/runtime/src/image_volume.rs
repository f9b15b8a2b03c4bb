//! Pure: notices that an API server drops the volume with the agent's image.

use ipu_api::labels::AGENT_VOLUME;
use serde::Serialize;
use serde_json::{Value, json};

/// Reason for which a Pod whose volume is dropped cannot run.
pub const DROPPED: &str = "the API server drops spec.volumes[ipu-operator-agent].image, because it has no image volumes \
                           (on by default since Kubernetes 1.35). An admin has to set agent.delivery of the chart to \
                           init instead of image, or upgrade the API server";

/// Whether the API server has accepted a Pod without the image that its agent comes from: an API
/// server drops a field that it does not know, or the whole volume. The containers of such a Pod
/// cannot start.
pub fn is_dropped(pod: &impl Serialize, answer: &impl Serialize) -> bool {
    has_agent(&json!(pod)) && !has_agent(&json!(answer))
}

fn has_agent(pod: &Value) -> bool {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    let mut volumes = volumes.into_iter().flatten();
    volumes.any(|volume| volume["name"] == AGENT_VOLUME && volume["image"].is_object())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_without_the_image_of_its_agent_is_noticed() {
        let pod = |volume: Value| json!({"spec": {"volumes": [{"name": "data"}, volume]}});
        let image = json!({"reference": "ipu-operator:1"});
        let mounted = pod(json!({"name": AGENT_VOLUME, "image": image}));
        let installed = pod(json!({"name": AGENT_VOLUME, "emptyDir": {}}));
        let of_user = pod(json!({"name": "other", "image": image}));
        let without = json!({"spec": {}});
        for (pod, answer, expected) in [
            (&mounted, &mounted, false),
            (&mounted, &installed, true),
            (&mounted, &of_user, true),
            (&mounted, &without, true),
            (&installed, &installed, false),
            (&of_user, &without, false),
            (&without, &without, false),
        ] {
            assert_eq!(is_dropped(pod, answer), expected, "{pod} {answer}");
        }
    }

    #[test]
    fn the_reason_names_the_volume() {
        assert!(DROPPED.contains(&format!("spec.volumes[{AGENT_VOLUME}].image")));
    }
}
