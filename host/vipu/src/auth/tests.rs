//! The error about each unusable file names the file and the violated rule, and contains no secret.

use rcgen::{CertificateParams, KeyPair};

use super::*;

/// A certificate and its key, PEM.
fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::default().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn content(name: &str, text: &str) -> Content {
    Content {
        file: Path::new("/tls").join(name),
        bytes: text.as_bytes().to_vec(),
    }
}

fn error(material: &Material) -> String {
    let error = Auth::new(material, &AuthOptions::default()).unwrap_err();
    ipu_text::explain(&error)
}

#[test]
fn each_bad_file_is_named_with_its_rule() {
    let (ca, key) = pair();
    let (_, other_key) = pair();
    let material = |ca: &str, certificate: &str, key: &str| Material {
        ca: Some(content("ca.crt", ca)),
        certificate: Some(content("tls.crt", certificate)),
        key: Some(content("tls.key", key)),
        ..Material::default()
    };
    Auth::new(&material(&ca, &ca, &key), &AuthOptions::default()).unwrap();
    let cut = |text: &str| text[..text.len() / 2].to_owned();
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let table = [
        (
            material("", &ca, &key),
            "failed to find a certificate in /tls/ca.crt: it must be PEM",
        ),
        (
            material(&key, &ca, &key),
            "failed to find a certificate in /tls/ca.crt: it must be PEM",
        ),
        (
            material(no_certificate, &ca, &key),
            "failed to use /tls/ca.crt: each certificate in it must be a CA certificate",
        ),
        (
            material(&ca, &cut(&ca), &key),
            "failed to find a certificate in /tls/tls.crt",
        ),
        (
            material(&ca, &ca, &cut(&key)),
            "failed to find a private key in /tls/tls.key",
        ),
        (
            material(&ca, &ca, &ca),
            "failed to find a private key in /tls/tls.key",
        ),
        (
            material(&ca, &ca, &other_key),
            "failed to use /tls/tls.key: it must be an RSA, ECDSA or Ed25519 key, and that of the \
             certificate beside it",
        ),
    ];
    for (material, words) in table {
        let text = error(&material);
        assert!(text.starts_with(words), "{text}");
        assert!(!text.contains(key.lines().nth(1).unwrap()), "{text}");
    }
}

#[test]
fn a_credential_is_one_visible_line_and_is_never_shown() {
    let material = |key: &str| Material {
        user_id: Some(content("user-id", "operator")),
        api_key: Some(content("api-key", key)),
        ..Material::default()
    };
    for bad in ["", "\n", "two\nlines", "schlüssel", "tab\there"] {
        assert_eq!(
            error(&material(bad)),
            "failed to send what is in /tls/api-key: it must be one line of visible ASCII characters"
        );
    }
    let auth = Auth::new(&material("s3cret key\r\n"), &AuthOptions::default()).unwrap();
    let request = auth.request(());
    assert_eq!(request.metadata().get("api-key").unwrap(), "s3cret key");
    assert_eq!(request.metadata().get("user-id").unwrap(), "operator");
    let shown = format!("{auth:?} {request:?}");
    assert!(
        shown.contains("api-key") && !shown.contains("s3cret"),
        "{shown}"
    );
}

#[test]
fn without_files_nothing_is_asked_for() {
    let auth = Auth::new(&Material::default(), &AuthOptions::default()).unwrap();
    assert!(auth.tls("pod1").is_none());
    assert!(auth.request(()).metadata().is_empty());
}
