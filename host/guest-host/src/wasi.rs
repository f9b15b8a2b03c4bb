//! The empty WASI 0.2 that components of JavaScript, Python and C are linked to.
//!
//! Such languages import WASI whether a program uses it or not. What they get holds nothing and never
//! waits: no files, no network, no environment, no arguments; a clock that stands still, and
//! random numbers from one fixed seed, so that the same request meets the same answer bit for bit.
//! Lines that are printed go to the operator's log, with the same bounds as those of `log`.
//! `wit/README.md` publishes the list, and a test compares it with this file.

mod clocks;
mod printed;
mod random;
mod streams;

use ipu_text::sanitize;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Linker, LinkerInstance, Resource, ResourceType};

use super::store::CallState;
pub(super) use printed::Printed;
pub(super) use random::Numbers;

/// Every interface of WASI that a policy may import, in any version that begins with 0.2, and what
/// a policy finds there.
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
        "stands at 0; every pause is over at once",
    ),
    ("wasi:clocks/wall-clock", "stands at 1970-01-01T00:00:00Z"),
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

/// A policy called something of WASI that no policy has. Ends the call, and is found again by its
/// type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it called {0}, of which policies have nothing; wit/README.md lists what they have of WASI"
)]
pub struct NotThere(String);

/// Longest name of a function that an error tells, in bytes.
const FUNCTION: usize = 256;

/// What nobody has one of, such as a file.
struct Nothing;

/// The interface of the list that an import names, whatever its version within 0.2.
pub(super) fn known(import: &str) -> Option<&'static str> {
    let (interface, version) = import.split_once('@')?;
    let (known, _) = INTERFACES.iter().find(|(known, _)| *known == interface)?;
    let patch = version.strip_prefix("0.2.")?;
    patch
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then_some(*known)
}

/// Gives a component what it imports of WASI: everything of the list ends the call, but for what has
/// an empty answer.
pub(super) fn add_to_linker(
    linker: &mut Linker<CallState>,
    component: &Component,
) -> wasmtime::Result<()> {
    let engine = component.engine();
    // What has an answer takes the place of what ends the call.
    linker.allow_shadowing(true);
    for (import, item) in component.component_type().imports(engine) {
        let (Some(interface), ComponentItem::ComponentInstance(items)) = (known(import), item.ty)
        else {
            continue;
        };
        let mut instance = linker.instance(import)?;
        for (name, item) in items.exports(engine) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => end_the_call(&mut instance, interface, name)?,
                ComponentItem::Resource(_) => {
                    instance.resource(name, resource(name), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
        answer(&mut instance, interface)?;
    }
    linker.allow_shadowing(false);
    Ok(())
}

fn end_the_call(
    instance: &mut LinkerInstance<'_, CallState>,
    interface: &str,
    name: &str,
) -> wasmtime::Result<()> {
    let what = NotThere(sanitize(&format!("{interface}#{name}"), FUNCTION));
    instance.func_new(name, move |_, _, _, _| Err(what.clone().into()))
}

/// The host's type of a resource. An interface that uses one of another exports it again under the
/// same name.
fn resource(name: &str) -> ResourceType {
    match name {
        "pollable" => ResourceType::host::<streams::Ready>(),
        "error" => ResourceType::host::<streams::Failure>(),
        "input-stream" => ResourceType::host::<streams::Input>(),
        "output-stream" => ResourceType::host::<streams::Output>(),
        _ => ResourceType::host::<Nothing>(),
    }
}

/// The functions of an interface that have an answer.
fn answer(instance: &mut LinkerInstance<'_, CallState>, interface: &str) -> wasmtime::Result<()> {
    match interface {
        "wasi:cli/environment" => environment(instance),
        "wasi:cli/stdin" => streams::stdin(instance),
        "wasi:cli/stdout" => streams::printing(instance, "get-stdout", Printed::STDOUT),
        "wasi:cli/stderr" => streams::printing(instance, "get-stderr", Printed::STDERR),
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
    instance.func_wrap(name, |_, ()| Ok((None::<Resource<Nothing>>,)))
}

fn no_folder(instance: &mut LinkerInstance<'_, CallState>) -> wasmtime::Result<()> {
    type Folders = Vec<(Resource<Nothing>, String)>;
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
            assert_eq!(known(import), expected, "{import}");
        }
    }

    #[test]
    fn the_published_list_is_this_one() {
        let published = include_str!("../../../wit/README.md");
        let rows = published
            .lines()
            .filter(|line| line.starts_with("| `wasi:"));
        let rows: Vec<_> = rows.map(str::to_owned).collect();
        let expected = INTERFACES.map(|(name, what)| format!("| `{name}` | {what} |"));
        assert_eq!(rows, expected);
    }
}
