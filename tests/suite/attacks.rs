//! Checks the page about attacks and faults: each test that it names is a function of the file that its link names.

use std::fs;

use crate::sources::repository;

/// The page.
const PAGE: &str = "tests/attacks.md";

/// The names of tests in the page, each with the path of its link. `None`: the name is not the text of a link.
fn named(text: &str) -> Vec<(&str, Option<&str>)> {
    let names = text.split('`').skip(1).step_by(2);
    let after = text.split('`').skip(2).step_by(2);
    let path = after.map(|after| after.strip_prefix("](")?.split(')').next());
    names.zip(path).collect()
}

#[test]
fn each_test_of_the_page_is_a_function_of_the_file_of_its_link() {
    let page = repository().join(PAGE);
    let text = fs::read_to_string(&page).unwrap();
    let named = named(&text);
    assert!(named.len() >= 40, "only {} tests are named", named.len());
    for (name, path) in named {
        let path = path.unwrap_or_else(|| panic!("{PAGE}: `{name}` has no link to its file"));
        let code = fs::read_to_string(page.with_file_name(path))
            .unwrap_or_else(|error| panic!("{PAGE}: {path}: {error}"));
        assert!(
            code.contains(&format!("fn {name}(")),
            "{PAGE}: {path} has no function `{name}`; name the test as it is now"
        );
    }
}
