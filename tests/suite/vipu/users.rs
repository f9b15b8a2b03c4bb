//! A V-IPU user that may not see the partitions of another user.

use std::fs;

use vipu_client::{AuthFiles, AuthOptions, Deadlines, Lookup, VipuClient};
use vipu_simulator::codes::CodeName;
use vipu_simulator::{Options, Simulator};

use super::partition;

/// A client with the credentials that these options name.
async fn client_with(simulator: &Simulator, options: &AuthOptions) -> VipuClient {
    let controller = simulator.controller("pod1");
    let access = AuthFiles::open(options.clone()).await.unwrap();
    VipuClient::with_auth(&controller, Deadlines::default(), access.subscribe()).unwrap()
}

/// A list shows only what its caller may see. If a partition of another user is missing from it,
/// the partition may still exist.
#[tokio::test]
async fn a_partition_of_another_user_never_counts_as_absent() {
    let simulator = Simulator::start(Options::quick("pod1", 16)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let name_user = |user: &str| fs::write(folder.path().join("user-id"), user).unwrap();
    name_user("first");
    let options = AuthOptions {
        vipu_credentials_dir: Some(folder.path().to_owned()),
        ..AuthOptions::default()
    };
    let first = client_with(&simulator, &options).await;
    first.create(&partition("p-1", 4)).await.unwrap();
    let account = first.account();
    name_user("second");
    let second = client_with(&simulator, &options).await;
    assert_ne!(second.account(), account);
    let asked = async |hides: Option<CodeName>, id: &str| {
        simulator.server.with(|world, _| world.users.hides = hides);
        let lookup = second.lookup_as(id, account.as_deref()).await;
        lookup.map_err(|error| (error.is_denial(), error.reason()))
    };
    assert!(matches!(asked(None, "p-1").await, Ok(Lookup::Present(_))));
    for code in [CodeName::PermissionDenied, CodeName::Unauthenticated] {
        let (is_denial, reason) = asked(Some(code), "p-1").await.unwrap_err();
        assert!(is_denial && reason.contains("it denies the operator GetPartitionStatus"));
        let own = second.lookup("p-1").await.unwrap_err();
        assert!(own.is_denial(), "for every requester: {own}");
    }
    // An ambiguous code, and a list that does not show it.
    for code in [
        CodeName::Unknown,
        CodeName::InvalidArgument,
        CodeName::Internal,
    ] {
        let (is_denial, reason) = asked(Some(code), "p-1").await.unwrap_err();
        assert!(is_denial, "{code:?}");
        assert!(
            reason.contains("requested under another V-IPU user id"),
            "{reason}"
        );
        let own = second.lookup("p-1").await.unwrap();
        assert_eq!(own, Lookup::Absent, "the list of its own user decides");
    }
    // A server may use the same code for a hidden partition and for a missing one.
    simulator
        .server
        .with(|world, _| world.codes.unknown = CodeName::NotFound);
    for (hides, id) in [
        (CodeName::NotFound, "p-1"),
        (CodeName::PermissionDenied, "p-9"),
    ] {
        let (is_denial, reason) = asked(Some(hides), id).await.unwrap_err();
        assert!(is_denial, "{reason}");
        assert_eq!(second.lookup(id).await.unwrap(), Lookup::Absent, "its own");
    }
    // A partition that it has seen is not hidden from it later.
    assert!(matches!(asked(None, "p-1").await, Ok(Lookup::Present(_))));
    second.remove("p-1", false).await.unwrap();
    assert_eq!(second.lookup("p-1").await.unwrap(), Lookup::Absent);
}
