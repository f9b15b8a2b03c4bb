//! Allocations of reading JSON within a budget, byte for byte: a program of its own, because it
//! counts what the whole process allocates.
#![allow(
    clippy::unwrap_used,
    reason = "what a test's helper cannot do fails the test"
)]
#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use ipu_runtime::bounded_json::{Budget, measure, parse};

/// The system's allocator, which counts.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work; nothing but numbers is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::SeqCst) + layout.size();
        PEAK.fetch_max(now, Ordering::SeqCst);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// The most that was allocated at once while this ran, and its result.
fn peak_of<T>(run: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.load(Ordering::SeqCst);
    PEAK.store(before, Ordering::SeqCst);
    let result = run();
    (PEAK.load(Ordering::SeqCst) - before, result)
}

/// Texts of some MiB, each of one shape.
fn shapes() -> Vec<(&'static str, String)> {
    let members = |count: usize, name: fn(usize) -> String| {
        let members: Vec<_> = (0..count)
            .map(|number| format!("\"{}\":0", name(number)))
            .collect();
        format!("{{{}}}", members.join(","))
    };
    let job = include_str!("../../crds/ipujobs.graphcore.ai.yaml");
    let job: serde_json::Value = serde_saphyr::from_str(job).unwrap();
    let escaped = "\\n".repeat(MIB);
    vec![
        (
            "small objects",
            format!("[{}0]", r#"{"":0},"#.repeat(MIB / 4)),
        ),
        ("empty objects", format!("[{}0]", "{},".repeat(MIB))),
        ("small arrays", format!("[{}0]", "[0],".repeat(MIB / 4))),
        ("numbers", format!("[{}0]", "0,".repeat(MIB))),
        ("short strings", format!("[{}0]", "\"a\",".repeat(MIB))),
        ("a long string", format!("\"{}\"", "a".repeat(4 * MIB))),
        ("escapes", format!("[\"{escaped}\",\"{escaped}\"]")),
        (
            "members in order",
            members(MIB / 4, |number| format!("{number:09}")),
        ),
        (
            "members in disorder",
            members(MIB / 4, |number| {
                format!("{:09}", number * 7_919 % 1_000_003)
            }),
        ),
        (
            "twelve members each",
            format!(
                "[{}0]",
                format!("{},", members(12, |n| n.to_string())).repeat(MIB / 64)
            ),
        ),
        ("a definition", job.to_string()),
    ]
}

/// One test, so that no other thread allocates meanwhile.
#[test]
fn the_estimate_is_never_too_low_nor_far_too_high_and_refusing_allocates_nothing() {
    for (what, text) in shapes() {
        let text = text.as_bytes();
        let all = Budget::of_memory(usize::MAX);
        let (walking, estimate) = peak_of(|| measure(text, all).unwrap().memory());
        let (reading, _tree) = peak_of(|| parse(text, all).unwrap());
        assert!(reading <= estimate, "{what}: {reading} > {estimate}");
        assert!(
            estimate <= 2 * reading + 4_096,
            "{what}: {estimate} for {reading}"
        );
        // The buffer for a string with escapes, which doubles.
        let scratch = match what {
            "escapes" => 4 * MIB,
            "a definition" => 8_192,
            _ => 4_096,
        };
        assert!(walking <= scratch, "{what}: {walking}");
        let (refusing, refused) = peak_of(|| parse(text, Budget::of_memory(estimate / 2)));
        assert!(refused.is_err(), "{what}");
        assert!(refusing <= scratch, "{what}: {refusing}");
    }
}
