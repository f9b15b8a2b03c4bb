//! Checks the commands of the documents: each block has a mark of the table in tests/README.md, and
//! a test runs each block that a test can run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use tests::documents::{
    API_SERVER, AUTHOR, EXAMPLE, KUEUE, NODES, PUBLISH_GUEST, QUEUES, REFUSED, REGISTRY, Typed,
    VERIFY_RELEASE, typed, typed_for_authors, typed_on_api_server,
};

use crate::sources::{documents, host_files, literals, repository};

/// The marks of all blocks of commands, by document without `.md`, as a Markdown parser finds them,
/// including those within a list and those with other fences.
fn marks() -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for (path, text) in documents() {
        let path = path.strip_prefix(repository()).unwrap().with_extension("");
        let events = Parser::new_ext(&text, Options::ENABLE_TABLES);
        let marks = events.filter_map(|event| match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(mark))) => Some(mark.into_string()),
            _ => None,
        });
        let marks: Vec<_> = marks.filter(|mark| is_of_commands(mark)).collect();
        all.insert(path.to_string_lossy().into_owned(), marks);
    }
    all
}

/// Whether a block is for a shell, in any spelling.
fn is_of_commands(mark: &str) -> bool {
    let shells = ["sh", "bash", "zsh", "shell", "console", "terminal"];
    let first = mark.split(|end: char| !end.is_ascii_alphanumeric()).next();
    first.is_some_and(|first| shells.contains(&first.to_lowercase().as_str()))
}

/// Documents with indented commands: those for contributors, most of them of the Makefile, and the
/// generated page of the chart.
const INDENTED: [&str; 4] = [
    "CONTRIBUTING.md",
    "README.md",
    "charts/ipu-operator/README.md",
    "tests/README.md",
];

/// Returns the lines of a text that no mark describes: commands after a prompt in a block that is
/// not for a shell, and indented blocks if they are not allowed.
fn unmarked(text: &str, may_indent: bool) -> Vec<String> {
    let mut found = Vec::new();
    // Whether the current block is indented. `None`: the text is in no block that is checked.
    let mut indented = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(mark))) => {
                indented = (!is_of_commands(&mark)).then_some(false);
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => indented = Some(true),
            Event::End(TagEnd::CodeBlock) => indented = None,
            Event::Text(lines) => {
                let is_found = |line: &&str| match indented {
                    Some(true) if !may_indent => true,
                    Some(_) => line.trim_start().starts_with("$ "),
                    None => false,
                };
                let lines = lines.lines().filter(|line| !line.trim().is_empty());
                found.extend(lines.filter(is_found).map(str::to_owned));
            }
            _ => {}
        }
    }
    found
}

/// The marks that tests/README.md lists.
fn known_marks() -> Vec<String> {
    let text = fs::read_to_string(repository().join("tests/README.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| mark "));
    let rows = rows.skip(2).map_while(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_block_of_commands_has_a_mark_that_is_known() {
    let known = known_marks();
    assert!(known.len() > 4, "{known:?}");
    for mark in [API_SERVER, AUTHOR, KUEUE, NODES, REFUSED, REGISTRY] {
        assert!(known.iter().any(|known| known == mark), "{mark}");
    }
    for (document, marks) in marks() {
        for mark in marks {
            assert!(known.contains(&mark), "{document}.md: ```{mark}");
        }
    }
}

#[test]
fn no_command_is_outside_a_block_of_commands() {
    for (path, text) in documents() {
        let path = path.strip_prefix(repository()).unwrap();
        let may_indent = INDENTED.iter().any(|name| Path::new(name) == path);
        let found = unmarked(&text, may_indent);
        assert!(
            found.is_empty(),
            "{}: put these lines into a block with a mark of tests/README.md, and their output into a block of its own: \
             {found:#?}",
            path.display()
        );
    }
}

/// Checks that all blocks of the documents with these marks are run, each once.
fn hold(typed: &[Typed], needing: &[&str]) {
    let marks = marks();
    for (document, marks) in &marks {
        let found = typed.iter().filter(|one| one.document == document);
        let times = found.clone().count();
        assert!(times <= 1, "{document}.md runs {times} times");
        let is_needed = |mark: &str| needing.contains(&mark);
        let wanted: Vec<_> = marks.iter().filter(|mark| is_needed(mark)).collect();
        let text = fs::read_to_string(repository().join(format!("{document}.md"))).unwrap();
        let blocks = found.flat_map(|one| one.blocks(&text));
        let blocks = blocks.map(|block| block.mark);
        let blocks: Vec<_> = blocks.filter(|mark| is_needed(mark)).collect();
        assert_eq!(
            blocks, wanted,
            "left: blocks of {document}.md that tests/src/documents.rs runs; right: its blocks"
        );
    }
    for one in typed {
        let there = marks.get(one.document).is_some_and(|all| !all.is_empty());
        assert!(there, "{}.md has no commands", one.document);
    }
}

#[test]
fn every_block_that_needs_nodes_is_typed_on_nodes() {
    hold(&typed(), &[NODES, REFUSED]);
}

#[test]
fn every_block_that_needs_an_api_server_is_typed_on_one() {
    hold(&typed_on_api_server(), &[API_SERVER]);
}

#[test]
fn every_block_for_authors_is_typed() {
    hold(&typed_for_authors(), &[AUTHOR]);
}

#[test]
fn every_block_that_needs_kueue_is_typed() {
    hold(&QUEUES, &[KUEUE]);
}

#[test]
fn every_block_that_needs_a_registry_is_typed() {
    hold(&[PUBLISH_GUEST, VERIFY_RELEASE], &[REGISTRY]);
}

/// Phrases of examples of output that are no texts of the code: two with a name or a kind, and the
/// text of a guest.
const OF_OTHERS: [&str; 3] = [
    "kubectl delete ipujob sweep",
    "pods in namespace",
    "the label is required",
];

/// The sequences of at least three words in a text that contain no number or name.
fn phrases(text: &str) -> Vec<String> {
    let mut phrases = vec![Vec::new()];
    for word in text
        .lines()
        .flat_map(|line| line.split_whitespace().chain(["|"]))
    {
        let plain = word.trim_end_matches([',', ':', ';', '.']);
        let is_of_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'\'';
        let is_word = !plain.is_empty() && plain.bytes().all(is_of_word);
        if let Some(phrase) = phrases.last_mut()
            && is_word
        {
            phrase.push(plain);
        }
        if plain != word || !is_word {
            phrases.push(Vec::new());
        }
    }
    let phrases = phrases.into_iter().filter(|phrase| phrase.len() > 2);
    phrases.map(|phrase| phrase.join(" ")).collect()
}

#[test]
fn an_example_of_output_has_the_phrases_of_the_code() {
    let code = host_files()
        .into_iter()
        .flat_map(|(_, code)| literals(&code));
    let code = code.map(|text| text.replace("\\\n", " "));
    let code: Vec<String> = code
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let mut found = 0;
    for (path, text) in documents() {
        let parts = text.split("\n```").skip(1).step_by(2);
        let examples = parts.filter_map(|part| part.strip_prefix(EXAMPLE));
        for example in examples {
            for phrase in phrases(example) {
                found += 1;
                let is_known = code.iter().any(|text| text.contains(&phrase));
                let is_of_others = OF_OTHERS.contains(&phrase.as_str());
                assert!(is_known || is_of_others, "{}: {phrase}", path.display());
            }
        }
    }
    assert!(found > 20, "only {found} phrases");
}

/// The maximum of words in the median page for users.
const MEDIAN_WORDS: usize = 600;

/// The maximum of words in any page for users: those of the median, and some for the rows of a
/// table.
const MOST_WORDS: usize = 700;

/// Pages with more words: the table of contents, the generated list of metrics, the guide to
/// networks, and the contract with its list of interfaces.
const LONGER: [&str; 4] = [
    "charts/ipu-operator/docs/README.md",
    "charts/ipu-operator/docs/metrics.md",
    "charts/ipu-operator/docs/networks.md",
    "wit/README.md",
];

/// The number of words of each page for users, but of the generated reference of the fields.
fn words_of_pages() -> BTreeMap<String, usize> {
    let folders = ["charts/ipu-operator/docs", "examples/docs", "crds", "wit"];
    let pages = documents().into_iter().filter_map(|(path, text)| {
        let path = path.strip_prefix(repository()).ok()?;
        let is_for_users = folders.iter().any(|folder| path.starts_with(folder));
        let is_page = is_for_users && !path.ends_with("REFERENCE.md");
        is_page.then(|| {
            let name = path.to_string_lossy().into_owned();
            (name, text.split_whitespace().count())
        })
    });
    pages.collect()
}

#[test]
fn the_median_page_answers_its_question_in_600_words() {
    let mut words: Vec<_> = words_of_pages().into_values().collect();
    words.sort_unstable();
    assert!(words.len() > 100, "only {} pages were read", words.len());
    let median = words[words.len() / 2];
    assert!(median <= MEDIAN_WORDS, "the median page has {median} words");
}

#[test]
fn no_other_page_is_longer() {
    let pages = words_of_pages().into_iter();
    let longer = pages.filter(|(_, words)| *words > MOST_WORDS);
    let longer: Vec<_> = longer.map(|(page, _)| page).collect();
    assert_eq!(
        longer, LONGER,
        "left: pages with more than {MOST_WORDS} words"
    );
}

#[test]
fn a_block_of_commands_is_recognised_however_it_is_spelt() {
    for mark in ["sh", "sh nodes", "sh,nodes", "bash", "Shell", "console"] {
        assert!(is_of_commands(mark), "{mark}");
    }
    for mark in ["", "yaml", "rust", "shared"] {
        assert!(!is_of_commands(mark), "{mark}");
    }
}

#[test]
fn a_command_after_a_prompt_or_an_indent_is_found() {
    let text = "A list:\n\n```text\n$ ls\na\n```\n\n```sh\n$ no prompt\n```\n\n    make test\n\n- one\n    more\n";
    assert_eq!(unmarked(text, false), ["$ ls", "make test"]);
    assert_eq!(unmarked(text, true), ["$ ls"]);
}
