//! Every kind of failed call, the client's result, and the actual state.

use cluster::wait::eventually;
use tonic::Code;
use vipu_client::model::{OperationState, ReadyState};
use vipu_client::{Deadlines, Lookup, VipuClient, VipuError};
use vipu_simulator::Simulator;
use vipu_simulator::codes::{CodeName, Codes};
use vipu_simulator::faults::{Down, Fail, Lie, LostReply, Method, Order};

use super::{client, hasty_client, partition, pod1};

fn times(simulator: &Simulator, method: Method) -> usize {
    let calls = simulator.server.calls(0);
    calls.iter().filter(|call| call.method == method).count()
}

async fn is_active(client: &VipuClient, id: &str) -> bool {
    match client.lookup(id).await.unwrap() {
        Lookup::Absent => false,
        Lookup::Present(state) => {
            assert_eq!(state.ready_state, ReadyState::Active);
            true
        }
    }
}

/// With every code of a refusal, the client finds the actual state and sends nothing twice.
#[tokio::test]
async fn every_code_leads_to_the_same_actual_state() {
    let simulator = pod1().await;
    let client = client(&simulator);
    // Every code that is an error, by number. For some of them, the outcome of the call is unknown.
    for number in 1..=16 {
        let name: CodeName = serde_json::from_str(&format!("{:?}", wire_name(number))).unwrap();
        let before = times(&simulator, Method::CreatePartition);
        simulator.server.order(Order {
            times: Some(1),
            fail: Some(Fail {
                code: name,
                message: "no".to_owned(),
            }),
            ..Order::on(Method::CreatePartition)
        });
        let id = format!("p-{number}");
        let error = client.create(&partition(&id, 1)).await.unwrap_err();
        match error {
            VipuError::Refused { code, message, .. } => {
                assert_eq!(code, Code::from_i32(number));
                assert_eq!(message, "no");
            }
            VipuError::Denied { code, .. } => {
                assert_eq!(code, Code::from_i32(number));
                assert!([7, 16].contains(&number), "{name:?}");
            }
            VipuError::OutcomeUnknown { source, .. } => {
                assert_eq!(source.code(), Code::from_i32(number));
                assert!([1, 2, 4, 10, 13, 14, 15].contains(&number), "{name:?}");
            }
            other => panic!("{name:?} was read as {other:?}"),
        }
        assert_eq!(
            client.lookup(&id).await.unwrap(),
            Lookup::Absent,
            "{name:?}"
        );
        assert_eq!(times(&simulator, Method::CreatePartition), before + 1);
    }
}

/// The code for "there is no such partition" is not published, so the result must not depend on it.
#[tokio::test]
async fn a_missing_partition_is_absent_with_every_code() {
    let simulator = pod1().await;
    let client = client(&simulator);
    for unknown in [
        CodeName::NotFound,
        CodeName::Unknown,
        CodeName::Internal,
        CodeName::InvalidArgument,
        CodeName::Unavailable,
    ] {
        simulator.server.with(|world, _| {
            world.codes = Codes {
                unknown,
                ..Codes::default()
            };
        });
        assert_eq!(client.lookup("p-1").await.unwrap(), Lookup::Absent);
    }
}

#[tokio::test]
async fn a_partition_whose_reply_was_cut_off_is_found() {
    let simulator = pod1().await;
    let client = client(&simulator);
    simulator.server.order(Order {
        times: Some(1),
        lose_reply: Some(LostReply::Cut),
        ..Order::on(Method::CreatePartition)
    });
    let error = client.create(&partition("p-1", 4)).await.unwrap_err();
    assert!(
        matches!(error, VipuError::OutcomeUnknown { .. }),
        "{error:?}"
    );
    assert!(is_active(&client, "p-1").await);
    assert_eq!(times(&simulator, Method::CreatePartition), 1);
    let calls = simulator.server.calls(0);
    assert_eq!(calls[0].outcome.as_deref(), Some("lost"));
}

#[tokio::test]
async fn a_reply_that_never_comes_ends_at_the_deadline_and_the_client_goes_on() {
    let simulator = pod1().await;
    let client = hasty_client(&simulator);
    for (method, number) in [
        (Method::CreatePartition, 1),
        (Method::ResetPartition, 2),
        (Method::RemovePartition, 3),
    ] {
        simulator.server.order(Order {
            times: Some(1),
            lose_reply: Some(LostReply::Hang),
            ..Order::on(method)
        });
        let result = match number {
            1 => client.create(&partition("p-1", 4)).await,
            2 => client.reset("p-1", false).await,
            _ => client.remove("p-1", false).await,
        };
        let error = result.unwrap_err();
        assert!(
            matches!(error, VipuError::OutcomeUnknown { .. }),
            "{error:?}"
        );
        assert!(error.reason().contains("no answer within"), "{error:?}");
        assert_eq!(is_active(&client, "p-1").await, number != 3);
        assert_eq!(times(&simulator, method), 1);
    }
}

/// The deadline passes during the work: the partition is created late, and the client sees it.
#[tokio::test]
async fn a_create_that_exceeds_its_deadline_still_creates_the_partition() {
    let simulator = pod1().await;
    simulator
        .server
        .with(|world, _| world.pod.timings.forming_ms = 1_000);
    let hasty = hasty_client(&simulator);
    let error = hasty.create(&partition("p-1", 4)).await.unwrap_err();
    assert!(
        matches!(error, VipuError::OutcomeUnknown { .. }),
        "{error:?}"
    );
    let client = client(&simulator);
    eventually("the partition is active", async || {
        match client.lookup("p-1").await.unwrap() {
            Lookup::Present(state) if state.ready_state == ReadyState::Active => Ok(()),
            Lookup::Present(state) => {
                assert_eq!(state.operation_state, OperationState::Creating);
                Err(format!("{state:?}"))
            }
            Lookup::Absent => panic!("the partition was abandoned"),
        }
    })
    .await;
    assert_eq!(
        simulator.server.calls(0)[0].outcome.as_deref(),
        Some("left")
    );
}

#[tokio::test]
async fn a_server_that_is_down_is_unreachable_and_nothing_was_sent() {
    let simulator = pod1().await;
    let client = client(&simulator);
    client.create(&partition("p-1", 4)).await.unwrap();
    let down = simulator.server.order(Order {
        down: Some(Down::Refuse),
        ..Order::default()
    });
    // The existing connection is closed a moment after the order.
    let error = eventually("the connection is cut", async || {
        match client.create(&partition("p-2", 4)).await.unwrap_err() {
            unknown @ VipuError::OutcomeUnknown { .. } => Err(unknown),
            other => Ok(other),
        }
    })
    .await;
    assert!(matches!(error, VipuError::Unreachable(_)), "{error:?}");
    assert!(error.reason().contains("refused"), "{}", error.reason());
    let lookup = client.lookup("p-1").await.unwrap_err();
    assert!(matches!(lookup, VipuError::Unreachable(_)), "{lookup:?}");

    simulator.server.with(|world, _| world.orders.cancel(down));
    let back = eventually("the server answers again", async || client.list().await).await;
    assert_eq!(
        back.len(),
        1,
        "a partition outlives the outage of its server"
    );
}

#[tokio::test]
async fn a_server_that_drops_connections_gives_no_answer() {
    let simulator = pod1().await;
    let client = hasty_client(&simulator);
    simulator.server.order(Order {
        down: Some(Down::Drop),
        ..Order::default()
    });
    assert!(client.create(&partition("p-1", 4)).await.is_err());
    assert!(client.lookup("p-1").await.is_err());
    assert_eq!(times(&simulator, Method::CreatePartition), 0);
}

#[tokio::test]
async fn reads_are_tried_again_while_a_server_is_unavailable_and_changes_are_not() {
    let simulator = pod1().await;
    let client = client(&simulator);
    let unavailable = |method, times| {
        simulator.server.order(Order {
            times: Some(times),
            fail: Some(Fail {
                code: CodeName::Unavailable,
                message: "starting".to_owned(),
            }),
            ..Order::on(method)
        });
    };
    unavailable(Method::ListPartitions, 2);
    assert!(client.list().await.unwrap().is_empty());
    assert_eq!(times(&simulator, Method::ListPartitions), 3);

    unavailable(Method::RemovePartition, 1);
    client.create(&partition("p-1", 4)).await.unwrap();
    client.remove("p-1", false).await.unwrap_err();
    assert_eq!(times(&simulator, Method::RemovePartition), 1);
    assert!(is_active(&client, "p-1").await);

    // A read that is refused for another reason is not repeated.
    client.status("p-2").await.unwrap_err();
    assert_eq!(times(&simulator, Method::GetPartitionStatus), 2);
}

#[tokio::test]
async fn a_full_pod_and_a_pod_in_pieces_refuse() {
    let simulator = pod1().await;
    let client = client(&simulator);
    for number in 0..4 {
        let id = format!("p-{number}");
        client.create(&partition(&id, 4)).await.unwrap();
    }
    client.remove("p-0", false).await.unwrap();
    client.remove("p-2", false).await.unwrap();
    // Eight IPUs are free, in two pieces. Without their places, the estimate is 8, but the server
    // refuses.
    assert_eq!(client.inventory().await.unwrap().largest_free(), 4);
    simulator.server.order(Order {
        lie: Some(Lie::NoPlaces),
        times: Some(1),
        ..Order::on(Method::ListPartitions)
    });
    assert_eq!(client.inventory().await.unwrap().largest_free(), 8);
    let error = client.create(&partition("p-4", 8)).await.unwrap_err();
    let VipuError::Refused { code, message, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(code, Code::ResourceExhausted);
    assert_eq!(
        message,
        "no 8 connected IPUs are free: the largest free block has 4"
    );
}

#[tokio::test]
async fn a_partition_that_breaks_while_it_forms_is_there_and_in_error() {
    let simulator = pod1().await;
    let client = client(&simulator);
    simulator.server.order(Order {
        times: Some(1),
        breaks: Some("link training failed".to_owned()),
        ..Order::on(Method::CreatePartition)
    });
    client.create(&partition("p-1", 4)).await.unwrap_err();
    let Lookup::Present(state) = client.lookup("p-1").await.unwrap() else {
        panic!("the broken partition is gone");
    };
    assert_eq!(state.ready_state, ReadyState::Error);
    assert_eq!(state.operation_state, OperationState::Failed);
    assert_eq!(state.errors, ["link training failed"]);
    client.remove("p-1", true).await.unwrap();
    assert_eq!(client.lookup("p-1").await.unwrap(), Lookup::Absent);
}

/// A port whose server does not use gRPC, and one without a listener.
#[tokio::test]
async fn a_server_that_is_not_a_v_ipu_controller_is_an_error_and_not_a_hang() {
    let simulator = pod1().await;
    let mut reference = simulator.controller("pod1");
    reference.port = simulator.control.port();
    let http = VipuClient::new(&reference, Deadlines::default()).unwrap();
    http.version().await.unwrap_err();
    reference.host = "no such host".to_owned();
    let error = VipuClient::new(&reference, Deadlines::default()).unwrap_err();
    assert!(matches!(error, VipuError::Address(_)), "{error:?}");
}

fn wire_name(number: i32) -> &'static str {
    [
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ][usize::try_from(number).unwrap() - 1]
}
