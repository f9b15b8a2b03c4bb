//! A policy author who builds policies, pushes them into a registry of their own and signs them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use clap::Parser;
use cluster::command;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use ipu_operator::cli::{Arguments, Task};
use release::guests;
use serde_json::{Value, json};
use tests::registry::{Access, PASSWORD, Registry, USER};

use crate::policy::fixture::of_registry;

/// A policy author with a registry and keys.
pub(super) struct Author {
    pub(super) registry: Registry,
    access: Access,
    cosign: PathBuf,
}

/// A pushed module.
#[derive(Debug)]
pub(super) struct Pushed {
    pub(super) reference: String,
    pub(super) component: String,
    pub(super) manifest: String,
    pub(super) printed: String,
}

impl Author {
    pub(super) async fn start(access: Access) -> Self {
        let registry = Registry::start(access).await.unwrap();
        let config = json!({"auths": {registry.host(): {"username": USER, "password": PASSWORD}}});
        let author = Self {
            cosign: tokio::task::spawn_blocking(cosign).await.unwrap(),
            registry,
            access,
        };
        fs::write(author.path("config.json"), config.to_string()).unwrap();
        author
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.registry.folder().join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Returns the options for the registry.
    fn options(&self) -> Vec<String> {
        let folder = self.registry.folder().display().to_string();
        match self.access {
            Access::Plain => vec!["--plain-http".to_owned()],
            Access::Tls | Access::TlsWithUser => {
                let folder = ["--docker-config".to_owned(), folder];
                let ca = ["--ca-file".to_owned(), self.text("ca.crt")];
                [folder, ca].concat()
            }
        }
    }

    /// Runs `ipu-operator policy`, and returns its output.
    pub(super) async fn policy(&self, words: &[&str]) -> Result<String, String> {
        let given = ["ipu-operator", "policy"].iter().chain(words);
        let mut given: Vec<String> = given.map(|word| (*word).to_owned()).collect();
        given.extend(self.options());
        let ran = tokio::task::spawn_blocking(move || {
            let Task::Policy(arguments) = Arguments::try_parse_from(given).unwrap().task else {
                return Err("it is about something else".to_owned());
            };
            let mut printed = Vec::new();
            let ran = ipu_authoring::run(arguments, &mut printed);
            ran.map_err(|error| format!("{:?}", anyhow::Error::from(error)))?;
            Ok(String::from_utf8(printed).unwrap())
        });
        ran.await.unwrap()
    }

    /// Pushes the built-in validation guest under a tag.
    pub(super) async fn push(&self, tag: &str) -> Pushed {
        let folder = tokio::task::spawn_blocking(guests::build).await.unwrap();
        let file = folder.unwrap().join("validation.wasm");
        let reference = format!("{}/team/policy:{tag}", self.registry.host());
        let push = ["push", file.to_str().unwrap(), &reference];
        let printed = self.policy(&push).await.unwrap();
        let word = |name: &str| {
            let line = printed.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        Pushed {
            component: word("component"),
            manifest: word("manifest"),
            reference,
            printed,
        }
    }

    /// Creates a pair of keys. Returns the public one.
    pub(super) fn key(&self, name: &str) -> String {
        let mut generate = Command::new(&self.cosign);
        let output = format!("--output-key-prefix={name}");
        generate
            .args(["generate-key-pair", &output])
            .env("COSIGN_PASSWORD", PASSWORD)
            .current_dir(self.registry.folder());
        command::run(&mut generate).unwrap();
        fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap()
    }

    /// Signs the pushed module, in the format of cosign 3 or in the older one.
    pub(super) fn sign(&self, pushed: &Pushed, key: &str, new_form: bool) {
        let (repository, _) = pushed.reference.rsplit_once(':').unwrap();
        let mut sign = Command::new(&self.cosign);
        sign.args([
            "sign",
            "--yes",
            "--tlog-upload=false",
            "--use-signing-config=false",
        ])
        .arg(format!("--new-bundle-format={new_form}"))
        .arg(format!("--key={}", self.text(&format!("{key}.key"))))
        .arg(format!("--registry-username={USER}"))
        .arg(format!("--registry-password={PASSWORD}"))
        .arg(format!("--registry-cacert={}", self.text("ca.crt")))
        .arg(format!("{repository}@{}", pushed.manifest))
        .env("COSIGN_PASSWORD", PASSWORD);
        command::run(&mut sign).unwrap();
    }

    /// Signs a file, as for a module in a ConfigMap. Returns the Sigstore bundle.
    pub(super) fn sign_file(&self, file: &[u8], key: &str) -> String {
        let (path, bundle) = (self.path("module.wasm"), self.path("module.wasm.sig"));
        fs::write(&path, file).unwrap();
        let mut sign = Command::new(&self.cosign);
        sign.args([
            "sign-blob",
            "--yes",
            "--tlog-upload=false",
            "--use-signing-config=false",
        ])
        .arg(format!("--key={}", self.text(&format!("{key}.key"))))
        .arg(format!("--bundle={}", bundle.display()))
        .arg(&path)
        .env("COSIGN_PASSWORD", PASSWORD);
        command::run(&mut sign).unwrap();
        fs::read_to_string(bundle).unwrap()
    }

    /// Returns the module of an IPUPolicy that loads it.
    pub(super) fn module(&self, pushed: &Pushed) -> Value {
        let mut oci = json!({"reference": pushed.reference});
        if self.access == Access::Plain {
            oci["plainHttp"] = json!(true);
        } else {
            let pem = fs::read_to_string(self.registry.ca()).unwrap();
            oci["certificateAuthorities"] = json!({ "pem": pem });
        }
        if self.access == Access::TlsWithUser {
            oci["pullSecret"] = json!({"name": "registry"});
        }
        let mut spec = of_registry(&pushed.component, oci);
        spec["settings"] = json!({"maxIpusPerJob": 4});
        spec
    }
}

/// The program with which authors sign.
pub(in crate::policy) fn cosign() -> PathBuf {
    let settings = Settings::from_env().unwrap();
    let tools = Tools::fetch_some(&settings, &Progress::start(), &["cosign"]).unwrap();
    tools.program("cosign").to_owned()
}
