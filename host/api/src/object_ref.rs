//! Pure: an object of a namespace, as caches and decisions name it.

use std::fmt::{self, Display, Formatter};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::ipupartition::PartitionOwner;
use crate::uid::Uid;

/// An object by its names and its UID: another object of the same name is another object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Box<str>,
}

impl Display for ObjectRef {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl ObjectRef {
    /// Reads the names of an object.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        Some(Self {
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            uid: metadata.uid.as_deref()?.into(),
        })
    }

    /// The owner of an IPUPartition.
    pub fn of_owner(owner: &PartitionOwner) -> Self {
        Self {
            namespace: owner.namespace.as_str().into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
        }
    }

    /// The object of this kind as the object of an event.
    pub fn object_reference(&self, api_version: &str, kind: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(api_version.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: Some(self.namespace.to_string()),
            name: Some(self.name.to_string()),
            uid: Some(self.uid.to_string()),
            ..ObjectReference::default()
        }
    }

    /// The key of the object in memory.
    pub fn key(&self) -> Uid {
        Uid::of(&self.uid)
    }
}
