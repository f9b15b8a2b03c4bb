//! Reads the output of `kubectl describe ipujob`, as the user of the job does.

use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use libtest_mimic::Failed;
use tests::described::{Described, Expected};

use crate::fixture::{Fixture, PATIENCE};

/// Waits until `kubectl describe` of a job of the default namespace shows this and no warning. If
/// an unexpected condition or a warning remains, the wait ends with the text that was read instead.
pub(crate) async fn once_described(
    fixture: &Fixture,
    name: &str,
    expected: &Expected,
) -> Result<Described, Failed> {
    let what = format!("kubectl describe ipujob {name} to say what it should");
    let described = until(what, PATIENCE, || async {
        let text = fixture.kubectl(&["describe", "ipujob", name]).await?;
        let described = Described::parse(&text);
        let differences = described.differences(expected);
        Ok::<_, KubectlError>(if differences.is_empty() {
            Seen::Yes(described)
        } else {
            Seen::NotYet(format!("{}\n{text}", differences.join("; ")))
        })
    });
    Ok(described.await?)
}
