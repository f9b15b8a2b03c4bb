//! Number of writes of statuses.

use super::*;

#[test]
fn a_status_without_changes_is_not_written_again() {
    let a = listed("a:8090", 0);
    let objects = BTreeMap::from([("a-8090".to_owned(), object(Some(HERE), written(&a)))]);
    let last = BTreeMap::from([("a-8090".to_owned(), at(10_000 - 3_600))]);
    let plan = plan(&alone(std::slice::from_ref(&a), &objects, &last, 10_000));
    assert_eq!(plan.actions, []);
}

/// As in `docs/vipucontrollers.md`: 256 controllers with continuous changes cost two writes a
/// second, and the figures of each are at most 130 seconds old.
#[test]
fn the_figures_of_256_controllers_are_written_twice_a_second() {
    let address = |index: usize| format!("pod{index}:8090");
    let mut objects = BTreeMap::new();
    for index in 0..256 {
        let object = object(Some(HERE), written(&listed(&address(index), 0)));
        objects.insert(naming::vipu_controller(&address(index)), object);
    }
    let mut last = BTreeMap::new();
    let (mut writes, mut oldest) = (0, 0);
    for second in 1..=1_000_u32 {
        let now = at(i64::from(second));
        let controllers: Vec<_> = (0..256).map(|one| listed(&address(one), second)).collect();
        let plan = plan(&alone(&controllers, &objects, &last, i64::from(second)));
        for (name, action) in plan.actions {
            let Action::Write { status, .. } = action else {
                panic!("{action:?}");
            };
            let before = last.insert(name.clone(), now).unwrap_or(at(0));
            oldest = oldest.max(now.duration_since(before).as_secs());
            objects.get_mut(&name).unwrap().status = Some(*status);
            writes += 1;
        }
    }
    assert!((1_900..=2_020).contains(&writes), "{writes}");
    assert!(oldest <= 130, "{oldest}");
}
