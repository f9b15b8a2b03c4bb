//! Runs the page that publishes a guest: it is pushed, signed, installed in shadow mode, and
//! active.

use std::fs;

use ipu_api::ipupolicy::PolicyPhase;
use serde_json::{Value, json};
use tests::documents::PUBLISH_GUEST;
use tests::registry::{Access, PASSWORD};

use super::author::{Author, cosign};
use crate::policy::author_documents::{Shell, text};
use crate::policy::fixture::{Fixture, built_in};

/// The registry in the documents.
const HOST: &str = "registry.example.com";

/// The manifest of the page for this registry and this component, as the admin completes it. The
/// guest is another one, with settings of its own.
fn completed(manifest: &str, author: &Author, pushed: &str) -> String {
    let manifest = manifest.replace(HOST, &author.registry.host());
    let mut policy: Value = serde_saphyr::from_str(&manifest).unwrap();
    let component = pushed
        .lines()
        .find_map(|line| line.strip_prefix("component"));
    policy["spec"]["module"]["digest"] = json!(component.unwrap().trim());
    let oci = &mut policy["spec"]["module"]["oci"];
    super::without(oci, "pullSecret");
    let pem = fs::read_to_string(author.registry.ca()).unwrap();
    oci["certificateAuthorities"] = json!({ "pem": pem });
    policy["spec"]["settings"] = json!({"maxIpusPerJob": 4});
    policy.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_published_as_the_page_describes() {
    let fixture = Fixture::start().await;
    let author = Author::start(Access::Tls).await;
    let folder = author.registry.folder().to_owned();
    fs::write(
        folder.join("require-team.wasm"),
        built_in("validation.wasm"),
    )
    .unwrap();
    let kubeconfig = fixture.webhooks.kubeconfig();
    let host = author.registry.host();
    let ran = tokio::task::spawn_blocking(move || {
        let text = text(&PUBLISH_GUEST);
        let mut said = String::new();
        for block in PUBLISH_GUEST.blocks(&text) {
            if block.mark == "yaml" {
                let pushed = fs::read_to_string(folder.join("pushed.txt")).unwrap();
                let manifest = completed(block.commands, &author, &pushed);
                fs::write(folder.join("require-team.yaml"), manifest).unwrap();
                continue;
            }
            let commands = block.commands.replace(HOST, &host);
            let shell = Shell {
                folder: &folder,
                kubeconfig: &kubeconfig,
                programs: &[cosign()],
                variables: &[
                    ("COSIGN_PASSWORD", PASSWORD.into()),
                    ("SSL_CERT_FILE", author.registry.ca()),
                ],
            };
            // The webhooks of the test belong to the namespace `default`.
            said +=
                &shell.run(&commands.replace("--namespace ipu-operator", "--namespace default"));
        }
        said
    });
    let said = ran.await.unwrap();
    let parts = [
        "ipupolicy.graphcore.ai/require-team created",
        "condition met",
        "Shadow",
    ];
    for part in parts {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    fixture.once_in("require-team", PolicyPhase::Shadow).await;
}
