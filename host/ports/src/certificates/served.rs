//! The certificates that a process serves, with their validity, for its metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::CertificateBundle;

/// The certificates that a process serves, by their Secrets. Cheap to clone; all clones share one
/// state.
#[derive(Clone, Debug, Default)]
pub struct ServedCertificates(Arc<Mutex<BTreeMap<String, Validity>>>);

/// The time during which clients accept a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Validity {
    not_before: i64,
    not_after: i64,
}

impl ServedCertificates {
    /// Records that the process serves the certificate of a Secret.
    pub fn record(&self, secret: &str, bundle: &CertificateBundle) {
        if let Some(validity) = Validity::of(bundle) {
            self.0.lock().insert(secret.to_owned(), validity);
        }
    }

    /// Adds the gauges of all certificates.
    pub fn expose(&self, registry: &mut Registry) {
        let (begins, ends) = (Gauges::default(), Gauges::default());
        for (secret, validity) in &*self.0.lock() {
            let label = [("secret", secret.clone())];
            begins.get_or_create(&label).set(validity.not_before);
            ends.get_or_create(&label).set(validity.not_after);
        }
        registry.register(
            "certificate_not_before_timestamp_seconds",
            "Time from which the served certificate of a Secret, or its CA if that ends first, is valid, in seconds since 1970",
            begins,
        );
        registry.register(
            "certificate_not_after_timestamp_seconds",
            "Time at which the served certificate of a Secret or its CA ends, in seconds since 1970",
            ends,
        );
    }
}

type Gauges = Family<[(&'static str, String); 1], Gauge>;

impl Validity {
    /// Pure: the validity of the certificate, an intermediate certificate or the last CA: of the
    /// one that ends first. Alerts compare the rest of a lifetime with the whole. A certificate
    /// that is often renewed would hide the end of its CA.
    fn of(bundle: &CertificateBundle) -> Option<Self> {
        let chain = validities(&bundle.certificate);
        let is_served = !chain.is_empty();
        let last_ca = validities(&bundle.ca_pem);
        let last_ca = last_ca.into_iter().max_by_key(|ca| ca.not_after);
        let all = chain.into_iter().chain(last_ca);
        let first = all.min_by_key(|validity| validity.not_after);
        first.filter(|_| is_served)
    }
}

/// Returns the validity of each certificate of a PEM text.
fn validities(pem: &str) -> Vec<Validity> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).flatten();
    let validities = certificates.filter_map(|certificate| {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        let validity = parsed.validity();
        Some(Validity {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
        })
    });
    validities.collect()
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::certificates::issue::issue;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    fn made(at: &str) -> CertificateBundle {
        let now: Timestamp = at.parse().unwrap();
        issue(&["a.example.com".to_owned()], now).unwrap()
    }

    #[test]
    fn the_validity_of_the_served_certificate_is_exposed() {
        let served = ServedCertificates::default();
        served.record("a", &made("2025-06-01T12:00:00Z"));
        served.record("a", &made("2026-06-01T12:00:00Z"));
        let mut registry = Registry::default();
        served.expose(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let begin: Timestamp = "2026-06-01T11:00:00Z".parse().unwrap();
        let end: Timestamp = "2027-06-01T12:00:00Z".parse().unwrap();
        for (name, at) in [("not_before", begin), ("not_after", end)] {
            let second = at.as_second();
            let line = format!("\ncertificate_{name}_timestamp_seconds{{secret=\"a\"}} {second}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
    }

    #[test]
    fn a_certificate_ends_with_its_last_ca() {
        let (mut bundle, now) = (made("2026-06-01T12:00:00Z"), "2026-06-01T12:00:00Z");
        let now: Timestamp = now.parse().unwrap();
        let end = |days: i32| (now + DAY * days).as_second();
        assert_eq!(Validity::of(&bundle).unwrap().not_after, end(365));
        // CAs live for ten years.
        let [older, old] = ["2016-06-08T12:00:00Z", "2016-07-08T12:00:00Z"].map(made);
        bundle.ca_pem = format!("{}{}", old.ca_pem, older.ca_pem);
        let old_end: Timestamp = "2026-07-06T12:00:00Z".parse().unwrap();
        let old_begin: Timestamp = "2016-07-08T11:00:00Z".parse().unwrap();
        let validity = Validity {
            not_before: old_begin.as_second(),
            not_after: old_end.as_second(),
        };
        assert_eq!(Validity::of(&bundle), Some(validity));
        bundle.certificate.clear();
        assert_eq!(Validity::of(&bundle), None);
    }
}
