//! Pure: whether the stored certificate can go on serving, and if not, why.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;

use super::Keys;

/// A certificate is renewed when it will not be good for this much longer.
pub const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// There is no Secret.
    Nothing,
    /// There is no Secret, and it is not for the operator to make one.
    Awaited,
    /// It is there but does not hold all that is needed.
    Incomplete {
        /// The key that is missing or not text.
        missing: &'static str,
        /// Whether the operator made the Secret.
        ours: bool,
    },
    /// It holds all that is needed.
    Keys {
        /// What it holds.
        keys: Keys,
        /// Whether the operator made the Secret.
        ours: bool,
    },
}

/// What is to be done about the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// It goes on serving.
    Nothing,
    /// It goes on serving, but whoever gave it must renew it.
    Warn(String),
    /// A new one is signed by the authority that is there: trust does not change.
    Renew(String),
    /// A new authority and a new certificate are made.
    Start(String),
    /// It cannot serve, and it is not ours to replace.
    Refuse(String),
}

/// Decides whether the stored certificate can serve all `names` from now on.
pub fn decide(stored: &Stored, names: &[String], now: Timestamp) -> Need {
    match stored {
        Stored::Nothing => Need::Start("there is none yet".to_owned()),
        Stored::Awaited => Need::Refuse("there is no such Secret".to_owned()),
        Stored::Incomplete { missing, ours } => {
            let why = format!("the Secret has no usable {missing}");
            if *ours {
                Need::Start(why)
            } else {
                Need::Refuse(why)
            }
        }
        Stored::Keys { keys, ours } => {
            let soon = now.saturating_add(RENEW_BEFORE).unwrap_or(Timestamp::MAX);
            let (today, later) = (check(keys, names, now), check(keys, names, soon));
            match (today, later, ours) {
                (Ok(()), Ok(()), _) => Need::Nothing,
                (Ok(()), Err(why), false) => Need::Warn(why),
                (Err(why), _, false) => Need::Refuse(why),
                (_, Err(why), true) | (Err(why), Ok(()), true) => renew(keys, soon, why),
            }
        }
    }
}

/// Renews with the same authority where that is good for long enough, and the name or the date of
/// the certificate was all that was wrong.
fn renew(keys: &Keys, soon: Timestamp, why: String) -> Need {
    let authority = keys
        .authority_key
        .as_deref()
        .and_then(|key| super::issue::Authority::load(&keys.authorities, key).ok());
    match authority {
        Some(authority) if authority.is_good_at(soon) => Need::Renew(why),
        _ => Need::Start(why),
    }
}

/// Checks the certificate as a client would that trusts its authority and calls it by each name.
pub(super) fn check(keys: &Keys, names: &[String], at: Timestamp) -> Result<(), String> {
    let chain = certificates(&keys.certificate, "certificate")?;
    let (leaf, between) = chain.split_first().ok_or("the certificate is empty")?;
    let key = PrivateKeyDer::from_pem_slice(keys.key.as_bytes())
        .map_err(|error| format!("the private key cannot be read: {error}"))?;
    let provider = Arc::new(ring::default_provider());
    CertifiedKey::from_der(chain.clone(), key, &provider)
        .map_err(|error| format!("certificate and private key do not fit: {error}"))?;

    let mut roots = RootCertStore::empty();
    for authority in certificates(&keys.authorities, "CA")? {
        // rustls takes an authority as good for ever, where an API server looks at its dates.
        if !is_valid_at(&authority, at) {
            continue;
        }
        roots
            .add(authority)
            .map_err(|error| format!("the CA cannot be used: {error}"))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| format!("the CA cannot be used: {error}"))?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(
        u64::try_from(at.as_second()).unwrap_or_default(),
    ));
    for name in names {
        let server = ServerName::try_from(name.as_str())
            .map_err(|_| format!("{name:?} is not a DNS name"))?;
        verifier
            .verify_server_cert(leaf, between, &server, &[], at)
            .map_err(|error| format!("it would not be accepted for {name}: {error}"))?;
    }
    Ok(())
}

fn is_valid_at(authority: &CertificateDer<'_>, at: Timestamp) -> bool {
    x509_parser::parse_x509_certificate(authority).is_ok_and(|(_, parsed)| {
        let validity = parsed.validity();
        (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&at.as_second())
    })
}

fn certificates(pem: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the {what} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{Need, Stored, decide};
    use crate::certificates::{ClusterDomain, Keys, Source, issue, service_names};

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    fn noon() -> Timestamp {
        "2026-06-01T12:00:00Z".parse().unwrap()
    }

    fn names() -> Vec<String> {
        names_of("ipu-operator-webhook-svc")
    }

    fn names_of(service: &str) -> Vec<String> {
        service_names(
            Source::Made,
            service,
            "ipu-system",
            &ClusterDomain::default(),
        )
    }

    fn made() -> Keys {
        issue::start(&names(), noon()).unwrap()
    }

    fn ours(keys: Keys) -> Stored {
        Stored::Keys { keys, ours: true }
    }

    #[test]
    fn a_fresh_certificate_serves_every_name_at_once_and_for_long() {
        let stored = ours(made());
        for days in [0, 1, 300] {
            assert_eq!(
                decide(&stored, &names(), noon() + DAY * days),
                Need::Nothing
            );
        }
    }

    #[test]
    fn before_it_expires_it_is_renewed_by_the_same_authority() {
        let first = made();
        for days in [340, 364, 1000] {
            let later = noon() + DAY * days;
            let need = decide(&ours(first.clone()), &names(), later);
            assert!(matches!(need, Need::Renew(_)), "{days}: {need:?}");
            let second = issue::renew(&first, &names(), later).unwrap();
            assert_eq!(second.authorities, first.authorities);
            assert_ne!(second.certificate, first.certificate);
            assert_eq!(decide(&ours(second), &names(), later), Need::Nothing);
        }
    }

    #[test]
    fn with_the_authority_near_its_end_all_is_new() {
        let need = decide(&ours(made()), &names(), noon() + DAY * (10 * 365 - 20));
        assert!(matches!(need, Need::Start(_)), "{need:?}");
    }

    #[test]
    fn another_name_of_the_service_renews() {
        let need = decide(&ours(made()), &names_of("other"), noon());
        assert!(
            matches!(&need, Need::Renew(why) if why.contains("other.ipu-system.svc")),
            "{need:?}"
        );
    }

    #[test]
    fn what_is_broken_starts_anew_where_it_is_ours_and_is_left_alone_where_not() {
        type Change = fn(&mut Keys);
        let other = issue::start(&names(), noon()).unwrap();
        let cases: [(Change, &str); 5] = [
            (|keys| keys.certificate.clear(), "empty"),
            (|keys| keys.key = "nonsense".to_owned(), "private key"),
            (|keys| keys.authorities.clear(), "CA"),
            (
                |keys| keys.certificate = "-----BEGIN CERTIFICATE-----\n".to_owned(),
                "certificate",
            ),
            (|keys| keys.authorities = "\u{0}".repeat(1000), "CA"),
        ];
        for (change, expected) in cases {
            let mut keys = made();
            change(&mut keys);
            keys.authority_key = None;
            let foreign = Stored::Keys {
                keys: keys.clone(),
                ours: false,
            };
            for (need, refuses) in [
                (decide(&ours(keys), &names(), noon()), false),
                (decide(&foreign, &names(), noon()), true),
            ] {
                let ((Need::Start(why), false) | (Need::Refuse(why), true)) = (&need, refuses)
                else {
                    panic!("{expected}: {need:?}")
                };
                assert!(why.contains(expected), "{expected}: {why}");
            }
        }
        let mut mixed = made();
        mixed.key = other.key;
        assert!(!matches!(
            decide(&ours(mixed), &names(), noon()),
            Need::Nothing
        ));
    }

    #[test]
    fn somebody_elses_certificate_is_used_and_never_replaced() {
        let foreign = |keys| Stored::Keys { keys, ours: false };
        assert_eq!(decide(&foreign(made()), &names(), noon()), Need::Nothing);
        let soon = decide(&foreign(made()), &names(), noon() + DAY * 350);
        assert!(matches!(soon, Need::Warn(_)), "{soon:?}");
        let over = decide(&foreign(made()), &names(), noon() + DAY * 400);
        assert!(matches!(over, Need::Refuse(_)), "{over:?}");
    }

    #[test]
    fn nothing_and_half_of_it() {
        assert!(matches!(
            decide(&Stored::Nothing, &names(), noon()),
            Need::Start(_)
        ));
        let awaited = decide(&Stored::Awaited, &names(), noon());
        assert!(matches!(awaited, Need::Refuse(_)), "{awaited:?}");
        let half = |ours| Stored::Incomplete {
            missing: "tls.key",
            ours,
        };
        assert!(matches!(
            decide(&half(true), &names(), noon()),
            Need::Start(_)
        ));
        let refused = decide(&half(false), &names(), noon());
        assert!(
            matches!(&refused, Need::Refuse(why) if why.contains("tls.key")),
            "{refused:?}"
        );
    }
}
