//! Pure: decides whether the stored certificate is valid, or `renewal` has to renew or replace it.

use jiff::{SignedDuration, Timestamp};

use super::CertificateBundle;
use super::issue::CertificateAuthority;
use super::verification::verify;

/// A certificate is renewed this long before it expires.
pub const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Content of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// There is no Secret.
    Missing,
    /// There is no Secret, and the operator does not create it.
    NotProvided,
    /// A key is missing.
    Incomplete {
        /// The key that is missing or not text.
        missing: &'static str,
        /// Whether the operator owns the Secret.
        is_ours: bool,
    },
    /// It is complete.
    Complete {
        /// The certificate.
        bundle: CertificateBundle,
        /// Whether the operator owns the Secret.
        is_ours: bool,
    },
}

/// The next action for the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep serving with it.
    Keep,
    /// Keep serving with it, and warn the admin, who must renew it.
    Warn(String),
    /// Renew it with the same CA.
    Renew(String),
    /// Issue a new CA and a new certificate.
    Issue(String),
    /// Refuse it: it is invalid, and the operator does not own it.
    Refuse(String),
}

/// Decides on the stored certificate, which must be valid for all `names`.
pub fn decide(stored: &Stored, names: &[String], now: Timestamp) -> Action {
    match stored {
        Stored::Missing => Action::Issue("there is none yet".to_owned()),
        Stored::NotProvided => Action::Refuse("there is no such Secret".to_owned()),
        Stored::Incomplete { missing, is_ours } => {
            let why = format!("the Secret has no usable {missing}");
            if *is_ours {
                Action::Issue(why)
            } else {
                Action::Refuse(why)
            }
        }
        Stored::Complete { bundle, is_ours } => {
            let soon = now.saturating_add(RENEW_BEFORE).unwrap_or(Timestamp::MAX);
            let (today, later) = (verify(bundle, names, now), verify(bundle, names, soon));
            match (today, later, is_ours) {
                (Ok(()), Ok(()), _) => Action::Keep,
                (Ok(()), Err(why), false) => Action::Warn(why),
                (Err(why), _, false) => Action::Refuse(why),
                (_, Err(why), true) | (Err(why), Ok(()), true) => renew(bundle, now, why),
            }
        }
    }
}

/// Renews with the same CA if that does not end before the new certificate, otherwise issues a new
/// one.
fn renew(bundle: &CertificateBundle, now: Timestamp, why: String) -> Action {
    let ca = bundle
        .ca_key
        .as_deref()
        .and_then(|key| CertificateAuthority::load(&bundle.ca_pem, key).ok());
    match ca {
        Some(ca) if ca.outlives_certificate_of(now) => Action::Renew(why),
        _ => Action::Issue(why),
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::{Action, Stored, decide};
    use ipu_runtime::cluster_domain::ClusterDomain;

    use crate::certificates::{CertificateBundle, Source, issue, service_names};

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

    fn made() -> CertificateBundle {
        issue::issue(&names(), noon()).unwrap()
    }

    fn owned(bundle: CertificateBundle) -> Stored {
        Stored::Complete {
            bundle,
            is_ours: true,
        }
    }

    #[test]
    fn a_new_certificate_is_valid_for_every_name() {
        let stored = owned(made());
        for days in [0, 1, 300] {
            assert_eq!(decide(&stored, &names(), noon() + DAY * days), Action::Keep);
        }
    }

    #[test]
    fn a_certificate_is_renewed_with_the_same_ca_before_it_expires() {
        let first = made();
        for days in [340, 364, 1000] {
            let later = noon() + DAY * days;
            let action = decide(&owned(first.clone()), &names(), later);
            assert!(matches!(action, Action::Renew(_)), "{days}: {action:?}");
            let second = issue::renew(&first, &names(), later).unwrap();
            assert_eq!(second.ca_pem, first.ca_pem);
            assert_ne!(second.certificate, first.certificate);
            assert_eq!(decide(&owned(second), &names(), later), Action::Keep);
        }
    }

    #[test]
    fn a_new_ca_is_issued_before_the_old_one_expires() {
        let action = decide(&owned(made()), &names(), noon() + DAY * (10 * 365 - 20));
        assert!(matches!(action, Action::Issue(_)), "{action:?}");
    }

    #[test]
    fn no_renewed_certificate_ends_after_its_ca() {
        let last_renewal = noon() + DAY * (9 * 365);
        for (at, is_kept) in [(last_renewal, true), (last_renewal + DAY, false)] {
            let action = decide(&owned(made()), &names(), at);
            assert_eq!(matches!(action, Action::Renew(_)), is_kept, "{action:?}");
            assert_eq!(matches!(action, Action::Issue(_)), !is_kept, "{action:?}");
        }
    }

    #[test]
    fn a_changed_service_name_renews_the_certificate() {
        let action = decide(&owned(made()), &names_of("other"), noon());
        assert!(
            matches!(&action, Action::Renew(why) if why.contains("other.ipu-system.svc")),
            "{action:?}"
        );
    }

    #[test]
    fn an_invalid_certificate_is_replaced_only_if_the_operator_owns_it() {
        type Change = fn(&mut CertificateBundle);
        let other = issue::issue(&names(), noon()).unwrap();
        let cases: [(Change, &str); 5] = [
            (|bundle| bundle.certificate.clear(), "empty"),
            (|bundle| bundle.key = "no key".to_owned(), "private key"),
            (|bundle| bundle.ca_pem.clear(), "CA"),
            (
                |bundle| bundle.certificate = "-----BEGIN CERTIFICATE-----\n".to_owned(),
                "certificate",
            ),
            (|bundle| bundle.ca_pem = "\u{0}".repeat(1000), "CA"),
        ];
        for (change, expected) in cases {
            let mut bundle = made();
            change(&mut bundle);
            bundle.ca_key = None;
            let foreign = Stored::Complete {
                bundle: bundle.clone(),
                is_ours: false,
            };
            for (action, refuses) in [
                (decide(&owned(bundle), &names(), noon()), false),
                (decide(&foreign, &names(), noon()), true),
            ] {
                let ((Action::Issue(why), false) | (Action::Refuse(why), true)) =
                    (&action, refuses)
                else {
                    panic!("{expected}: {action:?}")
                };
                assert!(why.contains(expected), "{expected}: {why}");
            }
        }
        let mut mixed = made();
        mixed.key = other.key;
        assert!(!matches!(
            decide(&owned(mixed), &names(), noon()),
            Action::Keep
        ));
    }

    #[test]
    fn a_foreign_certificate_is_never_replaced() {
        let foreign = |bundle| Stored::Complete {
            bundle,
            is_ours: false,
        };
        assert_eq!(decide(&foreign(made()), &names(), noon()), Action::Keep);
        let soon = decide(&foreign(made()), &names(), noon() + DAY * 350);
        assert!(matches!(soon, Action::Warn(_)), "{soon:?}");
        let over = decide(&foreign(made()), &names(), noon() + DAY * 400);
        assert!(matches!(over, Action::Refuse(_)), "{over:?}");
    }

    #[test]
    fn a_missing_or_incomplete_secret_is_replaced_only_if_the_operator_owns_it() {
        assert!(matches!(
            decide(&Stored::Missing, &names(), noon()),
            Action::Issue(_)
        ));
        let awaited = decide(&Stored::NotProvided, &names(), noon());
        assert!(matches!(awaited, Action::Refuse(_)), "{awaited:?}");
        let half = |is_ours| Stored::Incomplete {
            missing: "tls.key",
            is_ours,
        };
        assert!(matches!(
            decide(&half(true), &names(), noon()),
            Action::Issue(_)
        ));
        let refused = decide(&half(false), &names(), noon());
        assert!(
            matches!(&refused, Action::Refuse(why) if why.contains("tls.key")),
            "{refused:?}"
        );
    }
}
