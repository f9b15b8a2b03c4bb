//! Every limit has a guest that violates it, and the type of the error names the limit.

use std::time::{Duration, Instant};

use ipu_api::ipupolicy::Hook;
use ipu_guest_host::model::built_in_file;
use ipu_guest_host::{BUILT_IN, GuestError, GuestHost, Limits, LoadError, ModuleConfig};
use serde_json::{Value, json};
use tests::guests::hostile;

use super::{create, open, options};

/// An object large enough for the hostile guests.
fn large() -> Value {
    json!({ "spec": "x".repeat(8192) })
}

async fn guest(body: &str, limits: Limits) -> GuestHost {
    serving(Hook::Validation, hostile::validation(body), limits).await
}

/// Loads the component instead of the built-in one.
async fn serving(hook: Hook, component: Vec<u8>, limits: Limits) -> GuestHost {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(built_in_file(hook)), component).unwrap();
    let mut options = options(&[hook]);
    options.guests_dir = folder.path().to_owned();
    options.limits = limits;
    open(options).await
}

/// A guest that loops on large objects, with one permit and a short wait for it.
async fn one_at_a_time() -> GuestHost {
    let limits = Limits {
        concurrent: 1,
        queue: Duration::from_millis(20),
        ..Limits::default()
    };
    guest("(loop (br 0))", limits).await
}

/// Calls the guest, which must fail without an effect on others: the next call is answered.
async fn failure(body: &str) -> GuestError {
    let policies = guest(body, Limits::default()).await;
    let error = policies
        .validate(&BUILT_IN, &create(), &large(), None)
        .await
        .unwrap_err();
    let next = policies
        .validate(&BUILT_IN, &create(), &json!({}), None)
        .await
        .unwrap();
    assert_eq!(next.answer.violations, []);
    error
}

/// Whether a call was ended for its time: by its own limit, or on a busy machine by the clock.
fn is_ended(error: &GuestError) -> bool {
    matches!(error, GuestError::Deadline(_) | GuestError::Starved { .. })
}

#[tokio::test]
async fn an_endless_loop_ends_at_the_deadline() {
    let limits = Limits {
        deadline: Duration::from_millis(50),
        ..Limits::default()
    };
    let policies = guest("(loop (br 0))", limits).await;
    let begin = Instant::now();
    let error = policies
        .validate(&BUILT_IN, &create(), &large(), None)
        .await
        .unwrap_err();
    assert!(is_ended(&error), "{error:?}");
    assert!(begin.elapsed() >= limits.deadline);
}

#[tokio::test]
async fn async_threads_go_on_while_a_guest_loops() {
    let policies = guest("(loop (br 0))", Limits::default()).await;
    let looping = tokio::spawn({
        let policies = policies.clone();
        async move {
            policies
                .validate(&BUILT_IN, &create(), &large(), None)
                .await
        }
    });
    let mut answered = 0;
    while !looping.is_finished() {
        policies
            .validate(&BUILT_IN, &create(), &json!({}), None)
            .await
            .unwrap();
        answered += 1;
        tokio::task::yield_now().await;
    }
    assert!(
        answered > 10,
        "only {answered} calls were answered meanwhile"
    );
}

#[tokio::test]
async fn a_call_waits_only_briefly_for_a_permit() {
    let policies = one_at_a_time().await;
    let (object, admission) = (large(), create());
    let (first, second) = tokio::join!(
        policies.validate(&BUILT_IN, &admission, &object, None),
        policies.validate(&BUILT_IN, &admission, &object, None)
    );
    assert!(first.as_ref().is_err_and(is_ended), "{first:?}");
    assert!(matches!(second, Err(GuestError::Busy { .. })), "{second:?}");
}

#[tokio::test]
async fn an_abandoned_call_keeps_its_permit() {
    let policies = one_at_a_time().await;
    let (object, admission) = (large(), create());
    {
        let mut given_up = std::pin::pin!(policies.validate(&BUILT_IN, &admission, &object, None));
        assert!(futures::poll!(&mut given_up).is_pending());
    }
    let next = policies
        .validate(&BUILT_IN, &create(), &json!({}), None)
        .await;
    assert!(matches!(next, Err(GuestError::Busy { .. })), "{next:?}");
}

#[tokio::test]
async fn a_memory_bomb_meets_the_memory_limit() {
    let error = failure("(loop (drop (memory.grow (i32.const 16))) (br 0))").await;
    assert!(matches!(error, GuestError::Memory(_)), "{error:?}");
}

#[tokio::test]
async fn a_table_that_grows_meets_the_limit_of_tables() {
    let error = failure("(loop (drop (table.grow $table (ref.null func) (i32.const 512))) (br 0))");
    let error = error.await;
    let GuestError::Memory(over) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(over.unit, "elements of a table");
}

#[tokio::test]
async fn an_endlessly_nested_object_is_refused() {
    let body = "(memory.fill (i32.const 4096) (i32.const 91) (i32.const 40000))
        (memory.fill (i32.const 44096) (i32.const 93) (i32.const 40000))
        (return (call $answer (i32.const 4096) (i32.const 80000)))";
    let component = hostile::defaulting(body);
    let policies = serving(Hook::Defaulting, component, Limits::default()).await;
    let (admission, object) = (create(), large());
    let error = policies.default_object(&BUILT_IN, &admission, &object, None);
    let error = error.await.unwrap_err();
    assert!(matches!(error, GuestError::BadAnswer(_)), "{error:?}");
    let small = json!({});
    let next = policies.default_object(&BUILT_IN, &admission, &small, None);
    let next = next.await.unwrap().answer.defaulted();
    assert_eq!(next.unwrap().object, small);
}

/// 3.5 MiB of text, which take about 350 MiB as a tree.
const OBJECTS: u32 = 1 << 19;

#[tokio::test]
async fn an_object_that_would_fill_the_memory_is_refused() {
    let component = hostile::defaulting(&hostile::many_objects(OBJECTS));
    let policies = serving(Hook::Defaulting, component, Limits::default()).await;
    let (admission, object) = (create(), large());
    let error = policies.default_object(&BUILT_IN, &admission, &object, None);
    let error = error.await.unwrap_err();
    assert!(matches!(error, GuestError::BadAnswer(_)), "{error:?}");
    assert!(
        error.to_string().contains("27262976 bytes of memory"),
        "{error}"
    );
    let small = json!({});
    let next = policies.default_object(&BUILT_IN, &admission, &small, None);
    let next = next.await.unwrap().answer.defaulted();
    assert_eq!(next.unwrap().object, small);
}

#[tokio::test]
async fn a_module_with_such_answers_fails_its_check() {
    let policies = open(options(&[Hook::Defaulting])).await;
    let body = hostile::always(&hostile::many_objects(OBJECTS));
    let config = ModuleConfig {
        settings: "{}".to_owned(),
        ..ModuleConfig::default()
    };
    let prepared = policies.prepare(Hook::Defaulting, hostile::defaulting(&body), config);
    let error = prepared.await.map(drop).unwrap_err();
    let LoadError::Test(why) = &error else {
        panic!("{error:?}");
    };
    assert!(why.to_string().contains("so many members"), "{why}");
}

#[tokio::test]
async fn traps_are_reported_as_traps() {
    for body in [
        "unreachable",
        "(return (call $recurse (i32.const 0)))",
        "(drop (i32.load (i32.const -4)))",
        "(drop (i32.div_u (i32.const 1) (i32.const 0)))",
    ] {
        let error = failure(body).await;
        assert!(matches!(error, GuestError::Trap(_)), "{body}: {error:?}");
    }
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused() {
    let error = failure(&hostile::warning(6 << 20)).await;
    assert!(
        matches!(error, GuestError::OutputTooLarge { .. }),
        "{error:?}"
    );
    let error = failure(&hostile::warning(24 << 20)).await;
    assert!(matches!(error, GuestError::Call(_)), "{error:?}");
}

#[tokio::test]
async fn an_unreadable_answer_is_refused() {
    let no_text = format!(
        "(i32.store (i32.const 65536) (i32.const -1)) {}",
        hostile::warning(4)
    );
    for body in [
        &no_text,
        "(return (i32.const -4))",
        "(i32.store (i32.const 48) (i32.const 268435455)) (return (i32.const 32))",
    ] {
        let error = failure(body).await;
        assert!(matches!(error, GuestError::Call(_)), "{body}: {error:?}");
    }
}

#[tokio::test]
async fn a_chatty_guest_is_cut_short_and_answers() {
    let body = "(local.set 0 (i32.const 0))
        (loop
          (call $log (i32.const 0) (i32.const 0) (i32.const 65536) (i32.const 0) (i32.const 65536))
          (local.set 0 (i32.add (local.get 0) (i32.const 1)))
          (br_if 0 (i32.lt_u (local.get 0) (i32.const 100))))";
    let policies = guest(body, Limits::default()).await;
    let served = policies
        .validate(&BUILT_IN, &create(), &large(), None)
        .await
        .unwrap();
    assert_eq!(served.answer.violations, []);
}
