//! Reads the output of `kubectl describe ipujob`, as the user of the job does.

use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use cluster::wait::{Seen, eventually};
use harness::demo::Kubectl;
use tests::described::{Described, Expected};

use crate::job_fixture::JobFixture;

/// Waits until `kubectl describe` of a job shows this and no warning. Returns the parts of the
/// output, and its text.
pub(crate) async fn once_described(
    fixture: &JobFixture,
    name: &str,
    expected: &Expected,
) -> (Described, String) {
    let settings = Settings::from_env().unwrap();
    let tools = Tools::fetch_some(&settings, &Progress::start(), &["kubernetes"]).unwrap();
    let kubectl = Kubectl {
        program: tools.program("kubectl").to_owned(),
        kubeconfig: fixture.kubeconfig.clone(),
    };
    let describe = [
        "describe",
        "ipujob",
        name,
        "--namespace",
        &fixture.namespace,
    ];
    eventually("kubectl describe to say what it should", async || {
        let text = kubectl.run(&describe).await.unwrap();
        let described = Described::parse(&text);
        let differences = described.differences(expected);
        if differences.is_empty() {
            Seen::Yes((described, text))
        } else {
            Seen::NotYet(format!("{}\n{text}", differences.join("; ")))
        }
    })
    .await
}
