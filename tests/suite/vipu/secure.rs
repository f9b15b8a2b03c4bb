//! TLS and credentials for a V-IPU controller: what the client accepts, the messages of refusals,
//! and files that change while the process runs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cluster::pki::{self, Identity, Pki};
use cluster::wait;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use vipu_client::auth::AuthError;
use vipu_client::{AuthFiles, AuthOptions, Deadlines, Registry, VipuClient, VipuError};
use vipu_simulator::tls::TlsFiles;
use vipu_simulator::{Options, Simulator};

use super::partition;

const KEY: &str = "a-key-that-nobody-guesses";

/// A Secret's volume as a kubelet writes it: files are links through `..data`, which the kubelet
/// replaces.
struct Volume {
    folder: TempDir,
    swaps: u32,
}

impl Volume {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let mut volume = Volume {
            folder: tempfile::tempdir().unwrap(),
            swaps: 0,
        };
        volume.swap(files);
        volume
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn swap(&mut self, files: &[(&str, &[u8])]) {
        self.swaps += 1;
        let fresh = self.path().join(format!("..{}", self.swaps));
        fs::create_dir(&fresh).unwrap();
        for (name, content) in files {
            fs::write(fresh.join(name), content).unwrap();
            let link = self.path().join(name);
            if !link.is_symlink() {
                symlink(Path::new("..data").join(name), link).unwrap();
            }
        }
        let next = self.path().join("..data_tmp");
        symlink(fresh.file_name().unwrap(), &next).unwrap();
        fs::rename(next, self.path().join("..data")).unwrap();
    }
}

struct Fixture {
    folder: TempDir,
    pki: Pki,
    simulator: Simulator,
}

impl Fixture {
    /// A pod that uses TLS, and serves callers with a certificate of its CA and the key.
    async fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pki = Pki::make(folder.path()).unwrap();
        let server = pki.server("server", "pod1", None, &[name]).unwrap();
        let simulator = Simulator::start(Options {
            tls: Some(TlsFiles {
                certificate: server.certificate,
                key: server.key,
                client_ca: Some(pki::cluster_ca(folder.path())),
            }),
            required: BTreeMap::from([
                ("user-id".to_owned(), "operator".to_owned()),
                ("api-key".to_owned(), KEY.to_owned()),
            ]),
            ..Options::quick("pod1", 16)
        });
        Fixture {
            simulator: simulator.await.unwrap(),
            folder,
            pki,
        }
    }

    fn ca(&self) -> Vec<u8> {
        fs::read(pki::cluster_ca(self.folder.path())).unwrap()
    }

    fn identity(&self) -> (Vec<u8>, Vec<u8>) {
        read(&self.pki.client("operator", None).unwrap())
    }

    /// The credentials that the operator needs.
    fn volumes(&self) -> (Volume, Volume) {
        let (certificate, key) = self.identity();
        let tls = Volume::new(&[
            ("ca.crt", &self.ca()),
            ("tls.crt", &certificate),
            ("tls.key", &key),
        ]);
        (tls, credentials(KEY))
    }

    /// A client with the current content of the files.
    async fn client(&self, options: AuthOptions) -> VipuClient {
        let access = AuthFiles::open(options).await.unwrap().subscribe();
        let controller = self.simulator.controller("pod1");
        VipuClient::with_auth(&controller, Deadlines::default(), access).unwrap()
    }
}

fn read(identity: &Identity) -> (Vec<u8>, Vec<u8>) {
    let certificate = fs::read(&identity.certificate).unwrap();
    (certificate, fs::read(&identity.key).unwrap())
}

fn credentials(key: &str) -> Volume {
    Volume::new(&[("user-id", b"operator\n"), ("api-key", key.as_bytes())])
}

fn options(tls: &Volume, credentials: &Volume) -> AuthOptions {
    AuthOptions {
        vipu_tls_dir: Some(tls.path().to_owned()),
        vipu_credentials_dir: Some(credentials.path().to_owned()),
        ..AuthOptions::default()
    }
}

#[tokio::test]
async fn every_call_is_served_over_tls_with_the_right_certificate_and_key() {
    let fixture = Fixture::new("127.0.0.1").await;
    let (tls, credentials) = fixture.volumes();
    let client = fixture.client(options(&tls, &credentials)).await;
    client.create(&partition("p-1", 4)).await.unwrap();
    client.reset("p-1", false).await.unwrap();
    assert!(client.status("p-1").await.is_ok());
    assert_eq!(
        client.ipuof_config("p-1", 0).await.unwrap().devices.len(),
        4
    );
    assert_eq!(client.inventory().await.unwrap().used, 4);
    assert_eq!(client.version().await.unwrap(), "1.18.0");
    client.remove("p-1", false).await.unwrap();
    let shown = format!("{client:?}");
    assert!(
        !shown.contains(KEY) && !shown.contains("PRIVATE"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_refused_connection_is_reported_with_who_must_fix_it() {
    let fixture = Fixture::new("127.0.0.1").await;
    let other = Fixture::new("127.0.0.1").await;
    let (tls, right_key) = fixture.volumes();
    let (certificate, key) = other.identity();
    let ca = fixture.ca();
    let alone = Volume::new(&[("ca.crt", &ca)]);
    let strangers = Volume::new(&[
        ("ca.crt", &ca),
        ("tls.crt", &certificate),
        ("tls.key", &key),
    ]);
    let wrong_ca = Volume::new(&[("ca.crt", &other.ca())]);
    let wrong_key = credentials("guessed");
    let only_user = Volume::new(&[("user-id", b"operator")]);
    let renamed = AuthOptions {
        vipu_api_key_metadata: "x-key".to_owned(),
        ..options(&tls, &right_key)
    };
    let misnamed = AuthOptions {
        vipu_tls_server_name: Some("pod2.example".to_owned()),
        ..options(&tls, &right_key)
    };
    let denied = "denies the operator ListPartitions; the admin has to fix the Secrets of vipuProxy.vipu, and \
                  free capacity is not the cause: the metadata api-key is not accepted";
    let table = [
        (AuthOptions::default(), "ListPartitions got no answer"),
        (
            options(&alone, &right_key),
            "ListPartitions got no answer: received fatal alert",
        ),
        (
            options(&strangers, &right_key),
            "ListPartitions got no answer: received fatal alert",
        ),
        (
            options(&wrong_ca, &right_key),
            "it cannot be reached over TLS; the admin has to fix vipuProxy.vipu.tls: invalid peer certificate",
        ),
        (
            misnamed,
            "it cannot be reached over TLS; the admin has to fix vipuProxy.vipu.tls: invalid peer certificate",
        ),
        (options(&tls, &wrong_key), denied),
        (options(&tls, &only_user), denied),
        (renamed, denied),
    ];
    for (options, words) in table {
        let shown = format!("{options:?}");
        let client = fixture.client(options).await;
        let reason = client.list().await.unwrap_err().reason();
        assert!(reason.contains(words), "{shown}: {reason}");
        assert!(!reason.contains(KEY), "{reason}");
        // A partition that a controller hides may exist.
        client.lookup("p-1").await.unwrap_err();
    }
}

#[tokio::test]
async fn all_controllers_can_have_the_same_name_in_their_certificates() {
    let fixture = Fixture::new("v-ipu.example").await;
    let (tls, credentials) = fixture.volumes();
    let client = fixture.client(options(&tls, &credentials)).await;
    let reason = client.list().await.unwrap_err().reason();
    assert!(reason.contains("invalid peer certificate"), "{reason}");
    let named = AuthOptions {
        vipu_tls_server_name: Some("v-ipu.example".to_owned()),
        ..options(&tls, &credentials)
    };
    assert!(fixture.client(named).await.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn renewed_files_are_used_without_a_restart_and_bad_ones_leave_the_last() {
    let fixture = Fixture::new("127.0.0.1").await;
    let (mut tls, mut keys) = fixture.volumes();
    let mut files = AuthFiles::open(options(&tls, &keys)).await.unwrap();
    let controller = fixture.simulator.controller("pod1");
    let client =
        VipuClient::with_auth(&controller, Deadlines::default(), files.subscribe()).unwrap();
    client.create(&partition("p-1", 4)).await.unwrap();

    let (ca, (certificate, key)) = (fixture.ca(), fixture.identity());
    let strangers_key = Fixture::new("127.0.0.1").await.identity().1;
    keys.swap(&[("user-id", b"operator"), ("api-key", b"of today")]);
    // While one of the new files is invalid, the client uses none of them, and continues with the
    // previous ones.
    for (certificate, key) in [
        (&certificate[..40], &*key),
        (&certificate, &key[..key.len() / 2]),
        (b"", &key),
        (b"\xff\x00", &key),
        (&certificate, &strangers_key),
    ] {
        tls.swap(&[("ca.crt", &ca), ("tls.crt", certificate), ("tls.key", key)]);
        files.reload().await;
        assert_eq!(client.list().await.unwrap().len(), 1);
    }
    fs::remove_file(tls.path().join("..data")).unwrap();
    files.reload().await;
    assert_eq!(client.list().await.unwrap().len(), 1);

    tls.swap(&[
        ("ca.crt", &ca),
        ("tls.crt", &certificate),
        ("tls.key", &key),
    ]);
    fixture.simulator.server.with(|world, _| {
        let today = "of today".to_owned();
        world.required.insert("api-key".to_owned(), today);
    });
    client.list().await.unwrap_err();
    files.reload().await;
    assert_eq!(client.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn invalid_files_at_the_start_block_every_call_until_they_are_fixed() {
    let fixture = Fixture::new("127.0.0.1").await;
    let (certificate, key) = fixture.identity();
    let ca = fixture.ca();
    let mut tls = Volume::new(&[("tls.crt", &certificate), ("tls.key", &key)]);
    let keys = credentials(KEY);
    let files = AuthFiles::open(options(&tls, &keys)).await.unwrap();
    let registry = Registry::with_auth(Deadlines::default(), files.subscribe());
    tokio::spawn(files.follow(CancellationToken::new()));
    let client = registry
        .client(&fixture.simulator.controller("pod1"))
        .unwrap();
    let error = client.create(&partition("p-1", 4)).await.unwrap_err();
    assert!(matches!(error, VipuError::Auth(_)), "{error:?}");
    let file = tls.path().join("ca.crt");
    let expected = format!(
        "the certificates or credentials for V-IPU controllers cannot be used; the admin has to fix the Secrets of \
         vipuProxy.vipu: failed to find {}: put it into the Secret that is mounted there, by which V-IPU \
         controllers are known",
        file.display()
    );
    assert_eq!(error.reason(), expected);
    assert!(matches!(
        client.lookup("p-1").await,
        Err(VipuError::Auth(_))
    ));
    assert!(fixture.simulator.server.calls(0).is_empty());

    tls.swap(&[
        ("ca.crt", &ca),
        ("tls.crt", &certificate),
        ("tls.key", &key),
    ]);
    wait::eventually("the controller serves the client", async || {
        client.list().await.map_err(|error| error.reason())
    })
    .await;
}

#[tokio::test]
async fn an_impossible_option_is_an_error_at_once() {
    let named = |user: &str, key: &str| AuthOptions {
        vipu_user_id_metadata: user.to_owned(),
        vipu_api_key_metadata: key.to_owned(),
        ..AuthOptions::default()
    };
    for bad in [
        "",
        "User",
        "user id",
        "user-bin",
        "grpc-user",
        "te",
        ":path",
        "user\n",
    ] {
        let error = AuthFiles::open(named(bad, "api-key")).await.unwrap_err();
        assert!(matches!(error, AuthError::MetadataName(_)), "{bad:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("{bad:?}")), "{text}");
    }
    let error = AuthFiles::open(named("key", "key")).await.unwrap_err();
    assert!(matches!(error, AuthError::SameName(_)), "{error}");
    let misnamed = AuthOptions {
        vipu_tls_server_name: Some("pod 1".to_owned()),
        ..AuthOptions::default()
    };
    let error = AuthFiles::open(misnamed).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to use \"pod 1\" as the name of a TLS server: write a DNS name or an IP address"
    );
    let nowhere = AuthOptions {
        vipu_tls_dir: Some(PathBuf::from("/nonexistent")),
        ..AuthOptions::default()
    };
    let files = AuthFiles::open(nowhere).await.unwrap();
    assert!(files.subscribe().borrow().is_err());
}
