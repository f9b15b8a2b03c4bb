//! Pure: reads the account of a V-IPU controller from its IPUAccounting.

use ipu_api::ipuaccounting::{IPUAccounting, IPUAccountingSpec};
use ipu_api::naming;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kube::core::dynamic::ParseDynamicObjectError;

/// Why an account is not continued from an object.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It is unreadable.
    #[error("it cannot be read")]
    Unreadable(#[source] ParseDynamicObjectError),
    /// It has another name than the operator gives it, so another object may have the account of
    /// the same controller.
    #[error("spec.address is {address}, whose IPUAccounting is named {expected}")]
    OtherName {
        /// The address in it.
        address: String,
        /// The name that belongs to the address.
        expected: String,
    },
}

/// The account that an IPUAccounting stores. Only the operator writes these objects, but an admin
/// may have created or changed one by hand.
pub fn stored(object: DynamicObject) -> Result<IPUAccountingSpec, StoredError> {
    let name = object.name_any();
    let object: IPUAccounting = object.try_parse().map_err(StoredError::Unreadable)?;
    let expected = naming::vipu_controller(&object.spec.address);
    if name != expected {
        let address = object.spec.address;
        return Err(StoredError::OtherName { address, expected });
    }
    Ok(object.spec)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, ipus: u64) -> DynamicObject {
        let start = "2026-01-01T00:00:00Z";
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUAccounting",
            "metadata": {"name": name},
            "spec": {
                "address": "pod1:8090", "ipus": ipus, "since": start, "until": start,
                "total": {"start": start, "unallocated": {}},
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_account_is_read_from_the_object_of_its_controller_only() {
        let read = stored(object("pod1-8090", 16)).unwrap();
        assert_eq!((read.address.as_str(), read.ipus), ("pod1:8090", 16));
        let other = stored(object("copy", 16)).unwrap_err();
        assert_eq!(
            other.to_string(),
            "spec.address is pod1:8090, whose IPUAccounting is named pod1-8090"
        );
        let larger_than_any = 1 << 40;
        let unreadable = stored(object("pod1-8090", larger_than_any)).unwrap_err();
        assert!(matches!(unreadable, StoredError::Unreadable(_)));
    }
}
