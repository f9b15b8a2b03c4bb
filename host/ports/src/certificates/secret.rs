//! Pure: the Secret that holds a certificate.

use std::collections::BTreeMap;

use ipu_api::labels::MANAGED_BY;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

use super::validity::Stored;
use super::{CertificateBundle, Source};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA_PEM: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Reads the Secret. A process does not own a Secret without the operator's label, nor one that
/// another process, an admin or cert-manager provides, even if it has the label.
pub fn read(secret: Option<&Secret>, source: Source) -> Stored {
    let Some(secret) = secret else {
        return match source {
            Source::Made => Stored::Missing,
            Source::Given | Source::Issued => Stored::NotProvided,
        };
    };
    let labels = secret.metadata.labels.as_ref();
    let manager = labels.and_then(|labels| labels.get(MANAGED_BY_LABEL));
    let is_ours = source == Source::Made && manager.map(String::as_str) == Some(MANAGED_BY);
    let text = |key: &'static str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes
            .and_then(|bytes| String::from_utf8(bytes.0.clone()).ok())
            .filter(|text| !text.is_empty())
            .ok_or(Stored::Incomplete {
                missing: key,
                is_ours,
            })
    };
    let bundle = || -> Result<CertificateBundle, Stored> {
        Ok(CertificateBundle {
            certificate: text(CERTIFICATE)?,
            key: text(KEY)?,
            ca_pem: text(CA_PEM)?,
            ca_key: text(CA_KEY).ok(),
        })
    };
    bundle().map_or_else(
        |incomplete| incomplete,
        |bundle| Stored::Complete { bundle, is_ours },
    )
}

/// Builds the Secret. `seen` is the Secret that it replaces, so that a concurrent write is a
/// conflict.
pub fn build(
    name: &str,
    namespace: &str,
    bundle: &CertificateBundle,
    seen: Option<&Secret>,
) -> Secret {
    let labels = BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())]);
    let entries = [
        (CERTIFICATE, Some(&bundle.certificate)),
        (KEY, Some(&bundle.key)),
        (CA_PEM, Some(&bundle.ca_pem)),
        (CA_KEY, bundle.ca_key.as_ref()),
    ];
    let data = entries
        .into_iter()
        .filter_map(|(key, text)| Some((key.to_owned(), ByteString(text?.clone().into_bytes()))))
        .collect();
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            uid: seen.and_then(|seen| seen.metadata.uid.clone()),
            resource_version: seen.and_then(|seen| seen.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::{build, read};
    use crate::certificates::validity::Stored;
    use crate::certificates::{CertificateBundle, Source};

    fn bundle() -> CertificateBundle {
        CertificateBundle {
            certificate: "certificate".to_owned(),
            key: "key".to_owned(),
            ca_pem: "CAs".to_owned(),
            ca_key: Some("CA key".to_owned()),
        }
    }

    #[test]
    fn a_secret_survives_a_round_trip() {
        let secret = build("ipu-operator-admission", "ipu-system", &bundle(), None);
        assert_eq!(
            read(Some(&secret), Source::Made),
            Stored::Complete {
                bundle: bundle(),
                is_ours: true
            }
        );
        assert_eq!(read(None, Source::Made), Stored::Missing);
    }

    #[test]
    fn a_process_never_owns_a_provided_secret() {
        let secret = build("ipu-operator-admission", "ipu-system", &bundle(), None);
        let expected = Stored::Complete {
            bundle: bundle(),
            is_ours: false,
        };
        for source in [Source::Given, Source::Issued] {
            assert_eq!(read(None, source), Stored::NotProvided);
            assert_eq!(read(Some(&secret), source), expected);
        }
    }

    #[test]
    fn the_operator_does_not_own_a_secret_without_its_label() {
        let mut secret = build("given", "ipu-system", &bundle(), None);
        secret.metadata.labels = None;
        secret.data.as_mut().unwrap().remove("ca.key");
        let expected = CertificateBundle {
            ca_key: None,
            ..bundle()
        };
        assert_eq!(
            read(Some(&secret), Source::Made),
            Stored::Complete {
                bundle: expected,
                is_ours: false
            }
        );
    }

    #[test]
    fn a_missing_or_invalid_key_is_named() {
        for key in ["tls.crt", "tls.key", "ca.crt"] {
            for value in [None, Some(&b""[..]), Some(b"\xff\xfe")] {
                let mut secret = build("x", "y", &bundle(), None);
                let data = secret.data.as_mut().unwrap();
                data.remove(key);
                data.extend(value.map(|value| (key.to_owned(), ByteString(value.to_vec()))));
                let expected = Stored::Incomplete {
                    missing: key,
                    is_ours: true,
                };
                assert_eq!(read(Some(&secret), Source::Made), expected);
            }
        }
    }
}
