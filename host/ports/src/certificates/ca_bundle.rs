//! Pure: the patch that sets the caBundles of a webhook configuration.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// The caBundle of one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookBundle<'a> {
    /// Name of the webhook.
    pub name: &'a str,
    /// Its caBundle, as PEM.
    pub bundle: Option<&'a [u8]>,
}

impl WebhookBundle<'_> {
    /// Whether the caBundle contains `ca_pem`.
    pub fn contains(&self, ca_pem: &str) -> bool {
        let bundle = self.bundle.unwrap_or_default();
        std::str::from_utf8(bundle).is_ok_and(|bundle| bundle.contains(ca_pem.trim()))
    }

    /// The caBundle with `ca_pem`: the previous CA remains until no server uses its certificate.
    fn with(&self, ca_pem: &str) -> Vec<u8> {
        let previous = self.bundle.unwrap_or_default();
        if self.contains(ca_pem) {
            return previous.to_vec();
        }
        let separator: &[u8] = if ca_pem.ends_with('\n') { b"" } else { b"\n" };
        [ca_pem.as_bytes(), separator, previous].concat()
    }
}

/// The CAs of a caBundle after a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The new CA only.
    Only,
    /// The new CA and the previous ones, while servers change to a certificate of the new one.
    WithPrevious,
}

/// Returns the JSON patch that sets the caBundle of every webhook to `ca_pem`. `None` if nothing
/// changes.
///
/// The patch tests the name of each webhook first: it fails if someone has changed the list
/// meanwhile, and never sets the caBundle of another webhook.
pub fn patch(webhooks: &[WebhookBundle<'_>], ca_pem: &str, trust: Trust) -> Option<Value> {
    let wanted = |webhook: &WebhookBundle<'_>| match trust {
        Trust::Only => ca_pem.as_bytes().to_vec(),
        Trust::WithPrevious => webhook.with(ca_pem),
    };
    let operations: Vec<Value> = webhooks
        .iter()
        .enumerate()
        .map(|(at, webhook)| (at, webhook, wanted(webhook)))
        .filter(|(_, webhook, bundle)| webhook.bundle != Some(bundle.as_slice()))
        .flat_map(|(at, webhook, bundle)| {
            [
                json!({ "op": "test", "path": format!("/webhooks/{at}/name"), "value": webhook.name }),
                json!({
                    "op": "add",
                    "path": format!("/webhooks/{at}/clientConfig/caBundle"),
                    "value": ByteString(bundle),
                }),
            ]
        })
        .collect();
    (!operations.is_empty()).then_some(Value::Array(operations))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::{Trust, WebhookBundle, patch};

    fn webhook<'a>(name: &'a str, bundle: Option<&'a [u8]>) -> WebhookBundle<'a> {
        WebhookBundle { name, bundle }
    }

    #[test]
    fn only_what_differs_is_patched() {
        let ours: Option<&[u8]> = Some(b"CA");
        let registered = [webhook("a", ours), webhook("b", ours)];
        for trust in [Trust::Only, Trust::WithPrevious] {
            assert_eq!(patch(&[], "CA", trust), None);
            assert_eq!(patch(&registered, "CA", trust), None);
        }
        for other in [None, Some(&b""[..]), Some(&b"old"[..])] {
            assert_eq!(
                patch(
                    &[webhook("a", ours), webhook("b", other)],
                    "CA",
                    Trust::Only
                ),
                Some(json!([
                    { "op": "test", "path": "/webhooks/1/name", "value": "b" },
                    { "op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "Q0E=" },
                ]))
            );
        }
    }

    #[test]
    fn the_previous_ca_stays_during_a_change() {
        let added = |previous, ca: &str| {
            let patch = patch(&[webhook("a", previous)], ca, Trust::WithPrevious)?;
            let ByteString(bundle) = serde_json::from_value(patch[1]["value"].clone()).unwrap();
            Some(String::from_utf8(bundle).unwrap())
        };
        assert_eq!(added(None, "new\n").as_deref(), Some("new\n"));
        let both = added(Some(b"old\n"), "new\n").unwrap();
        assert_eq!(both, "new\nold\n");
        assert_eq!(added(Some(b"old"), "new").as_deref(), Some("new\nold"));
        // The same again changes nothing, and the end of the change removes the previous CA.
        assert_eq!(added(Some(both.as_bytes()), "new\n"), None);
        let registered = webhook("a", Some(both.as_bytes()));
        assert!(registered.contains("new\n") && registered.contains("old"));
        assert!(!registered.contains("other") && !webhook("a", None).contains("new"));
        assert_ne!(patch(&[registered], "new\n", Trust::Only), None);
    }
}
