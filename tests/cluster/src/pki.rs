//! Certificates of a cluster: one CA for all parts, and one for the API server's front proxy.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::files::{FileError, make_dir, write};

/// Failure to make a certificate.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The certificate could not be made.
    #[error("failed to make the certificate of {name}")]
    Certificate {
        /// The name in the certificate.
        name: String,
        /// The problem.
        #[source]
        source: rcgen::Error,
    },
}

/// A folder of certificates and keys, and the CAs that sign them. The keys of the CAs are in memory
/// only.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
    cluster: Ca,
    front_proxy: Ca,
}

/// A self-signed CA.
#[derive(Debug)]
struct Ca {
    issuer: Issuer<'static, KeyPair>,
}

/// Paths of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Certificate, PEM.
    pub certificate: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

impl Pki {
    /// Makes both CAs and the key that signs service-account tokens.
    pub fn make(dir: &Path) -> Result<Self, PkiError> {
        make_dir(dir)?;
        let pki = Self {
            dir: dir.to_owned(),
            cluster: Ca::make(dir, "ca")?,
            front_proxy: Ca::make(dir, "front-proxy-ca")?,
        };
        let key = key("service-account")?;
        write(&service_account_key(dir), key.serialize_pem())?;
        write(&service_account_public_key(dir), key.public_key_pem())?;
        pki.sign(
            &pki.front_proxy,
            "front-proxy",
            client("front-proxy-client", None)?,
        )?;
        Ok(pki)
    }

    /// Makes the certificate of a client: `user` is its common name, `group` its organisation.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, PkiError> {
        let name = user.rsplit(':').next().unwrap_or(user);
        self.sign(&self.cluster, name, client(user, group)?)
    }

    /// Makes the certificate of a server with these names and addresses.
    pub fn server(
        &self,
        name: &str,
        user: &str,
        group: Option<&str>,
        names: &[&str],
    ) -> Result<Identity, PkiError> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).map_err(|source| failed(name, source))?;
        subject(&mut params, user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&self.cluster, name, params)
    }

    fn sign(
        &self,
        ca: &Ca,
        name: &str,
        mut params: CertificateParams,
    ) -> Result<Identity, PkiError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = key(name)?;
        let certificate = params
            .signed_by(&key, &ca.issuer)
            .map_err(|source| failed(name, source))?;
        let identity = identity(&self.dir, name);
        write(&identity.certificate, certificate.pem())?;
        write(&identity.key, key.serialize_pem())?;
        Ok(identity)
    }
}

impl Ca {
    fn make(dir: &Path, name: &str) -> Result<Self, PkiError> {
        let mut params = CertificateParams::default();
        subject(&mut params, &format!("ipu-operator-harness-{name}"), None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = key(name)?;
        let certificate = params
            .self_signed(&key)
            .map_err(|source| failed(name, source))?;
        write(&certificate_of(dir, name), certificate.pem())?;
        Ok(Self {
            issuer: Issuer::new(params, key),
        })
    }
}

/// Path of the cluster's CA.
pub fn cluster_ca(dir: &Path) -> PathBuf {
    certificate_of(dir, "ca")
}

/// Path of the front proxy's CA.
pub fn front_proxy_ca(dir: &Path) -> PathBuf {
    certificate_of(dir, "front-proxy-ca")
}

/// Path of the key that signs service-account tokens.
pub fn service_account_key(dir: &Path) -> PathBuf {
    dir.join("service-account.key")
}

/// Path of the key that checks service-account tokens.
pub fn service_account_public_key(dir: &Path) -> PathBuf {
    dir.join("service-account.pub")
}

/// Paths of the certificate and key of this name.
pub fn identity(dir: &Path, name: &str) -> Identity {
    Identity {
        certificate: certificate_of(dir, name),
        key: dir.join(format!("{name}.key")),
    }
}

fn certificate_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.crt"))
}

fn client(user: &str, group: Option<&str>) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(|source| failed(user, source))?;
    subject(&mut params, user, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn subject(params: &mut CertificateParams, user: &str, group: Option<&str>) {
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(group) = group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, user);
}

fn key(name: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate().map_err(|source| failed(name, source))
}

fn failed(name: &str, source: rcgen::Error) -> PkiError {
    PkiError::Certificate {
        name: name.to_owned(),
        source,
    }
}
