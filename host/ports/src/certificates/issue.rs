//! Issues CAs and serving certificates.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use super::CertificateBundle;
use super::verification::verify;

/// Lifetime of a CA.
const CA_LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// Lifetime of a serving certificate.
const SERVING_LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Certificates are valid from this long before now, for API servers with a slow clock.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(1);

/// Failure to issue a certificate.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The key or the certificate cannot be created.
    #[error("failed to make a certificate for {0:?}")]
    Make(Vec<String>, #[source] rcgen::Error),
    /// The stored CA is invalid.
    #[error("failed to use the stored CA")]
    Ca(#[source] rcgen::Error),
    /// The key of the CA is missing.
    #[error("failed to renew: the key of the CA is not stored")]
    NoAuthorityKey,
}

/// A CA with its key.
pub(super) struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl CertificateAuthority {
    /// Loads the first CA certificate of a PEM, and its key.
    pub(super) fn load(bundle: &str, key: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::from_pem(key)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(bundle, key)?,
            pem: bundle.to_owned(),
        })
    }

    fn new(now: Timestamp) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!("ipu-operator-{}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, now, CA_LIFETIME);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Whether a certificate that it signs now is valid until its own end.
    pub(super) fn outlives_certificate_of(&self, now: Timestamp) -> bool {
        let names = ["probe".to_owned()];
        let end = now.saturating_add(SERVING_LIFETIME);
        let end = end.unwrap_or(Timestamp::MAX);
        self.sign(&names, now)
            .is_ok_and(|bundle| verify(&bundle, &names, end).is_ok())
    }

    fn sign(&self, names: &[String], now: Timestamp) -> Result<CertificateBundle, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name("ipu-operator");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, SERVING_LIFETIME);
        Ok(CertificateBundle {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
            ca_pem: self.pem.clone(),
            ca_key: Some(self.issuer.key().serialize_pem()),
        })
    }
}

/// Issues a new CA and a certificate for `names`.
pub fn issue(names: &[String], now: Timestamp) -> Result<CertificateBundle, IssueError> {
    CertificateAuthority::new(now)
        .and_then(|ca| ca.sign(names, now))
        .map_err(|source| IssueError::Make(names.to_vec(), source))
}

/// Issues a new certificate for `names`, with the CA of `bundle`.
pub fn renew(
    bundle: &CertificateBundle,
    names: &[String],
    now: Timestamp,
) -> Result<CertificateBundle, IssueError> {
    let key = bundle.ca_key.as_deref().ok_or(IssueError::NoAuthorityKey)?;
    let ca = CertificateAuthority::load(&bundle.ca_pem, key).map_err(IssueError::Ca)?;
    ca.sign(names, now)
        .map_err(|source| IssueError::Make(names.to_vec(), source))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, lifetime: SignedDuration) {
    let seconds = |at: Timestamp| Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + seconds(now.saturating_sub(CLOCK_SKEW).unwrap_or(now));
    params.not_after = epoch + seconds(now.saturating_add(lifetime).unwrap_or(Timestamp::MAX));
}
