//! Pure: computes the change of a VIPUController's spec when an admin cordons, uncordons or drains
//! it.

use std::str::FromStr;

use ipu_api::dns1123::is_subdomain;
use ipu_api::vipu_controller::VIPUControllerSpec;
use serde_json::{Value, json};

use crate::controllers::object_name;

/// Longest reason and name of a user, in characters: the bounds of the CRD.
const REASON_MAX: usize = 1_024;
const USER_MAX: usize = 253;

/// Request of an admin for a V-IPU controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// No new partitions.
    Cordon,
    /// New partitions again.
    Uncordon,
    /// No new partitions, and the jobs move away.
    Drain,
}

/// Author and reason of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin<'a> {
    /// The user, if the API server reports the name.
    pub user: Option<&'a str>,
    /// The reason, if there is one.
    pub reason: Option<&'a str>,
}

/// A change of the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The merge patch. `None`: the spec needs no change.
    pub patch: Option<Value>,
    /// The state, in the words of `kubectl cordon` for a node.
    pub state: &'static str,
}

/// The change for a request. An existing reason stays, unless a new one is given.
pub fn change(request: Request, spec: &VIPUControllerSpec, origin: Origin<'_>) -> Change {
    let has_reason = origin.reason.is_none() || origin.reason == spec.reason.as_deref();
    let (is_done, already, state) = match request {
        Request::Cordon => (spec.cordoned && has_reason, "already cordoned", "cordoned"),
        Request::Uncordon => (
            !spec.cordoned && !spec.draining,
            "already uncordoned",
            "uncordoned",
        ),
        Request::Drain => (
            spec.cordoned && spec.draining && has_reason,
            "already draining",
            "draining",
        ),
    };
    if is_done {
        let (patch, state) = (None, already);
        return Change { patch, state };
    }
    Change {
        patch: Some(patch(request, origin)),
        state,
    }
}

/// The merge patch, in which null removes a field.
fn patch(request: Request, origin: Origin<'_>) -> Value {
    let user = origin.user.map(|user| user.chars().take(USER_MAX));
    let user = user.map(Iterator::collect::<String>);
    let mut spec = match request {
        Request::Cordon => json!({"cordoned": true, "requestedBy": user}),
        Request::Drain => json!({"cordoned": true, "draining": true, "requestedBy": user}),
        Request::Uncordon => {
            json!({"cordoned": false, "draining": false, "requestedBy": null, "reason": null})
        }
    };
    if let Some(reason) = origin.reason {
        spec["reason"] = json!(reason);
    }
    json!({"spec": spec})
}

/// The name of a VIPUController, as a user enters it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerName(
    /// The name of the object.
    pub String,
);

/// A word that is no name of a VIPUController.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is neither the name of a VIPUController nor host:port of a V-IPU controller; kubectl get vipucontrollers \
     lists both"
)]
pub struct ControllerNameError(String);

impl FromStr for ControllerName {
    type Err = ControllerNameError;

    fn from_str(typed: &str) -> Result<Self, ControllerNameError> {
        let kind = typed.split_once('/').map(|(kind, _)| kind);
        let is_kind = kind.is_none_or(|kind| {
            let kind = kind.strip_suffix(".graphcore.ai").unwrap_or(kind);
            ["vipu", "vipucontroller", "vipucontrollers"].contains(&kind)
        });
        let name = object_name(typed);
        if !is_kind || !is_subdomain(&name) {
            return Err(ControllerNameError(typed.to_owned()));
        }
        Ok(Self(name))
    }
}

/// The reason is too long or empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a reason has 1 to {REASON_MAX} characters, and this one has {0}: say it in other words, or omit --reason"
)]
pub struct ReasonError(usize);

/// Reads a reason of the command line.
pub fn reason(text: &str) -> Result<String, ReasonError> {
    let length = text.chars().count();
    if (1..=REASON_MAX).contains(&length) {
        return Ok(text.to_owned());
    }
    Err(ReasonError(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(cordoned: bool, draining: bool, reason: Option<&str>) -> VIPUControllerSpec {
        VIPUControllerSpec {
            cordoned,
            draining,
            requested_by: None,
            reason: reason.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn the_reason_of_a_cordon_changes_alone() {
        let cordoned = spec(true, false, Some("a"));
        for (reason, expected) in [
            (None, "already cordoned"),
            (Some("a"), "already cordoned"),
            (Some("b"), "cordoned"),
        ] {
            let user = Some("alice");
            let found = change(Request::Cordon, &cordoned, Origin { user, reason });
            assert_eq!(found.state, expected, "{reason:?}");
            let written = found.patch.map(|patch| patch["spec"]["reason"].clone());
            assert_eq!(
                written,
                (expected == "cordoned").then(|| json!("b")),
                "{reason:?}"
            );
        }
    }

    #[test]
    fn a_request_changes_what_is_not_so_yet() {
        let (open, cordoned) = (spec(false, false, None), spec(true, false, Some("a")));
        let drained = spec(true, true, Some("a"));
        let patch = |spec: Value| Some(json!({"spec": spec}));
        let cordon = json!({"cordoned": true, "requestedBy": "alice"});
        let drain = json!({"cordoned": true, "draining": true, "requestedBy": "alice"});
        let with = |mut spec: Value| {
            spec["reason"] = json!("b");
            patch(spec)
        };
        let nothing =
            json!({"cordoned": false, "draining": false, "requestedBy": null, "reason": null});
        for (request, spec, reason, expected, state) in [
            (Request::Cordon, &open, None, patch(cordon), "cordoned"),
            (Request::Cordon, &drained, None, None, "already cordoned"),
            (
                Request::Drain,
                &cordoned,
                None,
                patch(drain.clone()),
                "draining",
            ),
            (Request::Drain, &open, Some("b"), with(drain), "draining"),
            (Request::Drain, &drained, None, None, "already draining"),
            (
                Request::Uncordon,
                &drained,
                None,
                patch(nothing),
                "uncordoned",
            ),
            (Request::Uncordon, &open, None, None, "already uncordoned"),
        ] {
            let user = Some("alice");
            let found = change(request, spec, Origin { user, reason });
            let expected = Change {
                patch: expected,
                state,
            };
            assert_eq!(found, expected, "{request:?} of {spec:?} for {reason:?}");
        }
    }

    #[test]
    fn a_user_without_a_name_removes_that_of_another_and_a_long_one_is_cut() {
        let patched = |user: Option<&str>| {
            let origin = Origin { user, reason: None };
            let change = change(Request::Cordon, &spec(false, false, None), origin);
            change.patch.unwrap()["spec"]["requestedBy"].clone()
        };
        assert_eq!(patched(None), Value::Null);
        let long = "é".repeat(300);
        assert_eq!(patched(Some(&long)), json!("é".repeat(253)));
    }

    #[test]
    fn names_and_reasons_are_checked_before_anything_is_sent() {
        for (typed, expected) in [
            ("pod1:8090", Some("pod1-8090")),
            ("pod1-8090", Some("pod1-8090")),
            ("vipucontroller.graphcore.ai/pod1-8090", Some("pod1-8090")),
            ("vipu/pod1-8090", Some("pod1-8090")),
            ("node/pod1", None),
            ("Pod1", None),
            ("", None),
        ] {
            let found = typed.parse::<ControllerName>().ok();
            let found = found.map(|name| name.0);
            assert_eq!(found.as_deref(), expected, "{typed}");
        }
        assert_eq!(reason("new firmware"), Ok("new firmware".to_owned()));
        assert_eq!(reason(""), Err(ReasonError(0)));
        assert_eq!(reason(&"a".repeat(1_025)), Err(ReasonError(1_025)));
    }
}
