//! The package of a release has the required content, is reproducible, and lists its components.

mod made_of;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use cluster::files::sha256_of;
use cluster::platform::{AMD64, ARM64};
use cluster::settings::Settings;
use ipu_api::guest::digest::digest_of;
use ipu_oci::manifest::component_of;
use release::guests::{self, GUESTS};
use release::package::archive::{self, Files};
use release::package::{self, Parts, VERSION, chart, krew, manifests, sums};
use release::{cargo, dist};
use serde_json::Value;

use crate::sources::repository;

/// A stand-in for the image, which is packed without changes.
const IMAGE: &[u8] = b"image";

/// A stand-in for the plugin of kubectl.
const PLUGIN: &[u8] = b"plugin";

/// A stand-in for the objects for kubectl, which Helm renders.
const MANIFESTS: &[u8] = b"manifests";

/// A time, in seconds since 1970: 2026-01-01.
const TIME: u64 = 1_767_225_600;

/// The content of the package.
static FILES: LazyLock<Files> = LazyLock::new(files);

fn files() -> Files {
    let parts = Parts {
        guests: guests::build().unwrap(),
        plugins: [AMD64, ARM64]
            .map(|platform| (platform, PLUGIN.to_owned()))
            .to_vec(),
        manifests: MANIFESTS.to_owned(),
        image: IMAGE.to_owned(),
        image_digest: format!("sha256:{}", sha256_of(IMAGE)),
        platforms: vec![AMD64, ARM64],
    };
    package::files(&Settings::from_env().unwrap(), parts, TIME).unwrap()
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&FILES[name]).unwrap()
}

#[test]
fn it_contains_everything_that_an_installation_needs() {
    let at_top: BTreeSet<_> = FILES
        .keys()
        .map(|name| name.split('/').next().unwrap())
        .collect();
    let expected = [
        "ARCHITECTURE.md",
        "BENCHMARKS.md",
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "SECURITY.md",
        "SHA256SUMS",
        "THIRD-PARTY-LICENSES.txt",
        "bin",
        "charts",
        "crds",
        "digests.txt",
        "examples",
        "guests",
        "images",
        "manifests.yaml",
        "sbom.cdx.json",
        "wit",
    ];
    assert_eq!(at_top.into_iter().collect::<Vec<_>>(), expected);
    for name in [
        format!("charts/ipu-operator-{VERSION}.tgz"),
        "charts/index.yaml".to_owned(),
        "charts/ipu-operator/docs/release.md".to_owned(),
        "crds/ipujobs.graphcore.ai.yaml".to_owned(),
        "examples/01-single-worker.yaml".to_owned(),
    ] {
        assert!(FILES.contains_key(&name), "{name}");
    }
    assert_eq!(FILES[&format!("images/ipu-operator-{VERSION}.tar")], IMAGE);
    assert_eq!(FILES[manifests::NAME], MANIFESTS);
    for architecture in ["amd64", "arm64"] {
        assert_eq!(
            FILES[&format!("bin/linux-{architecture}/kubectl-ipu")],
            PLUGIN
        );
    }
}

#[test]
fn its_digests_are_those_of_image_chart_and_guests() {
    let text = String::from_utf8(FILES["digests.txt"].clone()).unwrap();
    let lines: Vec<_> = text
        .lines()
        .map(|line| line.split_once("  ").unwrap())
        .collect();
    assert_eq!(lines.len(), 2 + GUESTS.len());
    let (image, chart) = (lines[0], lines[1]);
    assert_eq!(image.0, format!("sha256:{}", sha256_of(IMAGE)));
    assert_eq!(image.1, format!("ipu-operator:{VERSION}"));
    assert_eq!(chart.1, format!("charts/ipu-operator:{VERSION}"));
    let manifest = json(&format!("charts/oci/blobs/{}", chart.0.replace(':', "/")));
    let packed = &FILES[&format!("charts/{}", chart::file(VERSION))];
    let layer = &manifest["layers"][0];
    assert_eq!(layer["digest"], digest_of(packed).to_string());
    assert_eq!(layer["size"], packed.len());
}

#[test]
fn it_is_the_same_each_time() {
    let pack = |files| archive::tar_gz(files, "ipu-operator/", TIME).unwrap();
    let again = files();
    let differ = FILES
        .iter()
        .filter(|(name, content)| again.get(*name) != Some(content));
    assert_eq!(
        differ.map(|(name, _)| name).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
    assert_eq!(pack(&FILES), pack(&again));
}

#[test]
fn its_checksums_are_those_of_all_other_files() {
    let mut files = FILES.clone();
    let sums = files.remove(sums::NAME).unwrap();
    assert_eq!(
        String::from_utf8(sums::list(&files)),
        String::from_utf8(sums)
    );
    assert!(files.len() > 50, "{}", files.len());
}

#[test]
fn its_folder_of_charts_is_a_helm_repository() {
    let packed = &FILES[&format!("charts/{}", chart::file(VERSION))];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("chart.tgz");
    fs::write(&file, packed).unwrap();
    archive::unpack(&file, dir.path()).unwrap();
    let mut unpacked = Files::new();
    archive::add(&mut unpacked, &dir.path().join("ipu-operator"), "").unwrap();
    assert!(unpacked.contains_key("/values.schema.json"));
    assert!(unpacked.contains_key("/.helmignore"));
    for folder in ["/tests/", "/docs/"] {
        assert!(!unpacked.keys().any(|name| name.starts_with(folder)));
    }
    for (name, content) in &unpacked {
        let beside = FILES.get(&format!("charts/ipu-operator{name}"));
        assert_eq!(beside, Some(content), "{name}");
    }

    let index = String::from_utf8(FILES["charts/index.yaml"].clone()).unwrap();
    let index: Value = serde_saphyr::from_str(&index).unwrap();
    let entry = &index["entries"]["ipu-operator"][0];
    assert_eq!(entry["digest"], sha256_of(packed));
    assert_eq!(entry["urls"][0], chart::file(VERSION));
    assert_eq!(entry["version"], VERSION);
    assert_eq!(entry["appVersion"], VERSION);
    assert_eq!(entry["kubeVersion"], ">=1.30.0-0");
    assert_eq!(index["generated"], "2026-01-01T00:00:00Z");
}

#[test]
fn krew_finds_the_plugin_of_each_platform_in_it() {
    let manifest = krew::manifest(&FILES, &[AMD64, ARM64], &sha256_of(IMAGE)).unwrap();
    let manifest: Value = serde_saphyr::from_str(&String::from_utf8(manifest).unwrap()).unwrap();
    assert_eq!(manifest["metadata"]["name"], "ipu");
    // The repository has no public address yet.
    assert_eq!(manifest["spec"].get("homepage"), None);
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    let folder = format!("{}/", package::name(VERSION));
    for platform in platforms {
        assert_eq!(platform["bin"], dist::PLUGIN);
        for file in platform["files"].as_array().unwrap() {
            let from = file["from"].as_str().unwrap();
            let inside = from.strip_prefix(&folder).unwrap();
            assert!(FILES.contains_key(inside), "{from}");
        }
    }
}

#[test]
fn its_guests_are_artefacts_that_the_operator_takes() {
    let layout = json("guests/index.json");
    let manifests = layout["manifests"].as_array().unwrap();
    assert_eq!(manifests.len(), GUESTS.len());
    let blob = |digest: &str| &FILES[&format!("guests/blobs/{}", digest.replace(':', "/"))];
    for (entry, guest) in manifests.iter().zip(GUESTS) {
        let name = &entry["annotations"]["org.opencontainers.image.ref.name"];
        assert_eq!(name, guest.name);
        let manifest = blob(entry["digest"].as_str().unwrap());
        assert_eq!(entry["digest"], digest_of(manifest).as_str());
        assert_eq!(entry["size"], manifest.len());
        let component = component_of(manifest).unwrap();
        let built = guests::checkout().join(format!("dist/guests/{}.wasm", guest.name));
        assert_eq!(*blob(&component.digest), fs::read(built).unwrap());
        let manifest: Value = serde_json::from_slice(manifest).unwrap();
        let config = manifest["config"]["digest"].as_str().unwrap();
        assert_eq!(digest_of(blob(config)).as_str(), config);
    }
}

#[test]
fn links_in_its_documents_lead_to_its_files() {
    let mut seen = 0;
    for (name, content) in FILES.iter() {
        let is_document = Path::new(name).starts_with("charts/ipu-operator")
            && Path::new(name).extension().is_some_and(|of| of == "md");
        if !is_document {
            continue;
        }
        let text = String::from_utf8(content.clone()).unwrap();
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains(':')) {
            let target = resolved(Path::new(name), Path::new(link));
            let is_there = FILES
                .keys()
                .any(|file| Path::new(file).starts_with(&target));
            assert!(is_there, "{name} links to {link}");
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen} links");
}

/// The target of a link in a file.
fn resolved(file: &Path, link: &Path) -> PathBuf {
    let mut path = file.parent().unwrap().to_owned();
    for part in link.components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{} leaves the package", link.display()),
            Component::Normal(name) => path.push(name),
            other => panic!("{other:?} in {}", link.display()),
        }
    }
    path
}

#[test]
fn make_compiles_with_the_flags_of_the_builds_side_by_side() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    for line in [
        format!("\nexport CARGO_ENCODED_RUSTFLAGS := {}\n", cargo::STATIC),
        format!("\nexport CARGO_BUILD_TARGET := {}\n", AMD64.target),
    ] {
        assert!(makefile.contains(&line), "{line:?}");
    }
}

#[test]
fn only_a_release_contains_no_path_of_this_machine() {
    let flags = dist::flags(&repository());
    let flags = flags.to_str().unwrap();
    let remapped = format!(
        "--remap-path-prefix={}=/ipu-operator",
        repository().display()
    );
    assert!(flags.starts_with(cargo::STATIC), "{flags}");
    assert!(flags.ends_with(&remapped), "{flags}");
}
