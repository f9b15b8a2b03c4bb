//! The sources of a site of the documents, for mdBook: each page at its place in the repository, so
//! that its links hold, and a table of contents by role.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

use cluster::files::{At, FileError, make_dir, read, remove, write as write_file};

/// The table of contents, which lists each page in the row of a task.
const CONTENTS: &str = "charts/ipu-operator/docs/README.md";

/// The folder of pictures.
const PICTURES: &str = "charts/ipu-operator/docs/images";

/// The settings of mdBook. Links lead to `README.html`, so the preprocessor that renames such pages
/// is left out.
const BOOK: &str = "[book]\ntitle = \"IPU Operator\"\nlanguage = \"en\"\nsrc = \"src\"\n\n\
                    [build]\nbuild-dir = \"html\"\ncreate-missing = false\nuse-default-preprocessors = false\n\n\
                    [output.html.search]\nenable = true\n";

/// A page in the table of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    title: String,
    /// Its path in the repository.
    path: String,
    /// Whether another page answers the same task first.
    is_further: bool,
}

/// Writes the sources of the site into a folder. Returns the pages, by their paths in the
/// repository.
pub fn write(checkout: &Path, into: &Path) -> Result<Vec<String>, FileError> {
    let contents = read(&checkout.join(CONTENTS))?;
    let (summary, pages) = summary(&contents);
    let source = into.join("src");
    remove(into)?;
    make_dir(&source)?;
    write_file(&into.join("book.toml"), BOOK)?;
    write_file(&source.join("SUMMARY.md"), summary)?;
    let known: BTreeSet<_> = pages.iter().map(String::as_str).collect();
    let mut beside = BTreeSet::new();
    for page in &pages {
        let text = read(&checkout.join(page))?;
        let is_file = |path: &str| checkout.join(path).is_file();
        let linked = relinked(&text, page, &known, &is_file);
        put(&source.join(page), linked.text.as_bytes())?;
        beside.extend(linked.files);
    }
    let pictures = checkout.join(PICTURES);
    for entry in fs::read_dir(&pictures).at("read", &pictures)? {
        let name = entry.at("read", &pictures)?.file_name();
        beside.insert(format!("{PICTURES}/{}", name.to_string_lossy()));
    }
    for file in beside {
        let path = checkout.join(&file);
        put(&source.join(&file), &fs::read(&path).at("read", &path)?)?;
    }
    Ok(pages)
}

fn put(path: &Path, content: &[u8]) -> Result<(), FileError> {
    make_dir(path.parent().unwrap_or(path))?;
    write_file(path, content)
}

/// The table of contents of mdBook, and the paths of its pages.
fn summary(contents: &str) -> (String, Vec<String>) {
    let mut text = format!("# Summary\n\n[Documents]({CONTENTS})\n");
    let mut paths = vec![CONTENTS.to_owned()];
    for line in contents.lines() {
        if let Some(title) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n# {title}\n\n");
        }
        for page in pages_of_row(line) {
            let indent = if page.is_further { "  " } else { "" };
            let _ = writeln!(text, "{indent}- [{}]({})", page.title, page.path);
            paths.push(page.path);
        }
    }
    (text, paths)
}

/// The pages in a row of a table.
fn pages_of_row(line: &str) -> Vec<Page> {
    if !line.starts_with("| ") {
        return Vec::new();
    }
    let links = links(line).into_iter();
    let pages = links.filter_map(|link| {
        let path = within(CONTENTS, link.target)?;
        is_page(&path).then_some((link.text, path))
    });
    let page = |(index, (title, path)): (usize, (&str, String))| Page {
        title: title.to_owned(),
        path,
        is_further: index > 0,
    };
    pages.enumerate().map(page).collect()
}

/// A page with links for the site, and the files that it links to.
struct Linked {
    text: String,
    files: BTreeSet<String>,
}

/// A link to a folder leads to its page, and a link to something that is not on the site becomes
/// its text.
fn relinked(
    text: &str,
    page: &str,
    pages: &BTreeSet<&str>,
    is_file: &dyn Fn(&str) -> bool,
) -> Linked {
    let (mut linked, mut files, mut done) = (String::new(), BTreeSet::new(), 0);
    for link in links(text) {
        let path = within(page, link.target);
        let Some(path) = path.filter(|_| !link.target.starts_with('#')) else {
            continue;
        };
        if pages.contains(path.as_str()) {
            continue;
        }
        linked += &text[done..link.start];
        done = link.end;
        if pages.contains(format!("{path}/README.md").as_str()) {
            let target = link.target.trim_end_matches('/');
            let _ = write!(linked, "[{}]({target}/README.md)", link.text);
        } else if is_file(&path) && !is_page(&path) {
            linked += &text[link.start..link.end];
            files.insert(path);
        } else {
            linked += link.text;
        }
    }
    linked += &text[done..];
    Linked {
        text: linked,
        files,
    }
}

/// A link or the target of a picture in a text.
struct Link<'a> {
    text: &'a str,
    target: &'a str,
    start: usize,
    end: usize,
}

/// The links of a text that lead to files.
fn links(text: &str) -> Vec<Link<'_>> {
    let middles = text.match_indices("](");
    let links = middles.filter_map(|(middle, _)| {
        let start = text[..middle].rfind('[')?;
        let after = &text[middle + 2..];
        let target = &after[..after.find([')', ' ', '\n'])?];
        Some(Link {
            text: &text[start + 1..middle],
            target,
            start,
            end: middle + 2 + target.len() + 1,
        })
    });
    links.filter(|link| !link.target.contains("://")).collect()
}

/// The path in the repository to which a link of a page leads. `None`: out of the repository.
fn within(page: &str, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or_default();
    let folder = Path::new(page).parent()?;
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::Normal(part) => path.push(part),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(path.to_string_lossy().into_owned())
}

fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|kind| kind == "md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_of_a_row_is_above_the_others() {
        let contents = "## Start\n\n| you want to | page |\n| --- | --- |\n\
                        | begin | [first](a.md), [then](../../../b.md#x) |\n";
        let (summary, pages) = summary(contents);
        assert!(summary.ends_with(
            "\n# Start\n\n- [first](charts/ipu-operator/docs/a.md)\n  - [then](b.md)\n"
        ));
        assert_eq!(pages[1..], ["charts/ipu-operator/docs/a.md", "b.md"]);
    }

    #[test]
    fn links_that_do_not_lead_to_the_site_become_text() {
        let pages = BTreeSet::from(["docs/a.md", "docs/b/README.md"]);
        let text = "[a](a.md#x), [b](b), [c](../c.yaml), ![d](d.svg), [e](../host), [f](https://x.y), [g](#g).";
        let is_file = |path: &str| ["c.yaml", "docs/d.svg"].contains(&path);
        let linked = relinked(text, "docs/z.md", &pages, &is_file);
        let expected = "[a](a.md#x), [b](b/README.md), [c](../c.yaml), ![d](d.svg), e, [f](https://x.y), [g](#g).";
        assert_eq!(linked.text, expected);
        let files = ["c.yaml", "docs/d.svg"].map(str::to_owned);
        assert_eq!(linked.files, BTreeSet::from(files));
    }
}
