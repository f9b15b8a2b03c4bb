//! Pure: the completion of the command line, as scripts for shells and for kubectl.
//!
//! kubectl completes `kubectl ipu …` itself: it runs the program `kubectl_complete-ipu` with the
//! words of the command line. The last word is the one to complete. This program is the plugin
//! under that name.

use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use clap_complete::aot::{Shell, generate};

use crate::cli::Arguments;

/// Name of the program that kubectl runs for completion.
const COMPLETER: &str = "kubectl_complete-ipu";

/// Last line of the output: no other completion, as a number of cobra.
const NOTHING_ELSE: &str = ":4\n";
const FILES: &str = ":0\n";

/// The script that completes `kubectl-ipu` in a shell.
pub fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut Arguments::command(), "kubectl-ipu", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Whether kubectl runs the plugin under this name to complete a command line.
pub fn is_completer(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == COMPLETER)
}

/// The output for kubectl: one line for each candidate.
pub fn answer(words: &[String]) -> String {
    let mut root = Arguments::command();
    // Gives subcommands the options that are valid everywhere.
    root.build();
    let (last, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let cursor = Cursor::after(&root, before);
    let mut answer = String::new();
    for (candidate, help) in cursor.candidates(last) {
        if candidate.starts_with(last) {
            answer.push_str(&candidate);
            if let Some(help) = help {
                answer.push('\t');
                answer.push_str(&help);
            }
            answer.push('\n');
        }
    }
    let is_path = cursor
        .value_of
        .is_some_and(|arg| arg.get_id() == "kubeconfig");
    answer + if is_path { FILES } else { NOTHING_ELSE }
}

/// A candidate with its description.
type Candidate = (String, Option<String>);

/// Position of the next word in the command line.
struct Cursor<'a> {
    command: &'a Command,
    /// The option that takes it as its value.
    value_of: Option<&'a Arg>,
    /// The number of arguments before it that belong to no option.
    arguments: usize,
}

impl<'a> Cursor<'a> {
    fn after(root: &'a Command, words: &[String]) -> Self {
        let mut cursor = Self {
            command: root,
            value_of: None,
            arguments: 0,
        };
        for word in words {
            if cursor.value_of.take().is_some() {
                continue;
            }
            if word.starts_with('-') {
                cursor.value_of = option(cursor.command, word);
            } else if let Some(command) = cursor.command.find_subcommand(word) {
                cursor.command = command;
            } else {
                cursor.arguments += 1;
            }
        }
        cursor
    }

    fn candidates(&self, last: &str) -> Vec<Candidate> {
        if let Some(arg) = self.value_of {
            return values(arg, "");
        }
        if last.starts_with('-') {
            let (name, has_value) = last
                .split_once('=')
                .map_or((last, false), |(name, _)| (name, true));
            let named = has_value.then(|| find(self.command, name)).flatten();
            return named.map_or_else(
                || options(self.command),
                |arg| values(arg, &format!("{name}=")),
            );
        }
        if self.command.has_subcommands() {
            return subcommands(self.command);
        }
        let arg = self.command.get_positionals().nth(self.arguments);
        arg.map_or_else(Vec::new, |arg| values(arg, ""))
    }
}

/// The option of a word, if the next word is its value. `None`: the option has no value, or has it
/// after `=`.
fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let arg = find(command, word)?;
    let takes_next = arg.get_action().takes_values() && !arg.is_require_equals_set();
    takes_next.then_some(arg)
}

/// The option of this name, with its dashes.
fn find<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let mut all = command.get_arguments();
    if let Some(long) = word.strip_prefix("--") {
        return all.find(|arg| arg.get_long() == Some(long));
    }
    let short = word.strip_prefix('-')?;
    all.find(|arg| {
        arg.get_short()
            .is_some_and(|letter| short == letter.to_string())
    })
}

fn options(command: &Command) -> Vec<Candidate> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let named = shown.filter_map(|arg| {
        let help = arg.get_help().map(ToString::to_string);
        Some((format!("--{}", arg.get_long()?), help))
    });
    named.collect()
}

fn subcommands(command: &Command) -> Vec<Candidate> {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    let named = shown.map(|one| {
        let about = one.get_about().map(ToString::to_string);
        (one.get_name().to_owned(), about)
    });
    named.collect()
}

/// The values that an argument can have, if they are known, behind a prefix.
fn values(arg: &Arg, prefix: &str) -> Vec<Candidate> {
    let values = arg.get_possible_values().into_iter();
    let named = values.map(|value| {
        let help = value.get_help().map(ToString::to_string);
        (format!("{prefix}{}", value.get_name()), help)
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The candidates without their meanings.
    fn complete(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let answer = answer(&words);
        let names = answer
            .lines()
            .map(|line| line.split('\t').next().unwrap_or_default());
        names.map(ToOwned::to_owned).collect()
    }

    #[test]
    fn commands_options_and_values_are_completed() {
        for (words, expected) in [
            (&["dr"][..], &["drain", ":4"][..]),
            (&["-n", "drain", "to"], &["top", ":4"]),
            (&["top", "n"], &["namespaces", ":4"]),
            (&["top", "--outp"], &["--output", ":4"]),
            (&["top", "--output", "w"], &["wide", ":4"]),
            (&["top", "-o", "w"], &["wide", ":4"]),
            (&["top", "--output=j"], &["--output=json", ":4"]),
            (&["drain", "--wait", "a"], &[":4"]),
            (&["cordon", "--rea"], &["--reason", ":4"]),
            (&["completion", "z"], &["zsh", ":4"]),
            (&["top", "--kubec"], &["--kubeconfig", ":4"]),
            (&["top", "--kubeconfig", ""], &[":0"]),
        ] {
            assert_eq!(complete(words), expected, "{words:?}");
        }
        let all = complete(&[""]);
        for command in ["why", "top", "goodput", "cordon", "uncordon", "drain"] {
            assert!(all.iter().any(|found| found == command), "{all:?}");
        }
    }

    #[test]
    fn the_plugin_is_the_completer_under_its_name() {
        for (program, expected) in [
            ("/usr/local/bin/kubectl_complete-ipu", true),
            ("kubectl_complete-ipu", true),
            ("/usr/local/bin/kubectl-ipu", false),
        ] {
            assert_eq!(is_completer(Path::new(program)), expected);
        }
    }

    #[test]
    fn each_shell_has_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell] {
            let script = script(shell);
            assert!(script.contains("kubectl-ipu"), "{shell}");
            assert!(script.contains("uncordon"), "{shell}");
        }
    }
}
