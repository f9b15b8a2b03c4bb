//! V-IPU controllers that list their partitions and do not answer removals.

use tokio::sync::Semaphore;

use super::*;

/// Starts a controller that accepts connections and never answers. A connection is noted like a
/// request to the API server, by the address of the controller.
async fn hung_controller(world: &Arc<Mutex<World>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (world, noted) = (Arc::clone(world), address.clone());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            world.lock().unwrap().asked.push(noted.clone());
            open.push(stream);
        }
    });
    address
}

/// A course that removes this partition, which no Pod uses.
fn removal(found: &Found) -> Course<IPUPartition, SweepError> {
    let (name, id) = found.key();
    let mut course = Course::new([], Vec::new());
    course.counted((name.to_owned(), id.to_owned()), 0);
    course
}

#[test]
fn a_controller_that_does_not_answer_a_removal_is_left_to_the_next_sweep() {
    let due = [("pod1", "a"), ("pod2", "b"), ("pod1", "c"), ("pod2", "d")];
    let due = due.map(|(controller, id)| (controller.to_owned(), id.to_owned()));
    let mut course = Course::<(), ()>::new([], due.to_vec());
    let mut removed = Vec::new();
    while let Some(task) = course.next_task() {
        match task {
            Task::Delete(()) => {}
            Task::Count(partition) => course.counted(partition, 0),
            Task::Remove(partition) => {
                removed.push(partition.1.clone());
                if partition.0 == "pod1" {
                    course.unanswered(partition);
                }
            }
        }
    }
    assert_eq!(removed, ["a", "b", "d"]);
    assert_eq!(course.take_unanswered(), due[..1]);
}

#[test]
fn a_partition_that_is_counted_while_another_removal_has_no_answer_is_left_too() {
    let due = [("pod1", "a"), ("pod1", "b"), ("pod1", "c")];
    let [a, b, c] = due.map(|(controller, id)| (controller.to_owned(), id.to_owned()));
    let mut course = Course::<(), ()>::new([], vec![a.clone(), b.clone(), c]);
    let begun = [(); 2].map(|()| course.next_task());
    assert_eq!(
        begun,
        [a.clone(), b.clone()].map(|partition| Some(Task::Count(partition)))
    );
    course.counted(a.clone(), 0);
    assert_eq!(course.next_task(), Some(Task::Remove(a.clone())));
    course.unanswered(a);
    course.counted(b, 0);
    assert_eq!(course.next_task(), None);
}

#[tokio::test]
async fn several_partitions_of_one_controller_are_judged_at_a_time() {
    let asked = Arc::new(Semaphore::new(0));
    let counted = Arc::clone(&asked);
    let no_answer = move |_: Request<Body>| {
        counted.add_permits(1);
        std::future::pending::<Result<Response<Body>, BoxError>>()
    };
    let client = Client::new(service_fn(no_answer), "default");
    let pool = pool_of("pod1:8090:ipunode=here").await;
    let due = (0..8).map(|number| ("pod1:8090".to_owned(), format!("p-{number}")));
    let mut course = Course::new([], due.collect());
    let leader = Replica::leading_for(Duration::from_hours(1), client, pool);
    let executor = leader.executor();
    let two = tokio::time::timeout(Duration::from_secs(30), asked.acquire_many(2));
    tokio::select! {
        () = executor.run(&[], &mut course) => panic!("no list is answered"),
        two = two => drop(two.expect("one waits for another").unwrap()),
    }
}

#[test]
fn each_controller_has_a_course_and_the_deletions_have_another() {
    let due = [("pod1", "a"), ("pod2", "b"), ("pod1", "c")];
    let due = due.map(|(controller, id)| (controller.to_owned(), id.to_owned()));
    let ownerless = [Ok(vec!["object"]), Err("no list")];
    let mut courses = Course::concurrent(ownerless, due.to_vec());
    let tasks = courses.iter_mut().map(|course| {
        let tasks = std::iter::from_fn(|| course.next_task());
        tasks.collect::<Vec<_>>()
    });
    let count = |index: usize| Task::Count(due[index].clone());
    assert_eq!(
        tasks.collect::<Vec<_>>(),
        [
            vec![Task::Delete("object")],
            vec![count(0), count(2)],
            vec![count(1)],
        ]
    );
    let errors = courses.into_iter().flat_map(Course::into_errors);
    assert_eq!(errors.collect::<Vec<_>>(), ["no list"]);
}

#[tokio::test]
async fn controllers_that_do_not_answer_removals_delay_no_other_and_no_deletion() {
    let world = Arc::new(Mutex::new(World::default()));
    let hung = [hung_controller(&world).await, hung_controller(&world).await];
    let entries = hung
        .each_ref()
        .map(|address| format!("{address}:ipunode=here"));
    let (client, pool) = (client(&world), pool_of(&entries.join(",")).await);
    let orphan = |controller: ControllerRef| Found {
        controller: Arc::new(controller),
        id: "p-orphan".to_owned(),
        is_in_error: false,
    };
    let found: Vec<Found> = pool.controllers().into_iter().map(orphan).collect();
    let mut courses: Vec<_> = found.iter().map(removal).collect();
    let ownerless = serde_json::from_value(partition("gone")).unwrap();
    courses.push(Course::new([Ok(vec![ownerless])], Vec::new()));
    let leader = Replica::leading_for(Duration::from_hours(1), client, pool);
    let executor = leader.executor();
    let deletion = "DELETE /apis/graphcore.ai/v1alpha1/ipupartitions/default.gone-0";
    let is_asked = |what: &str| world.lock().unwrap().asked.iter().any(|one| one == what);
    let once_all_asked = async {
        while !(is_asked(&hung[0]) && is_asked(&hung[1]) && is_asked(deletion)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let all_asked = tokio::time::timeout(Duration::from_secs(30), once_all_asked);
    tokio::select! {
        _ = executor.run_all(&found, courses) => panic!("no controller answers"),
        all_asked = all_asked => all_asked.expect("one delays the others"),
    }
}
