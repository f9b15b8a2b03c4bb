//! Pure: files of a `downwardAPI` volume, into which the kubelet writes fields of the Pod.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, ObjectFieldSelector};

/// A file with the value of an annotation, which the kubelet writes.
pub fn of_annotation(path: &str, annotation: &str) -> DownwardAPIVolumeFile {
    of_field(path, &format!("metadata.annotations['{annotation}']"))
}

/// A file with the value of a field of the Pod.
pub fn of_field(path: &str, field: &str) -> DownwardAPIVolumeFile {
    DownwardAPIVolumeFile {
        path: path.to_owned(),
        field_ref: Some(ObjectFieldSelector {
            api_version: None,
            field_path: field.to_owned(),
        }),
        ..DownwardAPIVolumeFile::default()
    }
}
