//! Tables of entries, and the property that garbage never costs a good entry.

use proptest::prelude::*;

use super::*;

fn names(text: &str) -> Vec<String> {
    parse(text).entries.into_iter().map(|c| c.name).collect()
}

fn entry(host: &str, port: u16, key: &str, value: &str) -> ControllerRef {
    ControllerRef {
        name: format!("{host}:{port}"),
        host: host.to_owned(),
        port,
        label_key: key.to_owned(),
        label_value: value.to_owned(),
    }
}

#[test]
fn the_forms_that_users_write_are_read() {
    let table = [
        (
            "pod001:8090:ipunode=node1,pod002:8091:ipunode=node2",
            vec![
                entry("pod001", 8090, "ipunode", "node1"),
                entry("pod002", 8091, "ipunode", "node2"),
            ],
        ),
        (
            "10.5.212.116:8090:ipunode=true",
            vec![entry("10.5.212.116", 8090, "ipunode", "true")],
        ),
        (
            "\n# the small one\n - pod1:8090:ipunode=pod1\n\n  pod2.example:8090:example.com/pod=pod2 # big\n",
            vec![
                entry("pod1", 8090, "ipunode", "pod1"),
                entry("pod2.example", 8090, "example.com/pod", "pod2"),
            ],
        ),
        ("pod1:ipunode=", vec![entry("pod1", 8090, "ipunode", "")]),
        (
            "POD1:8090:ipunode=A,\r\npod2.:8090:ipunode=B\r\n",
            vec![
                entry("pod1", 8090, "ipunode", "A"),
                entry("pod2.", 8090, "ipunode", "B"),
            ],
        ),
        ("", vec![]),
        (" ,\n,, \n#pod1:8090:ipunode=pod1", vec![]),
    ];
    for (text, entries) in table {
        let list = parse(text);
        assert_eq!(list.problems, [], "{text:?}");
        assert_eq!(list.entries, entries, "{text:?}");
    }
}

#[test]
fn an_entry_may_name_its_cluster_and_allocation() {
    let list = parse(
        "pod1:8090:ipunode=a:cluster=c1,[fd00::1]:ipunode=b:allocation=a.1:cluster=C_2,pod3:cluster=x",
    );
    assert_eq!(list.problems, []);
    assert_eq!(list.entries[0], entry("pod1", 8090, "ipunode", "a"));
    assert_eq!(list.entries[2], entry("pod3", 8090, "cluster", "x"));
    let scope = |cluster: &str, allocation: &str| CreateScope {
        cluster: cluster.to_owned(),
        allocation: allocation.to_owned(),
    };
    let expected = [
        ("[fd00::1]:8090".to_owned(), scope("C_2", "a.1")),
        ("pod1:8090".to_owned(), scope("c1", "")),
    ];
    assert_eq!(list.scopes, BTreeMap::from(expected));
}

#[test]
fn an_ipv6_host_loses_its_brackets_and_its_name_keeps_them() {
    let list = parse("[FD00:0::1]:8090:ipunode=a,[fd00::2]:ipunode=b");
    assert_eq!(list.entries[0].host, "fd00::1");
    assert_eq!(list.entries[0].name, "[fd00::1]:8090");
    assert_eq!(list.entries[1].name, "[fd00::2]:8090");
}

#[test]
fn each_broken_rule_is_named_with_its_place() {
    let table = [
        ("pod1:8090", "it has no node label"),
        ("pod1", "it has no node label"),
        (
            "pod1:http:ipunode=a",
            "port \"http\" is not a number from 1 to 65535",
        ),
        ("pod1:0:ipunode=a", "port \"0\""),
        ("pod1:+80:ipunode=a", "port \"+80\""),
        ("pod1:65536:ipunode=a", "port \"65536\""),
        ("pod1::ipunode=a", "port \"\""),
        (":8090:ipunode=a", "host \"\" is not a DNS name"),
        ("pod_1:8090:ipunode=a", "host \"pod_1\" is not a DNS name"),
        ("-pod:8090:ipunode=a", "host \"-pod\" is not a DNS name"),
        ("http://pod1:8090:ipunode=a", "host \"http://pod1\""),
        ("10.5.212:8090:ipunode=a", "is not an IPv4 address"),
        ("fd00::1:8090:ipunode=a", "IPv6 address in brackets"),
        ("[fd00::g]:8090:ipunode=a", "\"fd00::g\" is not an IPv6"),
        ("pod1:8090:=a", "label key \"\""),
        ("pod1:8090:a/b/c=a", "label key \"a/b/c\""),
        ("pod1:8090:-a=a", "label key \"-a\""),
        ("pod1:8090:ipunode=a b", "label value \"a b\""),
        (
            "pod1:8090:ipunode=a:c1",
            "\"c1\" after the node label is no option; write cluster=<name>",
        ),
        (
            "pod1:8090:ipunode=a:pod=c1",
            "\"pod=c1\" after the node label",
        ),
        ("pod1:8090:ipunode=a:", "\"\" after the node label"),
        (
            "pod1:8090:ipunode=a:cluster=",
            "cluster \"\" is not a name of 1 to 63",
        ),
        ("pod1:8090:ipunode=a:cluster", "cluster \"\" is not a name"),
        (
            "pod1:8090:ipunode=a:allocation=a b",
            "allocation \"a b\" is not a name",
        ),
        (
            "pod1:8090:ipunode=a:cluster=b:cluster=c",
            "it names a cluster twice",
        ),
        ("pod1:8090:ipunode=a=b", "label value \"a=b\""),
        ("pod1:8090:ipunode=a\\", "it ends with a backslash"),
        ("\"pod1:8090:ipunode=a\"", "it holds a quotation mark"),
    ];
    for (bad, rule) in table {
        let text = format!("first:8090:ipunode=x\n\n# why\nlast:8090:ipunode=y,{bad}");
        let list = parse(&text);
        assert_eq!(names(&text), ["first:8090", "last:8090"], "{bad:?}");
        assert_eq!(list.problems.len(), 1, "{bad:?}");
        let problem = &list.problems[0];
        assert!(problem.rule.contains(rule), "{bad:?}: {}", problem.rule);
        let place = format!("entry 3 on line 4 of controllers.yaml, {bad:?}: ");
        assert!(problem.to_string().starts_with(&place), "{problem}");
    }
}

#[test]
fn of_two_entries_for_one_controller_the_first_counts() {
    let list =
        parse("pod1:8090:ipunode=a, POD1:8090:ipunode=b, pod1:ipunode=c, pod1:8091:ipunode=d");
    let labels: Vec<_> = list.entries.iter().map(|c| &*c.label_value).collect();
    assert_eq!(labels, ["a", "d"]);
    assert_eq!(list.problems.len(), 2);
    assert_eq!(
        list.problems[0].to_string(),
        "entry 2 on line 1 of controllers.yaml, \"POD1:8090:ipunode=b\": pod1:8090 is already entry 1, \
         which takes precedence; remove one of the two"
    );
}

#[test]
fn a_thousand_entries_with_some_bad_ones_are_a_thousand_less_those() {
    let mut lines: Vec<String> = (1..=1_000)
        .map(|number| format!("- pod{number}:8090:ipunode=pod{number}"))
        .collect();
    assert_eq!(parse(&lines.join("\n")).entries.len(), 1_000);
    lines[99] = "- pod100:8090".to_owned();
    lines[499] = "- pod7:8090:ipunode=pod500".to_owned();
    lines[799] = "- ".to_owned();
    lines[899] = String::new();
    let list = parse(&lines.join("\n"));
    assert_eq!(list.entries.len(), 996);
    assert_eq!(list.entries[995].name, "pod1000:8090");
    let problems: Vec<_> = list.problems.iter().map(ToString::to_string).collect();
    let no_label = "it has no node label; write host:port:key=value, where nodes that reach the \
                    controller carry the label key=value";
    assert_eq!(
        problems,
        [
            format!("entry 100 on line 100 of controllers.yaml, \"pod100:8090\": {no_label}"),
            "entry 500 on line 500 of controllers.yaml, \"pod7:8090:ipunode=pod500\": pod7:8090 is already entry 7, \
             which takes precedence; remove one of the two"
                .to_owned(),
            format!("entry 800 on line 800 of controllers.yaml, \"-\": {no_label}"),
        ]
    );
}

#[test]
fn a_long_line_of_garbage_is_cut_in_the_message() {
    let list = parse(&"é".repeat(100_000));
    assert_eq!(list.problems[0].text.chars().count(), SHOWN_MAX + 1);
}

proptest! {
    #[test]
    fn anything_can_be_read(text in any::<String>()) {
        let list = parse(&text);
        for problem in list.problems {
            prop_assert!(problem.line <= text.lines().count());
        }
    }

    #[test]
    fn good_entries_survive_around_garbage(
        garbage in prop::collection::vec("[^,\n\r#]{0,40}", 0..8),
        newline in any::<bool>(),
    ) {
        let separator = if newline { "\n" } else { "," };
        let mut entries = Vec::new();
        for (index, garbage) in garbage.iter().enumerate() {
            entries.push(format!("good-{index}:8090:ipunode=good"));
            entries.push(garbage.clone());
        }
        let list = parse(&entries.join(separator));
        let good: Vec<_> = list
            .entries
            .iter()
            .filter(|entry| entry.host.starts_with("good-"))
            .map(|entry| entry.host.clone())
            .collect();
        let expected: Vec<_> = (0..garbage.len()).map(|index| format!("good-{index}")).collect();
        prop_assert_eq!(good, expected);
    }

    #[test]
    fn what_is_read_reads_the_same_again(
        host in "[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?(\\.[a-z]{1,5})?",
        port in 1..=u16::MAX,
        key in "[a-z]{1,10}",
        value in "[A-Za-z0-9]{0,10}",
    ) {
        prop_assume!(!host.bytes().all(|byte| byte.is_ascii_digit()));
        let list = parse(&format!("{host}:{port}:{key}={value}"));
        prop_assert_eq!(list.entries, [entry(&host, port, &key, &value)]);
    }
}
