//! Holds the line between pure files and shells, and the habits of style that a reader relies on.

use crate::sources::rust_files;

/// What a file that calls itself pure never names: clients, runtimes, clocks, environment, chance.
const IMPURE: [&str; 14] = [
    "kube::Client",
    "kube::Api",
    "kube::api::Api",
    "tokio::",
    "tonic::",
    "axum::",
    "wasmtime::",
    "std::env",
    "std::fs",
    "std::net",
    "SystemTime",
    "Instant::",
    "::now(",
    "rand::",
];

/// Pure files whose absence would mean that the line has been moved, not that it holds.
const MUST_BE_PURE: [&str; 4] = [
    "host/src/job/validate.rs",
    "host/src/job/phase.rs",
    "host/src/job/plan.rs",
    "host/src/job/report.rs",
];

#[test]
fn pure_files_name_no_client_clock_environment_or_runtime() {
    let mut pure = 0;
    for (path, text) in rust_files("host/src")
        .into_iter()
        .chain(rust_files("guests"))
    {
        if !text.starts_with("//! Pure:") {
            continue;
        }
        pure += 1;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in IMPURE {
            assert!(
                !code.contains(word),
                "{} calls itself pure and names `{word}`",
                path.display()
            );
        }
    }
    assert!(pure > 10, "only {pure} files call themselves pure");
}

#[test]
fn the_decisions_of_a_reconcile_are_pure() {
    let files = rust_files("host/src");
    for wanted in MUST_BE_PURE {
        let (_, text) = files
            .iter()
            .find(|(path, _)| path.ends_with(wanted))
            .unwrap_or_else(|| panic!("{wanted} is missing"));
        assert!(
            text.starts_with("//! Pure:"),
            "{wanted} does not call itself pure"
        );
    }
}

#[test]
fn every_file_opens_with_its_purpose() {
    for folder in ["host/src", "guests", "tests"] {
        for (path, text) in rust_files(folder) {
            let generated = text.starts_with("// Generated") || path.ends_with("bindings.rs");
            assert!(
                generated || text.starts_with("//! "),
                "{} does not say in its first line what it is for",
                path.display()
            );
        }
    }
}

#[test]
fn only_the_wasm_folder_knows_wasmtime() {
    for (path, text) in rust_files("host/src") {
        let inside = path.ends_with("host/src/wasm.rs")
            || path.components().any(|c| c.as_os_str() == "wasm");
        assert!(
            inside || !text.contains("wasmtime::"),
            "{} uses wasmtime directly; the engine stays behind `crate::wasm`",
            path.display()
        );
    }
}
