//! `policy record`: the requests of a running operator to its guests, for `policy replay`.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::wait::{Seen, eventually};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::record::{Outcome, Record};
use ipu_guest_host::{BUILT_IN, GuestHost};
use ipu_policies::call_recording::{self, Notice, SOCKET};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{Folder, assert_says};
use crate::wasm::{create, open, options};

/// An operator with a socket for records.
struct Live {
    policies: GuestHost,
    folder: Arc<Folder>,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Live {
    async fn start() -> Self {
        let folder = Arc::new(Folder::new());
        // The remains of a killed process do not prevent a new one.
        folder.write(SOCKET, "");
        let policies = open(options(&[Hook::Defaulting, Hook::Validation])).await;
        let stop = CancellationToken::new();
        let (active, path, ending) = (policies.clone(), folder.path(""), stop.clone());
        let served = async move { call_recording::serve(&active, &path, ending).await };
        let served = tokio::spawn(served);
        let live = Self {
            policies,
            folder,
            stop,
            served,
        };
        eventually("the operator to listen", async || {
            Seen::from(UnixStream::connect(live.socket()).map(drop))
        })
        .await;
        live
    }

    fn socket(&self) -> PathBuf {
        self.folder.path(SOCKET)
    }

    /// Sends one job through both guests, with a note of this number of bytes.
    async fn admit(&self, note: usize) {
        let (job, admission, policies) = (job(note), create(), &self.policies);
        let defaulted = policies.default_object(&BUILT_IN, &admission, &job, None);
        let defaulted = defaulted.await.unwrap().answer.defaulted().unwrap();
        let judged = policies.validate(&BUILT_IN, &admission, &defaulted.object, None);
        judged.await.unwrap();
    }

    /// Runs the command while jobs are created, and returns its output.
    async fn recorded(&self, options: &str) -> String {
        let (folder, line) = (
            self.folder.clone(),
            format!("record --socket ./{SOCKET} {options}"),
        );
        let command = spawn_blocking(move || folder.policy(&line));
        while !command.is_finished() {
            self.admit(0).await;
        }
        command.await.unwrap()
    }

    /// A listener that has received one call.
    async fn listening(&self) -> BufReader<UnixStream> {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut lines = BufReader::new(stream);
        eventually("a call to be reported", async || {
            self.admit(0).await;
            let active = lines.fill_buf().map(<[u8]>::to_vec);
            Seen::from(active.map_err(|error| error.to_string()))
        })
        .await;
        lines.get_ref().set_nonblocking(false).unwrap();
        // If an expected line never comes, the test fails.
        let patience = Some(Duration::from_secs(90));
        lines.get_ref().set_read_timeout(patience).unwrap();
        lines
    }
}

fn job(note: usize) -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "n", "annotations": {"note": "x".repeat(note)}},
        "spec": {
            "jobInstances": 1, "ipusPerJobInstance": "4", "workersPerJobInstance": "1",
            "workers": {"template": {"spec": {"containers": [{"name": "w", "image": "i",
                "env": [{"name": "TOKEN", "value": "a-long-secret"}]}]}}},
        },
    })
}

fn hooks(printed: &str) -> Vec<Hook> {
    let records = printed.lines().map(|line| Record::parse(line).unwrap().0);
    records
        .map(|record| {
            assert!(matches!(record.outcome, Outcome::Answer(_)), "{record:?}");
            record.hook
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_operators_requests_can_be_replayed() {
    let live = Live::start().await;
    let mode = std::fs::metadata(live.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let printed = live.recorded("--count 4").await;
    let of_all = hooks(&printed);
    assert_eq!(of_all.len(), 4);
    assert!(of_all.contains(&Hook::Defaulting) && of_all.contains(&Hook::Validation));
    assert!(!printed.contains("a-long-secret"), "{printed}");

    let printed = live.recorded("--hook validation --count 3").await;
    assert_eq!(hooks(&printed), [Hook::Validation; 3]);
    live.folder.write("requests.jsonl", printed);
    let replay = "replay ./validation.wasm ./validation.wasm ./requests.jsonl";
    let replayed = live.folder.policy(replay);
    assert_says(&replayed, &["3 same answers, 0 different answers"]);
    assert!(
        !replayed.contains("differ from the recorded ones"),
        "{replayed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_ends_by_itself() {
    let live = Live::start().await;
    let printed = live.recorded("--bytes 2500").await;
    assert!(!printed.is_empty() && printed.len() <= 2500, "{printed}");
    assert!(!hooks(&printed).is_empty());
    assert_eq!(live.recorded("--seconds 0").await, "");
    assert_eq!(live.recorded("--digest sha256:77 --seconds 1").await, "");

    let mut listener = live.listening().await;
    live.stop.cancel();
    live.served.await.unwrap();
    let mut rest = String::new();
    while listener.read_line(&mut rest).unwrap() > 0 {}
    assert!(!live.folder.path(SOCKET).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_learns_the_number_of_omitted_records_and_delays_nothing() {
    const REQUESTS: usize = 40;
    let live = Live::start().await;
    let mut slow = live.listening().await;
    for _ in 0..REQUESTS {
        live.admit(256 << 10).await;
    }
    let mut line = String::new();
    // Each request calls two guests, and at most one notice is between two records.
    let missed = (0..4 * REQUESTS).find_map(|_| {
        line.clear();
        assert!(slow.read_line(&mut line).unwrap() > 0, "a line follows");
        match serde_json::from_str(&line) {
            Ok(Notice::Missed(missed)) => Some(missed),
            _ => None,
        }
    });
    assert!(missed.is_some_and(|missed| missed > 0), "{missed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_concurrent_recordings_is_limited() {
    let live = Live::start().await;
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(live.listening().await);
    }
    let (_, error) = live.folder.run(&format!("record --socket ./{SOCKET}"));
    assert_says(&error.unwrap(), &["the limit of 4 recordings is reached"]);
    drop(others);
    eventually("another recording to be accepted", async || {
        let mut line = String::new();
        live.listening().await.read_line(&mut line).unwrap();
        let is_record = serde_json::from_str::<Notice>(&line).is_err();
        Seen::when(line, |_| is_record)
    })
    .await;
}
