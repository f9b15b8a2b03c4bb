//! `ipu-operator support-bundle`: collects the data for a bug report, without secrets, in one
//! archive.

mod archive;
mod bundle;
mod metrics;
mod plan;
mod scrub;
mod shown;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use futures::AsyncReadExt;
use http::Request;
use ipu_api::dns1123::{is_label, is_subdomain};
use ipu_text::explain;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::time::timeout;

use self::bundle::{Bundle, Contents};
use self::plan::{Form, Read};

/// Time limit of one read.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum size of one answer, in bytes.
const LARGEST: u64 = 32 << 20;

/// Options of the command.
#[derive(Args, Clone, Debug)]
pub struct SupportOptions {
    /// Namespace of the release.
    #[arg(long, env = "IPU_OPERATOR_NAMESPACE", default_value = "ipu-operator")]
    pub namespace: String,
    /// Start of the names of the release's objects.
    #[arg(long, env = "IPU_OPERATOR_FULLNAME", default_value = "ipu-operator")]
    pub fullname: String,
    /// Name of the ConfigMap with the summary of partitions.
    #[arg(long, default_value = "ipu-partitions-tracker")]
    pub tracker: String,
    /// The file to write; - is the standard output.
    #[arg(long, default_value = "ipu-operator-support.tar.gz")]
    pub output: PathBuf,
    /// Most lines of one log, from its end.
    #[arg(long, default_value_t = 5000)]
    pub log_lines: u32,
    /// A token of an account that may `get /metrics`; without it there are no metrics in the
    /// bundle.
    #[arg(long, env = "IPU_OPERATOR_METRICS_TOKEN", hide_env_values = true)]
    pub metrics_token: Option<String>,
}

/// Failure to create a bundle.
#[derive(Debug, thiserror::Error)]
pub enum SupportError {
    /// A name cannot be one.
    #[error("--{option} {value} is not a valid name in Kubernetes; give the name of your release")]
    Name {
        /// The option.
        option: &'static str,
        /// The given value.
        value: String,
    },
    /// The archive cannot be written.
    #[error("failed to write {0}; it must not exist yet (--output names another)")]
    Write(PathBuf, #[source] io::Error),
}

/// Collects the bundle and writes it. The bundle lists each failed read. Returns a line for users.
pub async fn run(client: Client, options: &SupportOptions) -> Result<String, SupportError> {
    check_names(options)?;
    let failed = |source| SupportError::Write(options.output.clone(), source);
    // Before the reads, which can take minutes in a cluster with problems.
    let output = Output::create(options).map_err(failed)?;
    let contents = gather(client, options).await;
    let (files, missing) = (contents.files.len(), contents.missing);
    output.write(&contents).map_err(failed)?;
    let output = options.output.display();
    Ok(format!(
        "{output}: {files} files; {missing} reads failed, and errors.txt in the archive lists them. Review \
         the archive before you share it"
    ))
}

fn check_names(options: &SupportOptions) -> Result<(), SupportError> {
    let names = [
        (
            "namespace",
            &options.namespace,
            is_label(&options.namespace),
        ),
        ("fullname", &options.fullname, is_label(&options.fullname)),
        ("tracker", &options.tracker, is_subdomain(&options.tracker)),
    ];
    if let Some((option, value, _)) = names.into_iter().find(|(_, _, good)| !good) {
        let value = value.clone();
        return Err(SupportError::Name { option, value });
    }
    Ok(())
}

/// Reads everything, one after the other, to add little load to a cluster with problems.
async fn gather(client: Client, target: &SupportOptions) -> Contents {
    let mut bundle = Bundle::default();
    for one in plan::reads(target) {
        let answer = read(&client, &one).await;
        bundle.add(one, answer);
    }
    // The Pods are read again, in their unprocessed form.
    let pods = Read {
        file: "logs".to_owned(),
        path: plan::pods(target),
        form: Form::Objects,
    };
    match read(&client, &pods).await {
        Ok(answer) => {
            let pods: Value = serde_json::from_str(&answer).unwrap_or_default();
            for one in plan::logs(target, &pods) {
                let answer = read(&client, &one).await;
                bundle.add(one, answer);
            }
            for port in plan::metrics(&pods) {
                let token = target.metrics_token.as_deref();
                let answer = metrics::read(&client, &target.namespace, &port, token).await;
                bundle.add(port.read(), answer);
            }
        }
        Err(why) => bundle.add(pods, Err(why)),
    }
    bundle.finish(&Timestamp::now().to_string())
}

/// The answer, up to the size limit, or the error.
async fn read(client: &Client, read: &Read) -> Result<String, String> {
    let request = Request::get(&read.path).body(Vec::new());
    let request = request.map_err(|error| explain(&error))?;
    let answer = async {
        let stream = client.request_stream(request).await;
        let stream = stream.map_err(|error| explain(&error))?;
        let mut bytes = Vec::new();
        let mut stream = std::pin::pin!(stream.take(LARGEST));
        let end = stream.read_to_end(&mut bytes).await;
        end.map_err(|error| explain(&error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let late = |_| format!("no answer within {} s", PATIENCE.as_secs());
    timeout(PATIENCE, answer).await.map_err(late)?
}

/// Where the archive goes.
enum Output {
    StandardOutput,
    File(File),
}

impl Output {
    /// Creates the file, which must not exist yet.
    fn create(options: &SupportOptions) -> io::Result<Self> {
        if options.output.as_os_str() == "-" {
            return Ok(Self::StandardOutput);
        }
        let mut open = OpenOptions::new();
        open.write(true).create_new(true).mode(0o600);
        Ok(Self::File(open.open(&options.output)?))
    }

    fn write(self, contents: &Contents) -> io::Result<()> {
        let seconds = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        let archive = archive::packed(&contents.files, seconds)?;
        match self {
            Self::StandardOutput => {
                let mut out = io::stdout().lock();
                out.write_all(&archive)?;
                out.flush()
            }
            Self::File(mut file) => {
                file.write_all(&archive)?;
                file.sync_all()
            }
        }
    }
}
