//! Gives random input to the parsers of the admin's list and of the replies of controllers.
//!
//! `IPU_OPERATOR_FUZZ_CASES` is the number of inputs of each property. A failure prints the
//! smallest input.

use proptest::prelude::*;

use super::generators::{answers, number};
use super::invariants::{check_bytes, check_departed, check_devices, check_list};
use super::proto;

/// Inputs for each property where the environment names no number.
const CASES: u32 = 1_000;

fn config() -> ProptestConfig {
    let asked = std::env::var("IPU_OPERATOR_FUZZ_CASES").ok();
    let cases = asked.map_or(CASES, |text| text.parse().expect("a number of cases"));
    ProptestConfig::with_cases(cases)
}

/// Pieces of lists, good and bad, in any order.
fn list() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "pod1", "pod2.example", "POD1", "10.5.0.1", "10.5.0", "[fd00::1]", "[fd00::g]", "fd00::1", ":", "8090",
            "0", "65536", "+1", "ipunode", "=", "a", "example.com/pod", "-", "- ", ",", "\n", "\r\n", "#",
            " ", "\t", "\\", "\"", "'", ".", "_", "é", "\u{0}", "\u{85}", "\u{2028}", "{", "}", "|",
        ]).prop_map(ToOwned::to_owned),
        4 => "(pod[1-3]|10\\.0\\.0\\.[1-9]|\\[fd00::[1-9]\\])(:80[0-9]{2})?:[a-z/.]{1,8}=[a-zA-Z0-9_.-]{0,5}(:(cluster|allocation)=[a-z0-9]{0,3})?[,\n]",
        1 => any::<String>(),
        1 => (60..70_usize).prop_map(|length| "x".repeat(length)),
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_list_of_controllers_loses_nothing_and_names_what_is_wrong(text in list()) {
        check_list(&text);
    }

    #[test]
    fn only_controllers_that_left_the_list_are_gone_or_renamed(
        text in list(),
        gone in prop::option::of(list()),
        renamed in prop::option::of(list()),
    ) {
        check_departed(&text, gone.as_deref(), renamed.as_deref());
    }

    #[test]
    fn any_reply_of_a_controller_is_counted_soundly(answers in answers()) {
        answers.check();
    }

    #[test]
    fn bytes_that_happen_to_be_replies_are_read_without_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        check_bytes(&bytes);
    }

    #[test]
    fn devices_are_reported_as_they_are_and_misfits_are_real(
        devices in 0..20_usize,
        text in any::<String>(),
        ipus in number(),
        gcds in number(),
    ) {
        let device = proto::IpuofDevice { ip: text.clone(), chip_id: text, ..Default::default() };
        let gcd = proto::partition_config::Gcd {
            devices: vec![device; devices],
            ..Default::default()
        };
        check_devices(gcd, ipus, gcds);
    }
}
