//! The empty WASI 0.2 that components of JavaScript, Python and C are linked to.
//!
//! Such languages import WASI whether a program uses it or not. What they get holds nothing and never
//! waits: no files, no network, no environment, no arguments; a clock that stands still, and
//! random numbers from one fixed seed, so that the same request meets the same answer bit for bit.
//! Lines that are printed go to the operator's log, with the same bounds as those of `log`.
//! `wit/README.md` publishes the list, and a test compares it with this file.

use wasmtime::StoreContextMut;
use wasmtime::component::{
    Component, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType,
};

use super::store::{CallState, LogLevel};

/// Every interface of WASI that a policy may import, in any version that begins with 0.2, and what
/// a policy finds there.
pub(super) const INTERFACES: [(&str, &str); 26] = [
    ("wasi:cli/environment", "no variables, no arguments, no folder"),
    ("wasi:cli/exit", "ends the call with an error"),
    ("wasi:cli/stderr", "lines of the log, level warn"),
    ("wasi:cli/stdin", "at its end"),
    ("wasi:cli/stdout", "lines of the log, level info"),
    ("wasi:cli/terminal-input", "nobody has one"),
    ("wasi:cli/terminal-output", "nobody has one"),
    ("wasi:cli/terminal-stderr", "none"),
    ("wasi:cli/terminal-stdin", "none"),
    ("wasi:cli/terminal-stdout", "none"),
    ("wasi:clocks/monotonic-clock", "stands at 0; every pause is over at once"),
    ("wasi:clocks/wall-clock", "stands at 1970-01-01T00:00:00Z"),
    ("wasi:filesystem/preopens", "no folder"),
    ("wasi:filesystem/types", "nobody has a file; a call ends with an error"),
    ("wasi:io/error", "there is none"),
    ("wasi:io/poll", "everything is ready"),
    ("wasi:io/streams", "those of stdin, stdout and stderr"),
    ("wasi:random/insecure", "the same numbers in every call"),
    ("wasi:random/insecure-seed", "the same seed in every call"),
    ("wasi:random/random", "the same numbers in every call"),
    ("wasi:sockets/instance-network", "no network; a call ends with an error"),
    ("wasi:sockets/ip-name-lookup", "no network; a call ends with an error"),
    ("wasi:sockets/network", "no network; a call ends with an error"),
    ("wasi:sockets/tcp", "no network; a call ends with an error"),
    ("wasi:sockets/tcp-create-socket", "no network; a call ends with an error"),
    ("wasi:sockets/udp", "no network; a call ends with an error"),
];

