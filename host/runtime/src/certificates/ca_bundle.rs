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

/// Returns the JSON patch that sets the caBundle of every webhook to `ca_pem`. `None` if nothing changes.
///
/// The patch tests the name of each webhook first: it fails if someone has changed the list meanwhile, and never sets
/// the caBundle of another webhook.
pub fn patch(webhooks: &[WebhookBundle<'_>], ca_pem: &str) -> Option<Value> {
    let operations: Vec<Value> = webhooks
        .iter()
        .enumerate()
        .filter(|(_, webhook)| webhook.bundle != Some(ca_pem.as_bytes()))
        .flat_map(|(at, webhook)| {
            let bundle = ByteString(ca_pem.as_bytes().to_vec());
            [
                json!({ "op": "test", "path": format!("/webhooks/{at}/name"), "value": webhook.name }),
                json!({
                    "op": "add",
                    "path": format!("/webhooks/{at}/clientConfig/caBundle"),
                    "value": bundle,
                }),
            ]
        })
        .collect();
    (!operations.is_empty()).then_some(Value::Array(operations))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{WebhookBundle, patch};

    #[test]
    fn only_what_differs_is_patched() {
        let webhook = |name, bundle| WebhookBundle { name, bundle };
        let ours: Option<&[u8]> = Some(b"CA");
        assert_eq!(patch(&[], "CA"), None);
        assert_eq!(patch(&[webhook("a", ours), webhook("b", ours)], "CA"), None);
        for other in [None, Some(&b""[..]), Some(&b"old"[..])] {
            assert_eq!(
                patch(&[webhook("a", ours), webhook("b", other)], "CA"),
                Some(json!([
                    { "op": "test", "path": "/webhooks/1/name", "value": "b" },
                    { "op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "Q0E=" },
                ]))
            );
        }
    }
}
