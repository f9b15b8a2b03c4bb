//! Sums of states, cuts, gaps, and clocks that are set back.

use std::time::Duration;

use proptest::prelude::*;

use super::super::ipu_states::IpuGroup;
use super::*;

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn free(total: u32) -> ControllerUse {
    ControllerUse {
        total: Some(total),
        ..ControllerUse::default()
    }
}

fn running(total: u32, ipus: u32) -> ControllerUse {
    let partition = IpuGroup {
        namespace: "team".into(),
        ipus,
        state: IpuState::Running,
    };
    ControllerUse {
        partitions: vec![partition],
        ..free(total)
    }
}

/// The states that are not 0, with their seconds.
fn shown(account: &Account) -> Vec<(&'static str, String)> {
    let seconds = account.seconds().into_iter();
    seconds
        .map(|(state, seconds)| (state.name(), format!("{seconds:.3}")))
        .filter(|(_, seconds)| seconds != "0.000")
        .collect()
}

fn expected(states: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let states = states.iter();
    states
        .map(|(state, seconds)| (*state, (*seconds).to_owned()))
        .collect()
}

/// An account of a controller with 16 IPUs, which began with the hour.
fn account() -> Account {
    let mut account = Account::begin(at("2026-01-01T11:59:59.400Z"));
    account.observe(&free(16), at("2026-01-01T11:59:59.400Z"));
    account
}

#[test]
fn a_state_counts_until_the_next_observation() {
    let mut account = account();
    account.observe(&running(16, 4), at("2026-01-01T12:00:10.250Z"));
    account.observe(&running(16, 4), at("2026-01-01T12:00:10.500Z"));
    account.observe(&free(16), at("2026-01-01T12:00:20.750Z"));
    account.observe(&free(16), at("2026-01-01T12:00:30.999Z"));
    let states = [("running", "42.000"), ("free", "438.000")];
    assert_eq!(shown(&account), expected(&states));
    let status = account.status();
    assert_eq!(status.since.0, at("2026-01-01T12:00:00Z"));
    assert_eq!(status.until.0, at("2026-01-01T12:00:30Z"));
    assert_eq!(status.total.namespaces[0].namespace, "team");
    assert_eq!(status.hours, vec![status.total.clone()]);
}

#[test]
fn the_next_leader_continues_and_the_time_between_is_unknown() {
    let mut before = account();
    before.observe(&running(16, 4), at("2026-01-01T12:00:10Z"));
    before.observe(&running(16, 4), at("2026-01-01T12:00:20.700Z"));
    // The contents of a status survive serialization.
    let text = serde_json::to_string(&before.status()).unwrap();
    let status: Accounting = serde_json::from_str(&text).unwrap();
    for capacity in [0, 16] {
        let mut account = Account::resume(&status, capacity);
        assert_eq!(account.status(), status);
        account.observe(&running(16, 4), at("2026-01-01T12:00:25.500Z"));
        account.observe(&running(16, 4), at("2026-01-01T12:00:30Z"));
        let states = [
            ("running", "58.000"),
            ("unknown", "88.000"),
            ("free", "334.000"),
        ];
        assert_eq!(shown(&account), expected(&states), "{capacity}");
    }
}

#[test]
fn a_replica_that_stops_counts_until_then() {
    let mut account = account();
    account.observe(&running(16, 4), at("2026-01-01T12:00:10Z"));
    account.count_until(at("2026-01-01T12:00:14Z"));
    assert_eq!(account.status().until.0, at("2026-01-01T12:00:14Z"));
    account.observe(&free(16), at("2026-01-01T12:00:20Z"));
    let states = [("running", "40.000"), ("free", "280.000")];
    assert_eq!(shown(&account), expected(&states));
    // Such a long time was not observed.
    account.count_until(at("2026-01-01T12:05:00Z"));
    assert_eq!(account.status().until.0, at("2026-01-01T12:00:20Z"));
    // Neither has a replica that has not observed anything.
    let mut resumed = Account::resume(&account.status(), 16);
    resumed.count_until(at("2026-01-01T12:00:30Z"));
    assert_eq!(resumed.status(), account.status());
}

#[test]
fn a_time_that_nobody_has_seen_is_unknown() {
    let mut account = account();
    account.observe(&running(16, 4), at("2026-01-01T12:00:10Z"));
    account.observe(&running(16, 4), at("2026-01-01T14:00:10Z"));
    account.observe(&running(16, 4), at("2026-01-01T14:00:20Z"));
    let states = [
        ("running", "40.000"),
        ("unknown", "115200.000"),
        ("free", "280.000"),
    ];
    assert_eq!(shown(&account), expected(&states));
    assert_eq!(account.status().hours.len(), 3);
}

#[test]
fn a_clock_that_is_set_back_counts_no_time_twice() {
    let mut account = account();
    account.observe(&running(16, 16), at("2026-01-01T12:00:10Z"));
    account.observe(&running(16, 16), at("2026-01-01T11:00:10Z"));
    account.observe(&free(16), at("2026-01-01T12:00:09Z"));
    account.observe(&free(16), at("2026-01-01T12:00:12Z"));
    let states = [("free", "192.000")];
    assert_eq!(shown(&account), expected(&states));
    // It was days ahead, so the earlier counts prove nothing.
    account.observe(&free(16), at("2025-12-01T12:00:00Z"));
    assert_eq!(shown(&account), expected(&[]));
    assert_eq!(account.status().since.0, at("2025-12-01T12:00:00Z"));
}

#[test]
fn a_controller_that_does_not_answer_has_the_ipus_that_it_had() {
    let mut account = account();
    let down = ControllerUse::default();
    account.observe(&down, at("2026-01-01T12:00:10Z"));
    account.observe(&free(8), at("2026-01-01T12:00:20Z"));
    account.observe(&free(8), at("2026-01-01T12:00:30Z"));
    let states = [("unhealthy", "160.000"), ("free", "240.000")];
    assert_eq!(shown(&account), expected(&states));
}

fn state() -> impl Strategy<Value = IpuState> {
    prop::sample::select(&IpuState::ALL[..7])
}

fn observation() -> impl Strategy<Value = ControllerUse> {
    let namespace = (0..40_u8).prop_map(|number| format!("n{number}"));
    let group = (namespace, 0..40_u32, state()).prop_map(|(namespace, ipus, state)| IpuGroup {
        namespace: namespace.into(),
        ipus,
        state,
    });
    let total = prop::option::weighted(0.8, prop::sample::select(&[0_u32, 16, 32, 64][..]));
    let partitions = prop::collection::vec(group, 0..6);
    (total, 0..20_u32, partitions, any::<bool>()).prop_map(
        |(total, others, partitions, is_stranded)| ControllerUse {
            total,
            others,
            partitions,
            is_stranded,
        },
    )
}

/// Milliseconds until the next observation: within a second, within the limit, beyond it, over
/// days, and back.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0..1_500_i64,
        4 => 0..=UNSEEN_AFTER,
        1 => UNSEEN_AFTER..8 * 3_600_000,
        1 => 0..40 * 24 * 3_600_000_i64,
        1 => -2_000..0_i64,
    ]
}

fn sum(period: &ipu_api::accounting::Period) -> f64 {
    let namespaces = period.namespaces.iter();
    let allocated: f64 = namespaces.map(|one| one.seconds.total()).sum();
    allocated + period.unallocated.total()
}

proptest! {
    /// The sum of all states is the capacity times the time, over all of it and over each day,
    /// whatever is observed and however often another leader continues.
    #[test]
    fn states_add_up_to_capacity_times_time(
        steps in prop::collection::vec((step(), observation(), prop::bool::weighted(0.1)), 1..60),
    ) {
        let begin = at("2026-01-30T23:59:58.500Z");
        let mut now = begin.as_millisecond();
        let mut account = Account::begin(begin);
        account.observe(&free(16), begin);
        // IPU-milliseconds, by the second in which they begin to count.
        let (mut capacity, mut until, mut counted) = (16_u32, account.until, 0_i64);
        let mut open = Vec::<(i64, i64)>::new();
        for (step, observed, is_resumed) in steps {
            now += step;
            if is_resumed {
                account = Account::resume(&account.status(), capacity);
                (until, open) = (account.until, Vec::new());
            }
            // The size of the controller was unknown until now.
            if is_resumed && capacity == 0 {
                capacity = observed.total.unwrap_or(0);
            }
            account.observe(&observed, Timestamp::from_millisecond(now).unwrap());
            if now > until {
                open.push((now - until, i64::from(capacity)));
                until = now;
            }
            capacity = observed.total.unwrap_or(capacity);
            // An open state counts as soon as its second is over.
            let beyond = until.rem_euclid(1_000);
            let mut left = beyond;
            for (time, ipus) in mem::take(&mut open).into_iter().rev() {
                let stays = time.min(left);
                left -= stays;
                counted += (time - stays) * ipus;
                if stays > 0 {
                    open.insert(0, (stays, ipus));
                }
            }
            let status = account.status();
            let all = Duration::from_millis(u64::try_from(counted).unwrap()).as_secs_f64();
            prop_assert!((sum(&status.total) - all).abs() < 0.000_5, "{status:?}, not {all}");
            prop_assert!(status.total.namespaces.len() <= 33);
            prop_assert!(status.hours.len() <= 25 && status.days.len() <= 32);
            if status.days.len() < 32 {
                let days: f64 = status.days.iter().map(sum).sum();
                prop_assert!((days - all).abs() < 0.000_5, "{days}, not {all}");
            }
        }
    }
}
