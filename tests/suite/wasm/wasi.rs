//! The empty WASI: no call waits, no two calls differ, and nothing outside can be reached.

use std::path::Path;
use std::time::Duration;

use ipu_api::guest::admission::Verdict;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::model::built_in_file;
use ipu_guest_host::{BUILT_IN, CONTRACT, GuestError, Limits};
use serde_json::json;
use tests::guests::hostile::{self, MEMORY};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::{create, open, options};

/// The WASI interfaces that the guests import here, in the form of their packages.
const PACKAGES: [&str; 4] = [
    "package wasi:io@0.2.3;
     interface poll { resource pollable { block: func(); } }",
    "package wasi:clocks@0.2.3;
     interface monotonic-clock {
       use wasi:io/poll@0.2.3.{pollable};
       now: func() -> u64;
       subscribe-duration: func(when: u64) -> pollable;
     }",
    "package wasi:random@0.2.3;
     interface random {
       get-random-bytes: func(len: u64) -> list<u8>;
       get-random-u64: func() -> u64;
     }",
    "package wasi:sockets@0.2.3;
     interface network { resource network; }
     interface instance-network {
       use network.{network};
       instance-network: func() -> network;
     }",
];

const WORLD: &str = "package test:guest;
    world guest {
      import wasi:io/poll@0.2.3;
      import wasi:clocks/monotonic-clock@0.2.3;
      import wasi:random/random@0.2.3;
      import wasi:sockets/instance-network@0.2.3;
      include ipu:policy/validation@0.2.0;
    }";

/// A validation policy that runs `body` and then returns one warning: the eight bytes at 512.
fn guest(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          (import "wasi:io/poll@0.2.3" "[method]pollable.block" (func $block (param i32)))
          (import "wasi:clocks/monotonic-clock@0.2.3" "now" (func $now (result i64)))
          (import "wasi:clocks/monotonic-clock@0.2.3" "subscribe-duration"
            (func $sleep (param i64) (result i32)))
          (import "wasi:random/random@0.2.3" "get-random-u64" (func $random (result i64)))
          (import "wasi:random/random@0.2.3" "get-random-bytes"
            (func $bytes (param i64 i32)))
          (import "wasi:sockets/instance-network@0.2.3" "instance-network"
            (func $network (result i32)))
          {MEMORY}
          (data (i32.const 512) "whatever")
          (func (export "ipu:policy/validator@0.2.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/validator@0.2.0#validate") (param i32) (result i32)
            (if (i32.gt_u (i32.load offset=80 (local.get 0)) (i32.const 4096)) (then {body}))
            (i32.store (i32.const 44) (i32.const 56))
            (i32.store (i32.const 48) (i32.const 1))
            (i32.store (i32.const 56) (i32.const 512))
            (i32.store (i32.const 60) (i32.const 8))
            (i32.const 32)))"#
    );
    let mut core = hostile::component(&text);
    let mut resolve = Resolve::default();
    resolve
        .push_str(Path::new("policy.wit"), CONTRACT)
        .expect("the contract parses");
    for package in PACKAGES {
        resolve
            .push_str(Path::new("wasi.wit"), package)
            .expect("the packages parse");
    }
    let package = resolve
        .push_str(Path::new("guest.wit"), WORLD)
        .expect("the world parses");
    let world = resolve
        .select_world(&[package], Some("guest"))
        .expect("the world is there");
    embed_component_metadata(&mut core, &resolve, world, StringEncoding::UTF8)
        .expect("the world can be written into the module");
    let mut encoder = ComponentEncoder::default();
    let encoded = encoder.module(&core).and_then(ComponentEncoder::encode);
    encoded.expect("the module fits its world")
}

/// Returns the answer of the guest after its body, each time with a new host.
async fn answer(body: &str) -> Result<Verdict, GuestError> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(built_in_file(Hook::Validation));
    std::fs::write(file, guest(body)).expect("a file");
    let mut options = options(&[Hook::Validation]);
    options.guests_dir = folder.path().to_owned();
    // The limit is so long that the test notices a guest that sleeps for an hour, and so that a
    // slow machine is no problem.
    options.limits = Limits {
        deadline: Duration::from_mins(1),
        ..Limits::default()
    };
    let policies = open(options).await;
    let large = json!({ "spec": "x".repeat(8192) });
    let served = policies.validate(&BUILT_IN, &create(), &large, None).await;
    served.map(|served| served.answer)
}

#[tokio::test]
async fn a_sleep_of_a_century_ends_at_once() {
    let pause = "(call $block (call $sleep (i64.const 3155760000000000000)))
        (call $block (call $sleep (i64.const -1)))";
    let asked = tokio::time::timeout(Duration::from_mins(2), answer(pause));
    let verdict = asked.await.expect("it does not wait").unwrap();
    assert_eq!(verdict.warnings, ["whatever"]);
}

#[tokio::test]
async fn time_does_not_advance_and_random_numbers_are_the_same_in_every_call() {
    // Eight letters, one for the lower half of each byte.
    let letters = |number: &str| {
        format!(
            "(i64.store (i32.const 512) (i64.add (i64.const 0x6161616161616161)
               (i64.and (i64.const 0x0f0f0f0f0f0f0f0f) {number})))"
        )
    };
    let time = answer(&letters("(call $now)")).await.unwrap();
    assert_eq!(time.warnings, ["aaaaaaaa"]);
    let first = answer(&letters("(call $random)")).await.unwrap();
    let again = answer(&letters("(call $random)")).await.unwrap();
    assert_eq!(first, again);
    let second = letters("(block (result i64) (drop (call $random)) (call $random))");
    assert_ne!(first, answer(&second).await.unwrap());
}

#[tokio::test]
async fn there_is_no_network_and_random_bytes_are_limited() {
    let error = answer("(drop (call $network))").await.unwrap_err();
    let GuestError::UnsupportedWasi(what) = &error else {
        panic!("{error:?}");
    };
    let what = what.to_string();
    assert!(what.contains("instance-network#instance-network"), "{what}");
    let flood = "(call $bytes (i64.const 0x7fffffffffffffff) (i32.const 600))";
    let error = answer(flood).await.unwrap_err();
    assert!(matches!(error, GuestError::Memory(_)), "{error:?}");
}
