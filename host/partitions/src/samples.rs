//! Sample objects for the tests of several modules.

use ipu_api::ipupartition::ControllerRef;

/// A V-IPU controller of the admin's list.
pub(crate) fn controller() -> ControllerRef {
    ControllerRef {
        name: "pod1:8090".to_owned(),
        host: "pod1".to_owned(),
        port: 8090,
        label_key: "ipunode".to_owned(),
        label_value: "pod1".to_owned(),
    }
}
