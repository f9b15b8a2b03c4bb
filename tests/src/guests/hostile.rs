//! Components that misbehave, written by hand, once they are loaded.

use ipu_operator::wasm::componentize;
use ipu_operator::wasm::model::Slot;

/// Memory, and the allocation in it that a host asks for.
pub const MEMORY: &str = r#"
  (memory (export "memory") 2)
  (global $next (mut i32) (i32.const 1024))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $at) (local.get 3)))
    (local.get $at))"#;

/// A validation policy that runs `body` where the object has over 4,096 bytes of JSON, and answers
/// well where it has less: the length stands at byte 80 of the request. The body leaves the address of the answer; memory is zero, so that
/// address 16 holds an empty one.
pub fn validation(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          (import "ipu:policy/log@0.2.0" "write" (func $log (param i32 i32 i32)))
          {MEMORY}
          (table $table 1 funcref)
          (func (export "ipu:policy/validator@0.2.0#configure") (param i32 i32) (result i32)
            (i32.const 16))
          (func $recurse (param i32) (result i32)
            (i32.add (call $recurse (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
          (func (export "ipu:policy/validator@0.2.0#validate")
            (param i32) (result i32)
            (if (i32.gt_u (i32.load offset=80 (local.get 0)) (i32.const 4096)) (then {body}))
            (i32.const 16)))"#
    );
    policy(&text, Slot::Validation)
}

/// A defaulting policy that runs `body` where the object has over 4,096 bytes of JSON, and answers it
/// as it is where it has less: address and length of it stand at bytes 76 and 80 of the request. The
/// answer `{}`, which takes all away from the object, stands at address 512 as a text of two bytes.
pub fn defaulting(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          {MEMORY}
          (data (i32.const 512) "{{}}")
          (func (export "ipu:policy/defaulter@0.2.0#configure") (param i32 i32) (result i32)
            (i32.const 16))
          (func $answer (param i32 i32) (result i32)
            (i32.store (i32.const 36) (local.get 0))
            (i32.store (i32.const 40) (local.get 1))
            (i32.const 32))
          (func (export "ipu:policy/defaulter@0.2.0#apply-defaults") (param i32) (result i32)
            (if (i32.gt_u (i32.load offset=80 (local.get 0)) (i32.const 4096)) (then {body}))
            (call $answer (i32.load offset=76 (local.get 0)) (i32.load offset=80 (local.get 0)))))"#
    );
    policy(&text, Slot::Defaulting)
}

/// The body of a defaulting policy that leaves nothing of the object.
pub const TAKE_ALL: &str = "(return (call $answer (i32.const 512) (i32.const 2)))";

/// The body of a defaulting policy that refuses the object.
pub const REFUSE: &str = "(i32.store (i32.const 32) (i32.const 1))
    (return (call $answer (i32.const 512) (i32.const 2)))";

/// A placement policy that chooses the controller `mars`, whatever there is: decision `try` (0) with
/// the four bytes at address 64 as the name.
pub fn placement() -> Vec<u8> {
    let text = format!(
        r#"(module
          {MEMORY}
          (data (i32.const 64) "mars")
          (data (i32.const 36) "\40\00\00\00\04\00\00\00")
          (func (export "ipu:policy/placer@0.2.0#configure") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/placer@0.2.0#place")
            (param i32) (result i32)
            (i32.const 32)))"#
    );
    policy(&text, Slot::Placement)
}

fn policy(text: &str, slot: Slot) -> Vec<u8> {
    componentize(&component(text), Some(slot)).expect("the module fits its world")
}

/// The body of an answer with one warning of `length` bytes of zero at address 65,536.
pub fn warning(length: u32) -> String {
    let pages = length / 65_536 + 1;
    format!(
        "(drop (memory.grow (i32.const {pages})))
         (i32.store (i32.const 40) (i32.const 48))
         (i32.store (i32.const 44) (i32.const 1))
         (i32.store (i32.const 48) (i32.const 65536))
         (i32.store (i32.const 52) (i32.const {length}))
         (return (i32.const 32))"
    )
}

/// A component or a module given as text.
///
/// # Panics
/// Where the text is none.
pub fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is WebAssembly")
}
