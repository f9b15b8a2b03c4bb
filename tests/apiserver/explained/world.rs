//! Clusters in which a request waits, each prepared before the request.

use ipu_api::ipupartition::PartitionPhase;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::model::built_in_file;
use release::guests;
use serde_json::{Value, json};
use vipu_simulator::codes::CodeName;
use vipu_simulator::faults::{Down, Fail, Lie, Method, Order};

use super::fixture::Explained;

/// The preparation of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum World {
    /// Every IPU is used.
    Full,
    /// Half of the IPUs are free, in pairs.
    Fragmented,
    /// The same, and the V-IPU controller lists no places of IPUs.
    FragmentedWithoutPlaces,
    /// The only V-IPU controller is cordoned.
    Cordoned,
    /// The only V-IPU controller that is large enough is cordoned.
    LargeCordoned,
    /// The only V-IPU controller is being drained.
    Draining,
    /// The only V-IPU controller does not answer.
    Unreachable,
    /// The only V-IPU controller refuses to create partitions.
    Refusing,
    /// No node has the label of the V-IPU controller.
    WithoutNodes,
    /// The V-IPU controller whose nodes the Pods select is full, and the other one is free.
    OtherNodes,
    /// An earlier request has waited for the backfill limit.
    Reserved,
    /// Half of the IPUs are used.
    HalfFull,
    /// A policy gives the namespace no more IPUs.
    Quota,
    /// A policy gives its own reason.
    Policy,
}

impl World {
    /// Starts the operator in this cluster. The first V-IPU controller has 8 IPUs.
    pub(super) async fn start(self) -> Explained {
        let sizes: &[u32] = match self {
            Self::OtherNodes => &[8, 8],
            Self::LargeCordoned => &[8, 4],
            _ => &[8],
        };
        let mut explained = Explained::prepare(sizes).await;
        self.configure(&mut explained).await;
        explained.start().await;
        self.happen(&explained).await;
        explained
    }

    /// The admin's actions before the operator starts.
    async fn configure(self, explained: &mut Explained) {
        let fixture = &mut explained.fixture;
        match self {
            Self::WithoutNodes => fixture.list_labelled(&[(&fixture.pods[0], "far")]).await,
            Self::OtherNodes => {
                let [full, free] = [&fixture.pods[0], &fixture.pods[1]];
                let labelled = [(full, "here"), (free, "there")];
                fixture.list_labelled(&labelled).await;
            }
            Self::Reserved => fixture.backfill_limit = 1,
            Self::Quota => {
                let settings = json!({"quota": {"ipus": 4}});
                set_policy(explained, "namespace-quota", settings).await;
            }
            Self::Policy => set_policy(explained, "best-fit", json!({})).await,
            _ => {}
        }
    }

    async fn happen(self, explained: &Explained) {
        let fixture = &explained.fixture;
        let controller = &fixture.pods[0];
        match self {
            Self::Full | Self::OtherNodes | Self::Policy => use_up(explained, "other", 8).await,
            Self::HalfFull | Self::Quota => use_up(explained, "other", 4).await,
            Self::Fragmented => fragment(explained).await,
            Self::FragmentedWithoutPlaces => {
                controller.server.order(Order {
                    lie: Some(Lie::NoPlaces),
                    ..Order::on(Method::ListPartitions)
                });
                fragment(explained).await;
            }
            Self::Cordoned | Self::LargeCordoned => fixture.cordon(&[controller]).await,
            Self::Draining => fixture.drain(controller).await,
            Self::Unreachable => {
                controller.server.order(Order {
                    down: Some(Down::Refuse),
                    ..Order::default()
                });
            }
            Self::Refusing => {
                controller.server.order(Order {
                    fail: Some(Fail {
                        code: CodeName::ResourceExhausted,
                        message: "not today".to_owned(),
                    }),
                    ..Order::on(Method::CreatePartition)
                });
            }
            Self::Reserved => {
                use_up(explained, "other", 4).await;
                reserve(explained, 8).await;
            }
            Self::WithoutNodes => {}
        }
    }
}

/// Another owner gets a partition.
pub(super) async fn use_up(explained: &Explained, owner: &str, ipus: u32) {
    let fixture = &explained.fixture;
    let wanted = fixture.request(owner, ipus).await;
    fixture.once_in(&wanted, PartitionPhase::Ready).await;
}

/// Every second pair of IPUs of a V-IPU controller with 8 is used.
pub(super) async fn fragment(explained: &Explained) {
    let fixture = &explained.fixture;
    let mut pairs = Vec::new();
    for name in ["first", "second", "third", "fourth"] {
        let wanted = fixture.request(name, 2).await;
        pairs.push(fixture.once_in(&wanted, PartitionPhase::Ready).await);
    }
    for pair in [&pairs[0], &pairs[2]] {
        fixture.delete(pair).await;
        fixture.once_gone(pair).await;
    }
    let is_half_free = |ids: &[Vec<String>]| ids[0].len() == 2;
    fixture.once_ids("two pairs are free", is_half_free).await;
}

/// A large request waits until capacity is reserved for it.
pub(super) async fn reserve(explained: &Explained, ipus: u32) {
    explained.fixture.request("large", ipus).await;
    let asks = json!({"size": 8});
    let is_reserved = |answer: &Value| {
        let passed = answer["passedOver"].to_string();
        passed.contains("is reserved for default/large")
    };
    let what = "capacity is reserved";
    explained.reader.query(what, &asks, is_reserved).await;
}

/// An example policy decides on placement, with these settings.
pub(super) async fn set_policy(explained: &mut Explained, name: &str, settings: Value) {
    let built = tokio::task::spawn_blocking(|| guests::build_examples().unwrap());
    let module = built.await.unwrap().join(format!("{name}.wasm"));
    let folder = explained.folder().to_owned();
    std::fs::copy(module, folder.join(built_in_file(Hook::Placement))).unwrap();
    explained.fixture.policy = Some((folder, settings));
}
