//! Pure: parses the admin's list of V-IPU controllers. An invalid entry does not affect the valid
//! ones.
//!
//! Entries are `host:port:key=value`, separated by commas or newlines. A host is a DNS name, an
//! IPv4 address, or an IPv6 address in brackets. The default port is 8090. `key=value` is the label
//! of the nodes that reach the controller. The options `:cluster=name` and `:allocation=name` may
//! follow. Blank lines, `# comments` and the dashes of a YAML list are allowed.

use std::collections::BTreeMap;
use std::fmt;

use ipu_api::dns1123::{is_label, is_label_key, is_label_value};
use ipu_api::ipupartition::ControllerRef;

use super::create_scope::CreateScope;

/// Key of the ConfigMap that contains the list.
pub const KEY: &str = "controllers.yaml";

/// Port of an entry without one.
const DEFAULT_PORT: u16 = 8090;

/// Longest part of an invalid entry in a message, in characters.
const SHOWN_MAX: usize = 80;

/// Content of an admin's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerList {
    /// The valid entries in the admin's order. The operator tries them in this order.
    pub entries: Vec<ControllerRef>,
    /// By name of the controller: where partitions are created, for entries that say so.
    pub scopes: BTreeMap<String, CreateScope>,
    /// The invalid entries.
    pub problems: Vec<EntryProblem>,
}

/// An invalid entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryProblem {
    /// The key of the ConfigMap that contains it.
    pub key: &'static str,
    /// Its line, from 1.
    pub line: usize,
    /// Its number among all entries, from 1.
    pub entry: usize,
    /// The entry, truncated if it is long.
    pub text: String,
    /// The violated rule, and the fix.
    pub rule: String,
}

impl fmt::Display for EntryProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EntryProblem {
            key,
            line,
            entry,
            text,
            rule,
        } = self;
        write!(f, "entry {entry} on line {line} of {key}, {text:?}: {rule}")
    }
}

/// Parses a list. The first of two entries for one host and port counts.
pub fn parse(text: &str) -> ControllerList {
    let mut list = ControllerList::default();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for (index, (line, entry)) in items(text).enumerate() {
        let number = index + 1;
        let outcome = controller(entry).and_then(|(found, scope)| match numbers.get(&found.name) {
            Some(first) => Err(format!(
                "{} is already entry {first}, which takes precedence; remove one of the two",
                found.name
            )),
            None => Ok((found, scope)),
        });
        match outcome {
            Ok((found, scope)) => {
                numbers.insert(found.name.clone(), number);
                if scope != CreateScope::default() {
                    list.scopes.insert(found.name.clone(), scope);
                }
                list.entries.push(found);
            }
            Err(rule) => list.problems.push(EntryProblem {
                key: KEY,
                line,
                entry: number,
                text: shown(entry),
                rule,
            }),
        }
    }
    list
}

/// Splits a text at commas and newlines. Returns each item with the number of its line, from 1.
pub(super) fn items(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let entries = text.lines().enumerate().flat_map(|(index, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let line = line.strip_prefix("- ").unwrap_or(line);
        line.split(',').map(move |entry| (index + 1, entry.trim()))
    });
    entries.filter(|(_, entry)| !entry.is_empty())
}

/// Returns the name of the controller at this address, or the violated rule.
pub(super) fn address(text: &str) -> Result<String, String> {
    let (host, port) = split_port(text)?;
    Ok(name(&host_name(host)?, port))
}

/// A controller with this name and without a node label.
pub fn unlisted(name: &str) -> Option<ControllerRef> {
    let (host, port) = split_port(name).ok()?;
    let host = host_name(host).ok()?;
    Some(ControllerRef {
        name: name.to_owned(),
        host,
        port,
        label_key: String::new(),
        label_value: String::new(),
    })
}

/// Parses one entry, or returns the violated rule.
fn controller(entry: &str) -> Result<(ControllerRef, CreateScope), String> {
    if entry.ends_with('\\') {
        return Err(
            "it ends with a backslash; Helm's `--set` needs `\\,`, a file needs `,`".into(),
        );
    }
    if entry.contains(['"', '\'']) {
        return Err("it holds a quotation mark; write the entry without any".into());
    }
    let Some((address, label, options)) = split_label(entry) else {
        return Err(
            "it has no node label; write host:port:key=value, where nodes that reach the \
             controller carry the label key=value"
                .into(),
        );
    };
    let (host, port) = split_port(address)?;
    let host = host_name(host)?;
    let (label_key, label_value) = node_label(label)?;
    let scope = CreateScope::parse(options)?;
    let controller = ControllerRef {
        name: name(&host, port),
        host,
        port,
        label_key,
        label_value,
    };
    Ok((controller, scope))
}

/// Splits an entry into the address, the node label and the options. Neither a host nor a port
/// contains `=`.
fn split_label(entry: &str) -> Option<(&str, &str, impl Iterator<Item = &str>)> {
    let colons = entry.match_indices(':').map(|(index, _)| index);
    let mut pieces = colons.map(|index| (&entry[..index], entry[index + 1..].split(':')));
    pieces.find_map(|(address, mut rest)| {
        let label = rest.next().filter(|piece| piece.contains('='))?;
        Some((address, label, rest))
    })
}

/// The name of the controller at this host and port.
pub(super) fn name(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The host and the port of an address.
fn split_port(address: &str) -> Result<(&str, u16), String> {
    let (host, port) = if address.ends_with(']') {
        (address, None)
    } else if let Some((host, port)) = address.rsplit_once(':') {
        (host, Some(port))
    } else {
        (address, None)
    };
    let Some(port) = port else {
        return Ok((host, DEFAULT_PORT));
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && number > 0 => Ok((host, number)),
        _ => Err(format!(
            "port {:?} is not a number from 1 to 65535",
            shown(port)
        )),
    }
}

/// Normalizes a host, so that equal hosts have equal names.
fn host_name(host: &str) -> Result<String, String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        return match inner.parse::<core::net::Ipv6Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err(format!("{:?} is not an IPv6 address", shown(inner))),
        };
    }
    if host.contains(':') {
        return Err(format!(
            "host {:?} holds a colon; write an IPv6 address in brackets, as in [fd00::1]:8090",
            shown(host)
        ));
    }
    let lower = host.to_ascii_lowercase();
    let name = lower.strip_suffix('.').unwrap_or(&lower);
    let numeric = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if numeric && name.parse::<core::net::Ipv4Addr>().is_err() {
        return Err(format!("host {:?} is not an IPv4 address", shown(host)));
    }
    if name.len() > 253 || !name.split('.').all(is_label) {
        return Err(format!(
            "host {:?} is not a DNS name or an IP address",
            shown(host)
        ));
    }
    Ok(lower)
}

/// Parses the key and the value of a node label by the rules of Kubernetes.
fn node_label(label: &str) -> Result<(String, String), String> {
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    if !is_label_key(key) {
        return Err(format!(
            "label key {:?} is not one that a Kubernetes node can have; write key=value as \
             `kubectl label node` takes it",
            shown(key)
        ));
    }
    if !is_label_value(value) {
        return Err(format!(
            "label value {:?} is not one that a Kubernetes node can have: at most 63 letters, \
             digits, `-`, `_` and `.`, with a letter or digit first and last",
            shown(value)
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Truncates a text for a message.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
