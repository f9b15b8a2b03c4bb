//! Makes authorities and serving certificates.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use super::Keys;

/// How long an authority is good.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// How long a serving certificate is good.
const SERVING_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Certificates are good from a little before they are made, for API servers whose clock is late.
const SKEW: SignedDuration = SignedDuration::from_hours(1);

/// Why no certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The key or the certificate cannot be made.
    #[error("failed to make a certificate for {names:?}")]
    Make {
        /// The names that it is for.
        names: Vec<String>,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// The authority that should sign it cannot be used.
    #[error("failed to use the stored CA")]
    Authority(#[source] rcgen::Error),
    /// The authority's key is not there.
    #[error("failed to renew: the key of the CA is not stored")]
    NoAuthorityKey,
}

/// An authority that can sign.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// The first certificate of a bundle, and its key.
    pub(super) fn load(bundle: &str, key: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::from_pem(key)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(bundle, key)?,
            pem: bundle.to_owned(),
        })
    }

    fn make(now: Timestamp) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!("ipu-operator-{}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_life(&mut params, now, AUTHORITY_LIFE);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Whether what it signs now is still accepted at that time.
    pub(super) fn is_good_at(&self, at: Timestamp) -> bool {
        let names = ["probe".to_owned()];
        self.sign(&names, at)
            .is_ok_and(|keys| super::decide::check(&keys, &names, at).is_ok())
    }

    fn sign(&self, names: &[String], now: Timestamp) -> Result<Keys, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = common_name("ipu-operator");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_life(&mut params, now, SERVING_LIFE);
        Ok(Keys {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
            authorities: self.pem.clone(),
            authority_key: Some(self.issuer.key().serialize_pem()),
        })
    }
}

/// Makes a new authority and a certificate for `names`.
pub fn start(names: &[String], now: Timestamp) -> Result<Keys, IssueError> {
    Authority::make(now)
        .and_then(|authority| authority.sign(names, now))
        .map_err(|source| IssueError::Make {
            names: names.to_vec(),
            source,
        })
}

/// Makes a new certificate for `names`, signed by the authority of `keys`.
pub fn renew(keys: &Keys, names: &[String], now: Timestamp) -> Result<Keys, IssueError> {
    let key = keys
        .authority_key
        .as_deref()
        .ok_or(IssueError::NoAuthorityKey)?;
    let authority = Authority::load(&keys.authorities, key).map_err(IssueError::Authority)?;
    authority
        .sign(names, now)
        .map_err(|source| IssueError::Make {
            names: names.to_vec(),
            source,
        })
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn set_life(params: &mut CertificateParams, now: Timestamp, life: SignedDuration) {
    let seconds = |at: Timestamp| Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + seconds(now.saturating_sub(SKEW).unwrap_or(now));
    params.not_after = epoch + seconds(now.saturating_add(life).unwrap_or(Timestamp::MAX));
}
