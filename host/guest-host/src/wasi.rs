//! The empty WASI 0.2 for components of JavaScript, Python and C.
//!
//! Such languages import WASI even if the program does not use it. This implementation never
//! blocks. It has no files, no network, no environment and no arguments. Its clock does not
//! advance, and its random numbers have a fixed seed, so that the same request gets the same answer
//! bit for bit. The standard output goes to the log of the operator, with the limits of `log`.
//! `wit/README.md` has the list of interfaces, and a test compares it with this file.

mod clocks;
mod random;
mod streams;

use ipu_text::sanitize;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, LinkerInstance, Resource, ResourceType};

use super::call_state::CallState;
use super::output_lines::OutputLines;

/// The WASI interfaces that a policy may import, in any version 0.2.x, and their behavior.
pub(super) const INTERFACES: [(&str, &str); 27] = [
    (
        "wasi:cli/environment",
        "no variables, no arguments, no folder",
    ),
    ("wasi:cli/exit", "ends the call with an error"),
    ("wasi:cli/stderr", "lines of the log, level warn"),
    ("wasi:cli/stdin", "at its end"),
    ("wasi:cli/stdout", "lines of the log, level info"),
    ("wasi:cli/terminal-input", "not available"),
    ("wasi:cli/terminal-output", "not available"),
    ("wasi:cli/terminal-stderr", "none"),
    ("wasi:cli/terminal-stdin", "none"),
    ("wasi:cli/terminal-stdout", "none"),
    (
        "wasi:clocks/monotonic-clock",
        "always 0; sleeps return immediately",
    ),
    ("wasi:clocks/wall-clock", "always 1970-01-01T00:00:00Z"),
    ("wasi:filesystem/preopens", "no folder"),
    (
        "wasi:filesystem/types",
        "no files; a call ends with an error",
    ),
    ("wasi:io/error", "there is none"),
    ("wasi:io/poll", "everything is ready"),
    ("wasi:io/streams", "those of stdin, stdout and stderr"),
    ("wasi:random/insecure", "the same numbers in every call"),
    ("wasi:random/insecure-seed", "the same seed in every call"),
    ("wasi:random/random", "the same numbers in every call"),
    (
        "wasi:sockets/instance-network",
        "no network; a call ends with an error",
    ),
    (
        "wasi:sockets/ip-name-lookup",
        "no network; a call ends with an error",
    ),
    (
        "wasi:sockets/network",
        "no network; a call ends with an error",
    ),
    ("wasi:sockets/tcp", "no network; a call ends with an error"),
    (
        "wasi:sockets/tcp-create-socket",
        "no network; a call ends with an error",
    ),
    ("wasi:sockets/udp", "no network; a call ends with an error"),
    (
        "wasi:sockets/udp-create-socket",
        "no network; a call ends with an error",
    ),
];

/// A call of an unsupported WASI function. It ends the call as a typed error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it called {0}; wit/README.md lists the functions of WASI that guests can call")]
pub struct UnsupportedWasi(String);

/// Longest name of a function in an error, in bytes.
const FUNCTION: usize = 256;

/// A resource that does not exist, such as a file.
struct Unavailable;

/// Returns the supported interface of an import, in any version 0.2.x.
pub(super) fn supported_interface(import: &str) -> Option<&'static str> {
    let (interface, version) = import.split_once('@')?;
    let (known, _) = INTERFACES.iter().find(|(known, _)| *known == interface)?;
    let patch = version.strip_prefix("0.2.")?;
    patch
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then_some(*known)
}

/// Links the WASI imports of a component. Functions without an empty answer end the call.
pub(super) fn add_to_linker(
    linker: &mut Linker<CallState>,
    component: &Component,
) -> wasmtime::Result<()> {
    let engine = component.engine();
    // A function with an answer shadows the one that ends the call.
    linker.allow_shadowing(true);
    for (import, item) in component.component_type().imports(engine) {
        let (Some(interface), ComponentItem::ComponentInstance(items)) =
            (supported_interface(import), item.ty)
        else {
            continue;
        };
        let mut instance = linker.instance(import)?;
        for (name, item) in items.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    link_unsupported(&mut instance, interface, name)?;
                }
                ComponentItem::Resource(_) => {
                    instance.resource(name, resource(name), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
        link_answers(&mut instance, interface)?;
    }
    linker.allow_shadowing(false);
    Ok(())
}

fn link_unsupported(
    instance: &mut LinkerInstance<'_, CallState>,
    interface: &str,
    name: &str,
) -> wasmtime::Result<()> {
    let error = UnsupportedWasi(sanitize(&format!("{interface}#{name}"), FUNCTION));
    instance.func_new(name, move |_, _, _, _| Err(error.clone().into()))
}

/// Returns the host type of a resource. An interface re-exports the resources of other interfaces
/// under the same name.
fn resource(name: &str) -> ResourceType {
    match name {
        "pollable" => ResourceType::host::<streams::Ready>(),
        "error" => ResourceType::host::<streams::Failure>(),
        "input-stream" => ResourceType::host::<streams::Input>(),
        "output-stream" => ResourceType::host::<streams::Output>(),
        _ => ResourceType::host::<Unavailable>(),
    }
}

/// Links the functions of an interface that have an answer.
fn link_answers(
    instance: &mut LinkerInstance<'_, CallState>,
    interface: &str,
) -> wasmtime::Result<()> {
    match interface {
        "wasi:cli/environment" => environment(instance),
        "wasi:cli/stdin" => streams::stdin(instance),
        "wasi:cli/stdout" => streams::output_stream(instance, "get-stdout", OutputLines::STDOUT),
        "wasi:cli/stderr" => streams::output_stream(instance, "get-stderr", OutputLines::STDERR),
        "wasi:cli/terminal-stdin" => no_terminal(instance, "get-terminal-stdin"),
        "wasi:cli/terminal-stdout" => no_terminal(instance, "get-terminal-stdout"),
        "wasi:cli/terminal-stderr" => no_terminal(instance, "get-terminal-stderr"),
        "wasi:clocks/monotonic-clock" => clocks::monotonic(instance),
        "wasi:clocks/wall-clock" => clocks::wall(instance),
        "wasi:filesystem/preopens" => no_folder(instance),
        "wasi:io/poll" => streams::poll(instance),
        "wasi:io/streams" => streams::streams(instance),
        "wasi:random/insecure" => random::numbers(
            instance,
            "get-insecure-random-bytes",
            "get-insecure-random-u64",
        ),
        "wasi:random/insecure-seed" => random::seed(instance),
        "wasi:random/random" => random::numbers(instance, "get-random-bytes", "get-random-u64"),
        _ => Ok(()),
    }
}

fn environment(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    type Variables = Vec<(String, String)>;
    instance.func_wrap("get-environment", |_, ()| Ok((Variables::new(),)))?;
    instance.func_wrap("get-arguments", |_, ()| Ok((Vec::<String>::new(),)))?;
    instance.func_wrap("initial-cwd", |_, ()| Ok((None::<String>,)))
}

fn no_terminal(instance: &mut LinkerInstance<'_, CallState>, name: &str) -> wasmtime::Result<()> {
    instance.func_wrap(name, |_, ()| Ok((None::<Resource<Unavailable>>,)))
}

fn no_folder(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    type Folders = Vec<(Resource<Unavailable>, String)>;
    instance.func_wrap("get-directories", |_, ()| Ok((Folders::new(),)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_known_by_name_and_version() {
        for (import, expected) in [
            ("wasi:cli/stdout@0.2.0", Some("wasi:cli/stdout")),
            ("wasi:cli/stdout@0.2.12", Some("wasi:cli/stdout")),
            ("wasi:cli/stdout@0.3.0", None),
            ("wasi:cli/stdout@0.2.0-rc-2023-11-10", None),
            ("wasi:cli/stdout", None),
            ("wasi:http/outgoing-handler@0.2.0", None),
        ] {
            assert_eq!(supported_interface(import), expected, "{import}");
        }
    }

    #[test]
    fn the_published_list_is_this_one() {
        let published = include_str!("../../../wit/README.md");
        let rows = published
            .lines()
            .filter(|line| line.starts_with("| `wasi:"));
        let rows: Vec<_> = rows.map(str::to_owned).collect();
        let expected = INTERFACES.map(|(name, behavior)| format!("| `{name}` | {behavior} |"));
        assert_eq!(rows, expected);
    }
}
