//! A release that is signed and pushed, and a reader who verifies it with the commands of the
//! documents. It needs a registry, and no API server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::command;
use cluster::images::oci::{Entry, ImageConfig, archive as image_archive, layer};
use cluster::platform::AMD64;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use release::guests;
use release::package::archive::{self, Files};
use release::package::{Parts, VERSION, files, name, provenance, sums};
use release::publish;
use release::signing::Cosign;
use tests::documents::VERIFY_RELEASE;
use tests::registry::{Access, PASSWORD, Registry};

/// The registry in the document.
const HOST: &str = "registry.example.com";

/// The time of the release.
const TIME: u64 = 1_767_225_600;

/// The programs of a publisher and of a reader.
fn tools() -> Tools {
    let settings = Settings::from_env().unwrap();
    Tools::fetch_some(&settings, &Progress::start(), &["cosign", "helm"]).unwrap()
}

/// A small image instead of the operator's, and its digest.
fn image(folder: &Path) -> (Vec<u8>, String) {
    let program = folder.join("program");
    fs::write(&program, "a program").unwrap();
    let layer = layer(folder, &[Entry::program("program", &program)]).unwrap();
    let path = folder.join("image.tar");
    let config = ImageConfig::entrypoint(&["/program"]);
    let digest = image_archive(&layer, &config, "a.b/c:d", &path).unwrap();
    (fs::read(path).unwrap(), digest)
}

/// Writes the files of a release, but with a small image and without programs, as `make release`
/// does. Returns the folder of the unpacked archive.
fn make_release(folder: &Path) -> PathBuf {
    let (image, image_digest) = image(folder);
    let parts = Parts {
        guests: guests::build().unwrap(),
        plugins: Vec::new(),
        manifests: Vec::new(),
        image,
        image_digest,
        platforms: vec![AMD64],
    };
    let settings = Settings::from_env().unwrap();
    let files = files(&settings, parts, TIME).unwrap();
    let packed = archive::tar_gz(&files, &format!("{}/", name(VERSION)), TIME).unwrap();
    let provenance = provenance::predicate(&settings.checkout, &[AMD64]).unwrap();
    let mut beside = Files::from([
        (format!("{}.tar.gz", name(VERSION)), packed),
        (provenance::NAME.to_owned(), provenance),
    ]);
    beside.insert(sums::NAME.to_owned(), sums::list(&beside));
    for (name, content) in &beside {
        fs::write(folder.join(name), content).unwrap();
    }
    let unpacked = folder.join("unpacked");
    archive::unpack(&folder.join(format!("{}.tar.gz", name(VERSION))), &unpacked).unwrap();
    unpacked.join(name(VERSION))
}

/// A shell with the programs on its path.
fn shell(script: &str, folder: &Path, tools: &Tools, ca: &Path) -> Command {
    let programs = ["cosign", "helm"].map(|program| tools.program(program).parent().unwrap());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = programs.into_iter().map(Path::to_owned);
    let path = std::env::join_paths(own.chain(std::env::split_paths(&path))).unwrap();
    let mut shell = Command::new("bash");
    shell
        .args(["-euxo", "pipefail", "-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env("COSIGN_PASSWORD", PASSWORD)
        .env("SSL_CERT_FILE", ca);
    shell
}

/// Signs and pushes a release with the publisher's key, verifies it as the document describes, and
/// finds that another key and changed files are refused.
async fn published(registry: &Registry, folder: &Path, tools: &Tools) {
    let ca = registry.ca();
    let run = |script: &str| command::output(&mut shell(script, folder, tools, &ca));
    run("cosign generate-key-pair && mkdir other && cd other && cosign generate-key-pair").unwrap();
    let unpacked = make_release(folder);
    let cosign = Cosign {
        program: tools.program("cosign").to_owned(),
        key: folder.join("cosign.key"),
        registry_ca: Some(ca.clone()),
        variables: vec![("COSIGN_PASSWORD", PASSWORD.into())],
    };
    let archive = format!("{}.tar.gz", name(VERSION));
    cosign.sign_files(&folder.join(&archive)).unwrap();
    for signed in [sums::NAME, &archive] {
        let bundle = folder.join(format!("{signed}.sigstore.json"));
        let mode = fs::metadata(&bundle).unwrap().permissions().mode();
        assert_eq!(
            mode & 0o444,
            0o444,
            "everybody downloads {}",
            bundle.display()
        );
    }
    let host = registry.host();
    let ca_pem = fs::read(&ca).unwrap();
    let pushed = publish::push(&unpacked, &host, Some(&ca_pem))
        .await
        .unwrap();
    assert_eq!(pushed.len(), 2 + guests::GUESTS.len());
    cosign
        .sign_artefacts(&pushed, &folder.join(provenance::NAME))
        .unwrap();

    let document = guests::checkout().join(format!("{}.md", VERIFY_RELEASE.document));
    let text = fs::read_to_string(document)
        .unwrap()
        .replace("0.2.0", VERSION);
    let blocks = VERIFY_RELEASE.blocks(&text).into_iter();
    let script: String = blocks.flat_map(|block| [block.commands, "\n"]).collect();
    let script = script.replace(HOST, &host);
    let said = run(&script).unwrap();
    let image = &pushed[0];
    let by_digest = format!("image: \"{}\"", image.replace('@', ":"));
    let by_digest = by_digest.replace(":sha256:", "@sha256:");
    for part in ["https://slsa.dev/provenance/v1", &by_digest] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }

    let verify = "cosign verify --insecure-ignore-tlog=true --key";
    run(&format!("{verify} other/cosign.pub {image}")).unwrap_err();
    fs::write(folder.join(&archive), "another archive").unwrap();
    let [first, ..] = &VERIFY_RELEASE.blocks(&text)[..] else {
        panic!("the document has no commands");
    };
    run(first.commands).unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_signed_pushed_and_verified_as_the_document_describes() {
    let registry = Registry::start(Access::Tls).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tools = tokio::task::spawn_blocking(tools).await.unwrap();
    published(&registry, folder.path(), &tools).await;
}
