//! The collector of the traces: from the options of the command line, or from the standard
//! variables of OpenTelemetry.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use super::TraceError;

/// The standard variables of an exporter start with one of these. That for traces alone wins.
const PREFIXES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"];

/// Time limit for sending a batch of spans, unless a variable sets another one.
const DEADLINE: Duration = Duration::from_secs(5);

/// Options of the command line. They replace the variables.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceOptions<'a> {
    /// Address of the collector. `None` or empty: the variables decide.
    pub endpoint: Option<&'a str>,
    /// Folder with `ca.crt`, and `tls.crt` and `tls.key` if the collector requires a client
    /// certificate.
    pub tls_dir: Option<&'a Path>,
}

/// A collector, and how a process connects to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub(super) endpoint: String,
    /// `None`: the exporter reads the variable.
    pub(super) deadline: Option<Duration>,
    tls: TlsFiles,
}

/// PEM files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TlsFiles {
    /// `None`: the public CAs.
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Destination {
    /// Returns the collector that the options or the variables name. `None`: no traces are sent.
    pub fn find(
        options: &TraceOptions<'_>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TraceError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is = |name, expected: &str| variable(name).is_some_and(|value| value == expected);
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let setting = |name: &str| {
            let mut names = PREFIXES.iter().map(|prefix| format!("{prefix}{name}"));
            names.find_map(|name| variable(&name))
        };
        let option = options.endpoint.filter(|endpoint| !endpoint.is_empty());
        let Some(endpoint) = option.map(str::to_owned).or_else(|| setting("ENDPOINT")) else {
            return Ok(None);
        };
        let is_collector =
            |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
        if !endpoint.parse::<Uri>().is_ok_and(|uri| is_collector(&uri)) {
            return Err(TraceError::Address(endpoint));
        }
        if let Some(protocol) = setting("PROTOCOL").filter(|protocol| protocol != "grpc") {
            return Err(TraceError::Protocol(protocol));
        }
        let file = |name| setting(name).map(PathBuf::from);
        let tls = options.tls_dir.map_or_else(
            || TlsFiles {
                ca: file("CERTIFICATE"),
                certificate: file("CLIENT_CERTIFICATE"),
                key: file("CLIENT_KEY"),
            },
            TlsFiles::within,
        );
        Ok(Some(Self {
            endpoint,
            deadline: setting("TIMEOUT").is_none().then_some(DEADLINE),
            tls,
        }))
    }

    /// The settings of TLS. `None` for plain text.
    pub(super) fn tls(&self) -> Result<Option<ClientTlsConfig>, TraceError> {
        let is_https = self.endpoint.starts_with("https:");
        is_https.then(|| self.tls.config()).transpose()
    }
}

impl TlsFiles {
    fn within(folder: &Path) -> Self {
        let existing = |name| Some(folder.join(name)).filter(|file| file.exists());
        Self {
            ca: Some(folder.join("ca.crt")),
            certificate: existing("tls.crt"),
            key: existing("tls.key"),
        }
    }

    fn config(&self) -> Result<ClientTlsConfig, TraceError> {
        let config = match &self.ca {
            Some(file) => ClientTlsConfig::new().ca_certificate(authorities(file)?),
            None => ClientTlsConfig::new().trust_anchors(public_roots()),
        };
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Ok(config.identity(Identity::from_pem(read(certificate)?, read(key)?)))
            }
            (None, None) => Ok(config),
            (Some(file), None) => Err(TraceError::Half(file.clone(), "its private key")),
            (None, Some(file)) => Err(TraceError::Half(file.clone(), "its certificate")),
        }
    }
}

/// The CAs of a file; at least one.
fn authorities(file: &Path) -> Result<Certificate, TraceError> {
    let pem = read(file)?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&pem).flatten();
    let (valid, _) = roots.add_parsable_certificates(certificates);
    if valid == 0 {
        return Err(TraceError::NoCertificate(file.to_owned()));
    }
    Ok(Certificate::from_pem(pem))
}

/// The image has no certificates of a system.
fn public_roots() -> Vec<rustls::pki_types::TrustAnchor<'static>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(TLS_SERVER_ROOT_CERTS.iter().cloned());
    roots.roots
}

fn read(file: &Path) -> Result<Vec<u8>, TraceError> {
    fs::read(file).map_err(|source| TraceError::File(file.to_owned(), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        options: &TraceOptions<'_>,
        variables: &[(&str, &str)],
    ) -> Result<Option<Destination>, TraceError> {
        Destination::find(options, |asked| {
            let mut variables = variables.iter();
            let found = variables.find(|(name, _)| *name == asked);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn endpoint(options: &TraceOptions<'_>, variables: &[(&str, &str)]) -> Option<String> {
        let found = found(options, variables).unwrap();
        found.map(|destination| destination.endpoint)
    }

    const GENERAL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:4317");
    const OF_TRACES: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces:4317");

    #[test]
    fn the_option_wins_then_the_variable_of_traces_then_the_general_one() {
        let none = TraceOptions::default();
        assert_eq!(endpoint(&none, &[]), None);
        assert_eq!(endpoint(&none, &[(GENERAL.0, "")]), None);
        assert_eq!(endpoint(&none, &[GENERAL]).as_deref(), Some(GENERAL.1));
        let both = [GENERAL, OF_TRACES];
        assert_eq!(endpoint(&none, &both).as_deref(), Some(OF_TRACES.1));
        let option = TraceOptions {
            endpoint: Some("http://option:4317"),
            ..none
        };
        let wanted = Some("http://option:4317");
        assert_eq!(endpoint(&option, &both).as_deref(), wanted);
        for off in [
            ("OTEL_SDK_DISABLED", "true"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ] {
            assert_eq!(endpoint(&option, &[GENERAL, off]), None);
        }
    }

    #[test]
    fn addresses_and_protocols_other_than_grpc_are_refused() {
        for wrong in ["collector:4317", "ftp://collector:4317", "/run/otlp"] {
            let error = found(&TraceOptions::default(), &[(GENERAL.0, wrong)]).unwrap_err();
            assert!(matches!(error, TraceError::Address(_)), "{wrong}");
        }
        let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
        let error = found(&TraceOptions::default(), &[GENERAL, protocol]).unwrap_err();
        assert!(matches!(error, TraceError::Protocol(_)), "{error}");
    }

    #[test]
    fn each_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = |name: &str, content: &str| {
            fs::write(folder.path().join(name), content).unwrap();
            let options = TraceOptions {
                endpoint: Some(OF_TRACES.1),
                tls_dir: Some(folder.path()),
            };
            let destination = found(&options, &[]).unwrap().unwrap();
            destination.tls().unwrap_err().to_string()
        };
        let missing = error("unrelated", "");
        assert!(missing.starts_with("failed to read "), "{missing}");
        assert!(missing.contains("ca.crt"), "{missing}");
        let empty = error("ca.crt", "no PEM");
        assert!(
            empty.contains("ca.crt contains no CA certificate"),
            "{empty}"
        );
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertificateParams::default()
            .self_signed(&key)
            .unwrap();
        fs::write(folder.path().join("ca.crt"), ca.pem()).unwrap();
        let half = error("tls.key", &key.serialize_pem());
        assert!(
            half.contains("tls.key needs its certificate beside it"),
            "{half}"
        );
    }

    #[test]
    fn plain_text_needs_no_file() {
        let missing = ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/missing");
        let destination = found(&TraceOptions::default(), &[GENERAL, missing]);
        assert!(destination.unwrap().unwrap().tls().unwrap().is_none());
    }
}
