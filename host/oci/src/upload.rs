//! Uploads of blobs and manifests.

use bytes::Bytes;
use http::Method;
use http::header::LOCATION;
use ipu_api::guest::digest::digest_of;

use super::address::{leads_to, may_be_asked, with_query};
use super::registry::{Registry, RegistryError};

impl Registry {
    /// Uploads a blob, unless the registry has it.
    pub async fn put_blob(&self, bytes: Bytes) -> Result<(), RegistryError> {
        let digest = digest_of(&bytes).to_string();
        let what = format!("the upload of the blob {digest}");
        let known = self.at(&format!("blobs/{digest}"));
        let known = self.put(Method::HEAD, known, OCTETS, Bytes::new(), &what);
        match known.await {
            Ok(_) => return Ok(()),
            // Some registries refuse this request.
            Err(error) if error.is_absence() || error.is_refusal() => {}
            Err(error) => return Err(error),
        }
        let uploads = self.at("blobs/uploads/");
        let begun = self.put(Method::POST, uploads, OCTETS, Bytes::new(), &what);
        let begun = begun.await?;
        let location = begun.header(LOCATION.as_str());
        let uri = location
            .and_then(|location| leads_to(&begun.uri, location))
            .filter(|uri| may_be_asked(uri, self.is_plain()))
            .and_then(|uri| with_query(&uri, &[("digest", &digest)]));
        let uri = uri.ok_or_else(|| RegistryError::Location {
            host: self.host().to_owned(),
            what,
        })?;
        let what = format!("the upload of the blob {digest}");
        self.put(Method::PUT, uri, OCTETS, bytes, &what)
            .await
            .map(drop)
    }

    /// Uploads a manifest under its tag or its digest.
    pub async fn put_manifest(
        &self,
        version: &str,
        kind: &'static str,
        bytes: Bytes,
    ) -> Result<(), RegistryError> {
        let uri = self.at(&format!("manifests/{version}"));
        let what = format!("the upload of the manifest {version}");
        self.put(Method::PUT, uri, kind, bytes, &what)
            .await
            .map(drop)
    }
}

/// Media type of arbitrary bytes.
const OCTETS: &str = "application/octet-stream";
