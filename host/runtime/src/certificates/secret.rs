//! Pure: the Secret that holds a certificate.

use std::collections::BTreeMap;

use ipu_api::names::MANAGED_BY;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;

use super::decide::Stored;
use super::{Keys, Source};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Reads the Secret. One without our label was made by somebody else (an admin, cert-manager) and is
/// used as it is, and so is every one that is to be given: cert-manager may have taken over ours.
pub fn read(secret: Option<&Secret>, source: Source) -> Stored {
    let Some(secret) = secret else {
        return match source {
            Source::Made => Stored::Nothing,
            Source::Given => Stored::Awaited,
        };
    };
    let labels = secret.metadata.labels.as_ref();
    let manager = labels.and_then(|labels| labels.get(MANAGED_BY_LABEL));
    let ours = source == Source::Made && manager.map(String::as_str) == Some(MANAGED_BY);
    let text = |key: &'static str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes
            .and_then(|bytes| String::from_utf8(bytes.0.clone()).ok())
            .filter(|text| !text.is_empty())
            .ok_or(Stored::Incomplete { missing: key, ours })
    };
    let keys = || -> Result<Keys, Stored> {
        Ok(Keys {
            certificate: text(CERTIFICATE)?,
            key: text(KEY)?,
            authorities: text(AUTHORITIES)?,
            authority_key: text(AUTHORITY_KEY).ok(),
        })
    };
    keys().map_or_else(|incomplete| incomplete, |keys| Stored::Keys { keys, ours })
}

/// The Secret with these keys. `seen` is the one that it takes the place of: the write fails where
/// somebody else was quicker.
pub fn build(name: &str, namespace: &str, keys: &Keys, seen: Option<&Secret>) -> Secret {
    let labels = BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())]);
    let entries = [
        (CERTIFICATE, Some(&keys.certificate)),
        (KEY, Some(&keys.key)),
        (AUTHORITIES, Some(&keys.authorities)),
        (AUTHORITY_KEY, keys.authority_key.as_ref()),
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
    use crate::certificates::decide::Stored;
    use crate::certificates::{Keys, Source};

    fn keys() -> Keys {
        Keys {
            certificate: "certificate".to_owned(),
            key: "key".to_owned(),
            authorities: "authorities".to_owned(),
            authority_key: Some("authority key".to_owned()),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let secret = build("ipu-operator-admission", "ipu-system", &keys(), None);
        assert_eq!(
            read(Some(&secret), Source::Made),
            Stored::Keys {
                keys: keys(),
                ours: true
            }
        );
        assert_eq!(read(None, Source::Made), Stored::Nothing);
    }

    #[test]
    fn what_is_to_be_given_is_awaited_and_never_ours() {
        assert_eq!(read(None, Source::Given), Stored::Awaited);
        let secret = build("ipu-operator-admission", "ipu-system", &keys(), None);
        let expected = Stored::Keys {
            keys: keys(),
            ours: false,
        };
        assert_eq!(read(Some(&secret), Source::Given), expected);
    }

    #[test]
    fn without_our_label_it_is_somebody_elses_and_needs_no_authority_key() {
        let mut secret = build("given", "ipu-system", &keys(), None);
        secret.metadata.labels = None;
        secret.data.as_mut().unwrap().remove("ca.key");
        let expected = Keys {
            authority_key: None,
            ..keys()
        };
        assert_eq!(
            read(Some(&secret), Source::Made),
            Stored::Keys {
                keys: expected,
                ours: false
            }
        );
    }

    #[test]
    fn what_is_missing_or_no_text_is_named() {
        for key in ["tls.crt", "tls.key", "ca.crt"] {
            for value in [None, Some(&b""[..]), Some(b"\xff\xfe")] {
                let mut secret = build("x", "y", &keys(), None);
                let data = secret.data.as_mut().unwrap();
                data.remove(key);
                data.extend(value.map(|value| (key.to_owned(), ByteString(value.to_vec()))));
                let expected = Stored::Incomplete {
                    missing: key,
                    ours: true,
                };
                assert_eq!(read(Some(&secret), Source::Made), expected);
            }
        }
    }
}
