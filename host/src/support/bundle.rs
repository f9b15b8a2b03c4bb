//! Pure: the data collected so far, and the files of the archive.

use ipu_text::redaction::Values;
use serde_json::Value;

use super::plan::{Form, LOGS, Read};
use super::scrub::scrubbed;
use super::shown::{OURS, redact_texts, shown};

/// Size limits of a bundle.
const LIMITS: Limits = Limits {
    file: 8 << 20,
    all: 64 << 20,
};

/// First file of the archive.
const README: &str = "\
`ipu-operator support-bundle` collected this data for a bug report.

It does not contain: Secrets (none was read), values of environment variables except those that the operator sets,
annotations of domains other than graphcore.ai and those of Kubernetes, texts in the settings of policies, and
caBundles. `(redacted)` replaces them, with a number that is the same for equal values. The command also removed these
values from logs and messages if they have 6 characters or more, and it removed tokens, passwords in addresses, and
options whose names suggest secrets.

It contains: names of namespaces, jobs, nodes and V-IPU controllers, images, labels, command lines, and logs of the
operator. Review it before you share it. errors.txt lists each failed read with its reason.
";

/// Limits in bytes.
#[derive(Clone, Copy)]
struct Limits {
    /// Of one file. The rest is truncated.
    file: usize,
    /// Of all files. Further files are omitted.
    all: usize,
}

/// The data collected so far.
pub(super) struct Bundle {
    limits: Limits,
    objects: Vec<(String, Value)>,
    texts: Vec<(String, String)>,
    errors: Vec<String>,
    values: Values,
}

impl Default for Bundle {
    fn default() -> Self {
        Self {
            limits: LIMITS,
            objects: Vec::new(),
            texts: Vec::new(),
            errors: Vec::new(),
            values: Values::with_exempt(OURS),
        }
    }
}

/// The files of the archive.
pub(super) struct Contents {
    /// Path and text of each.
    pub files: Vec<(String, String)>,
    /// Number of missing or truncated files.
    pub missing: usize,
}

impl Bundle {
    /// Adds the answer of a read, or its error.
    pub(super) fn add(&mut self, read: Read, answer: Result<String, String>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => return self.miss(&read.file, &why),
        };
        if read.form == Form::Text {
            self.texts.push((read.file, answer));
            return;
        }
        match serde_json::from_str::<Value>(&answer) {
            Ok(object) => {
                let rest = object.pointer("/metadata/continue").and_then(Value::as_str);
                if rest.is_some_and(|rest| !rest.is_empty()) {
                    self.miss(&read.file, "there are more than fit into the bundle");
                }
                let object = shown(read.form, object, &mut self.values);
                self.objects.push((read.file, object));
            }
            Err(error) => self.miss(&read.file, &format!("the answer is not whole: {error}")),
        }
    }

    /// The files of the archive. A value that was redacted in one file is redacted in all files.
    pub(super) fn finish(mut self, now: &str) -> Contents {
        let redact = self.values.redactor();
        let mut files = Vec::new();
        for (file, mut object) in self.objects {
            redact_texts(&mut object, &redact);
            files.push((file, yaml(&object)));
        }
        for (file, text) in self.texts {
            files.push((file, scrubbed(&redact(&text))));
        }
        let changes = bounded(&mut files, self.limits);
        self.errors.extend(changes);
        let missing = self.errors.len();
        let errors: Vec<_> = self
            .errors
            .iter()
            .map(|why| scrubbed(&redact(why)))
            .collect();
        let version = env!("CARGO_PKG_VERSION");
        let about = format!("{README}\nipu-operator {version}, {now}\n");
        files.insert(0, ("README.txt".to_owned(), about));
        files.push(("errors.txt".to_owned(), errors.join("\n") + "\n"));
        Contents { files, missing }
    }

    fn miss(&mut self, file: &str, why: &str) {
        self.errors.push(format!("{file}: {why}"));
    }
}

/// Truncates and omits files to meet the limits. Returns a line for each change.
fn bounded(files: &mut Vec<(String, String)>, limits: Limits) -> Vec<String> {
    let (mut size, mut changes) = (0, Vec::new());
    files.retain_mut(|(file, text)| {
        if text.len() > limits.file {
            // The end of a log is the most useful part.
            if file.starts_with(LOGS) {
                let begin = text.len() - limits.file;
                *text = text.split_off(text.ceil_char_boundary(begin));
                changes.push(format!("{file}: only its last {} bytes", limits.file));
            } else {
                text.truncate(text.floor_char_boundary(limits.file));
                changes.push(format!("{file}: cut after {} bytes", limits.file));
            }
        }
        let fits = size + text.len() <= limits.all;
        if fits {
            size += text.len();
        } else {
            let all = limits.all;
            let why = format!("{file}: left out, since a bundle may have {all} bytes");
            changes.push(why);
        }
        fits
    });
    changes
}

fn yaml(object: &Value) -> String {
    serde_saphyr::to_string(object).unwrap_or_else(|_| object.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(file: &str, form: Form) -> Read {
        Read {
            file: file.to_owned(),
            path: String::new(),
            form,
        }
    }

    #[test]
    fn a_value_of_one_object_is_taken_out_of_everything() {
        let mut bundle = Bundle::default();
        let log = r#"{"message": "refused hunter\"two-hunter", "n": 1}"#.to_owned();
        bundle.add(read("a.log", Form::Text), Ok(log));
        let pod = json!({"env": [{"name": "KEY", "value": "hunter\"two-hunter"}]}).to_string();
        bundle.add(read("pod.yaml", Form::Objects), Ok(pod));
        let why = "forbidden: hunter\"two-hunter".to_owned();
        bundle.add(read("nodes.yaml", Form::Nodes), Err(why));
        let more = json!({"metadata": {"continue": "x"}, "items": []}).to_string();
        bundle.add(read("more.yaml", Form::Objects), Ok(more));
        bundle.add(read("half.yaml", Form::Objects), Ok("{".to_owned()));
        let contents = bundle.finish("now");
        assert_eq!(contents.missing, 3);
        let all: Vec<_> = contents.files[1..]
            .iter()
            .map(|(file, text)| format!("# {file}\n{text}"))
            .collect();
        let all = all.join("\n");
        assert!(!all.contains("two-hunter"), "{all}");
        insta::assert_snapshot!(all);
    }

    #[test]
    fn a_bundle_has_a_largest_size() {
        let limits = Limits {
            file: 100,
            all: 350,
        };
        let mut bundle = Bundle {
            limits,
            ..Bundle::default()
        };
        for number in 0..5 {
            let text = "ä line\n".repeat(20);
            bundle.add(read(&format!("{number}.log"), Form::Text), Ok(text));
        }
        let text = "early\n".repeat(20) + "late";
        bundle.add(read("logs/a.log", Form::Text), Ok(text));
        let contents = bundle.finish("now");
        let names: Vec<_> = contents.files.iter().map(|(file, _)| file).collect();
        assert_eq!(
            names,
            ["README.txt", "0.log", "1.log", "2.log", "errors.txt"]
        );
        let (_, errors) = contents.files.last().unwrap();
        assert!(errors.contains("0.log: cut after 100 bytes"), "{errors}");
        assert!(errors.contains("4.log: left out"), "{errors}");
        assert!(
            errors.contains("logs/a.log: only its last 100 bytes"),
            "{errors}"
        );
        let mut log = vec![("logs/a.log".to_owned(), "early, then late".to_owned())];
        bounded(&mut log, Limits { file: 4, all: 9 });
        assert_eq!(log[0].1, "late");
    }
}
