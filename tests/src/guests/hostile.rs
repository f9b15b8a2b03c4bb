//! Guests that misbehave when they are called, written in WebAssembly text.

use ipu_api::ipupolicy::Hook;
use ipu_guest_host::componentize;

/// The memory, and the allocator that the host requires.
pub const MEMORY: &str = r#"
  (memory (export "memory") 2)
  (global $next (mut i32) (i32.const 1024))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
    (global.set $next (i32.add (local.get $at) (local.get 3)))
    (local.get $at))"#;

/// The text of a guest that fails: nine bytes at address 528.
const WORDS: &str = r#"(data (i32.const 528) "no prices")"#;

/// The body of a policy that reports a failure: an error (1) and its text. It fits every world.
pub const FAIL: &str = "(i32.store (i32.const 32) (i32.const 1))
    (i32.store (i32.const 36) (i32.const 528))
    (i32.store (i32.const 40) (i32.const 9))
    (return (i32.const 32))";

/// A validation policy that runs `body` for objects of more than 4,096 bytes of JSON, and accepts
/// all others. The length is at byte 80 of the request. The body returns the address of the answer.
/// Memory is zero, so address 16 contains an empty answer.
pub fn validation(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          (import "ipu:policy/logging@0.1.0" "log" (func $log (param i32 i32 i32 i32 i32)))
          {MEMORY}
          {WORDS}
          (table $table 1 funcref)
          (func (export "ipu:policy/validator@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func $recurse (param i32) (result i32)
            (i32.add (call $recurse (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
          (func (export "ipu:policy/validator@0.1.0#validate")
            (param i32) (result i32)
            (local $at i32) (local $left i32)
            (if (i32.gt_u (i32.load offset=80 (local.get 0)) (i32.const 4096)) (then {body}))
            (i32.const 16)))"#
    );
    policy(&text, Hook::Validation)
}

/// A validation policy that accepts no settings. Its reason contains terminal controls and reverses
/// the order of letters.
pub fn unsettled() -> Vec<u8> {
    let text = format!(
        r#"(module
          {MEMORY}
          (data (i32.const 24) "\01\00\00\00\40\00\00\00\0f\00\00\00")
          (data (i32.const 64) "no\e2\80\ae\1b[31m\07\0d\0a\00!")
          (func (export "ipu:policy/validator@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 24))
          (func (export "ipu:policy/validator@0.1.0#validate") (param i32) (result i32) (i32.const 16)))"#
    );
    policy(&text, Hook::Validation)
}

/// A validation policy that accepts everything, with this number of bytes of data, all of them this
/// letter.
pub fn large(letter: char, bytes: usize) -> Vec<u8> {
    let pages = bytes.div_ceil(65_536) + 2;
    let data = letter.to_string().repeat(bytes);
    let text = format!(
        r#"(module
          (memory (export "memory") {pages})
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
          (data (i32.const 131072) "{data}")
          (func (export "ipu:policy/validator@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/validator@0.1.0#validate") (param i32) (result i32) (i32.const 16)))"#
    );
    policy(&text, Hook::Validation)
}

/// A validation policy of some kilobytes that needs gigabytes to compile: nested loops, each of
/// which passes every local to the next iteration.
pub fn compile_bomb() -> Vec<u8> {
    let (locals, depth) = (4000, 2000);
    let (types, starts) = (" i64".repeat(locals), " loop".repeat(depth));
    let change = |local| format!(" local.get {local} i64.const 1 i64.add local.set {local}\n");
    let changes = (0..locals).map(change).collect::<Vec<_>>().concat();
    let ends = " local.get 0 i32.wrap_i64 br_if 0 end".repeat(depth);
    let text = format!(
        r#"(module
          {MEMORY}
          (func (export "ipu:policy/validator@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/validator@0.1.0#validate") (param i32) (result i32) (i32.const 16))
          (func (local{types}) {starts}
            {changes}{ends}))"#
    );
    policy(&text, Hook::Validation)
}

/// A defaulting policy that runs `body` for objects of more than 4,096 bytes of JSON, and returns
/// all others unchanged. Address and length of the object are at bytes 76 and 80 of the request.
/// The answer `{}`, which removes everything from the object, is a text of two bytes at address
/// 512. `$answer` returns a text as the object, and `$refuse` refuses `spec` with a text.
pub fn defaulting(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          {MEMORY}
          {WORDS}
          (data (i32.const 512) "{{}}")
          (data (i32.const 520) "spec")
          (func (export "ipu:policy/defaulter@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func $answer (param i32 i32) (result i32)
            (i32.store (i32.const 40) (local.get 0))
            (i32.store (i32.const 44) (local.get 1))
            (i32.const 32))
          (func $refuse (param i32 i32) (result i32)
            (i32.store (i32.const 36) (i32.const 1))
            (i32.store (i32.const 40) (i32.const 64))
            (i32.store (i32.const 44) (i32.const 1))
            (i32.store (i32.const 64) (i32.const 520))
            (i32.store (i32.const 68) (i32.const 4))
            (i32.store (i32.const 72) (local.get 0))
            (i32.store (i32.const 76) (local.get 1))
            (i32.const 32))
          (func (export "ipu:policy/defaulter@0.1.0#apply-defaults") (param i32) (result i32)
            (local $at i32) (local $left i32)
            (if (i32.gt_u (i32.load offset=80 (local.get 0)) (i32.const 4096)) (then {body}))
            (call $answer (i32.load offset=76 (local.get 0)) (i32.load offset=80 (local.get 0)))))"#
    );
    policy(&text, Hook::Defaulting)
}

/// The body of a defaulting policy that returns an empty object.
pub const TAKE_ALL: &str = "(return (call $answer (i32.const 512) (i32.const 2)))";

/// The body of a defaulting policy that refuses the object.
pub const REFUSE: &str = "(return (call $refuse (i32.const 512) (i32.const 2)))";

/// The body of a defaulting policy that refuses the object without a violation.
pub const REFUSE_FOR_NOTHING: &str = "(i32.store (i32.const 36) (i32.const 1))
    (return (i32.const 32))";

/// Eight bytes that no text for users may contain: an escape, a bell, a carriage return, a line
/// feed, a NUL, and an override of the text direction.
const UNFIT: u64 = 0xae80_e200_0a0d_071b;

/// The body of a defaulting policy that refuses the object with a text of `length` bytes, all of
/// them unsafe for users.
pub fn refuse_with(length: u32) -> String {
    let pages = length / 65_536 + 1;
    format!(
        "(drop (memory.grow (i32.const {pages})))
         {}
         (return (call $refuse (i32.const 65536) (i32.const {length})))",
        repeated(UNFIT, 8, length / 8)
    )
}

/// The body of a validation policy that logs such a text, warns with it, and returns it as the
/// field and the message of a violation.
pub fn shout(length: u32) -> String {
    let pages = length / 65_536 + 1;
    let text = |at: u32| {
        format!(
            "(i32.store (i32.const {at}) (i32.const 65536))
             (i32.store (i32.const {}) (i32.const {length}))",
            at + 4
        )
    };
    format!(
        "(drop (memory.grow (i32.const {pages})))
         {}
         (call $log (i32.const 3) (i32.const 65536) (i32.const {length}) (i32.const 65536) (i32.const {length}))
         {} {} {}
         (i32.store (i32.const 36) (i32.const 64))
         (i32.store (i32.const 40) (i32.const 1))
         (i32.store (i32.const 44) (i32.const 56))
         (i32.store (i32.const 48) (i32.const 1))
         (return (i32.const 32))",
        repeated(UNFIT, 8, length / 8),
        text(56),
        text(64),
        text(72),
    )
}

/// The body of a defaulting policy that returns `{"a":[{"":0},{"":0},…]}` with this number of
/// elements: seven bytes each, and a hundred times that as a tree.
pub fn many_objects(elements: u32) -> String {
    let (pages, end) = (7 * elements / 65_536 + 2, 65_542 + 7 * elements - 1);
    format!(
        "(drop (memory.grow (i32.const {pages})))
         (i64.store (i32.const 65536) (i64.const 0x00005b3a2261227b))
         (local.set $at (i32.const 65542))
         {}
         (i32.store16 (i32.const {end}) (i32.const 0x7d5d))
         (return (call $answer (i32.const 65536) (i32.const {})))",
        elements_at(0x002c_7d30_3a22_227b, 7, elements),
        end + 2 - 65_536
    )
}

/// Writes eight bytes `times` times, from address 65,536 on. The distance is `step` bytes.
fn repeated(bytes: u64, step: u32, times: u32) -> String {
    format!(
        "(local.set $at (i32.const 65536)) {}",
        elements_at(bytes, step, times)
    )
}

fn elements_at(bytes: u64, step: u32, times: u32) -> String {
    format!(
        "(local.set $left (i32.const {times}))
         (loop $next
           (i64.store (local.get $at) (i64.const {bytes}))
           (local.set $at (i32.add (local.get $at) (i32.const {step})))
           (local.set $left (i32.sub (local.get $left) (i32.const 1)))
           (br_if $next (local.get $left)))"
    )
}

/// Also runs the body for small objects.
pub fn always(body: &str) -> String {
    format!("{body}) (else {body}")
}

/// A validation policy that refuses every object.
pub fn refusal() -> Vec<u8> {
    validation(&always(&shout(8)))
}

/// A placement policy that always chooses the controller `mars`: decision `try` (0), with the four
/// bytes at address 64 as the name.
pub fn placement() -> Vec<u8> {
    deciding(
        "\\00",
        r#"(data (i32.const 64) "mars") (data (i32.const 40) "\40\00\00\00\04\00\00\00")"#,
    )
}

/// A placement policy that waits (decision 1), with this number of entries with empty texts.
pub fn waiting(entries: u32) -> Vec<u8> {
    let pages = entries * 16 / 65_536 + 2;
    let [a, b, c, d] = entries.to_le_bytes();
    let list = format!(
        r#"(data (i32.const 40) "\00\00\01\00\{a:02x}\{b:02x}\{c:02x}\{d:02x}")
           (func $grow (drop (memory.grow (i32.const {pages})))) (start $grow)"#
    );
    deciding("\\01", &list)
}

/// A placement policy that rejects (decision 2) with characters that reverse the text direction and
/// clear the screen.
pub fn rejecting() -> Vec<u8> {
    let words = r#"(data (i32.const 64) "no\e2\80\ae\1b[2J\0a\00!") (data (i32.const 40) "\40\00\00\00\0c\00\00\00")"#;
    deciding("\\02", words)
}

/// A placement policy that reports a failure, except for an owner whose name has six letters, as in
/// the request of the self-test. The length is at byte 20 of the request.
pub fn failing_placement() -> Vec<u8> {
    placement_policy(
        r#"(data (i32.const 32) "\01\00\00\00\10\02\00\00\09\00\00\00")"#,
        "(select (i32.const 16) (i32.const 32)
           (i32.eq (i32.load offset=20 (local.get 0)) (i32.const 6)))",
    )
}

/// A placement policy with a decision of this kind, and its value at address 40.
fn deciding(kind: &str, data: &str) -> Vec<u8> {
    let data = format!(r#"(data (i32.const 36) "{kind}") {data}"#);
    placement_policy(&data, "(i32.const 32)")
}

/// A placement policy with this content of its memory, and the address of its answer.
fn placement_policy(data: &str, answer: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          {MEMORY}
          {WORDS}
          {data}
          (func (export "ipu:policy/placer@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/placer@0.1.0#place")
            (param i32) (result i32)
            {answer}))"#
    );
    policy(&text, Hook::Placement)
}

fn policy(text: &str, hook: Hook) -> Vec<u8> {
    componentize(&component(text), Some(hook)).expect("the module fits its world")
}

/// The body of an answer with one warning of `length` zero bytes at address 65,536.
pub fn warning(length: u32) -> String {
    let pages = length / 65_536 + 1;
    format!(
        "(drop (memory.grow (i32.const {pages})))
         (i32.store (i32.const 44) (i32.const 56))
         (i32.store (i32.const 48) (i32.const 1))
         (i32.store (i32.const 56) (i32.const 65536))
         (i32.store (i32.const 60) (i32.const {length}))
         (return (i32.const 32))"
    )
}

/// Returns a component or a module from its text.
///
/// # Panics
/// Panics if the text is not WebAssembly.
pub fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("the text is WebAssembly")
}
