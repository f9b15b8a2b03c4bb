//! The folder that several replicas share: writes at once, removal, and limit.

use futures::future::join_all;
use ipu_api::guest::digest::digest_of;

use super::*;

fn digest(number: u32) -> String {
    let digest = digest_of(number.to_string().as_bytes()).to_string();
    digest.trim_start_matches("sha256:").to_owned()
}

fn module(number: u32, length: usize) -> NamedFile {
    NamedFile {
        name: format!("{}.wasm", digest(number)),
        bytes: vec![0; length],
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Makes a file older than the grace period.
fn age(path: &Path) {
    let file = File::options().append(true).open(path).unwrap();
    let before = SystemTime::now() - GRACE * 2;
    file.set_modified(before).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_write_at_once_leave_whole_files() {
    let folder = tempfile::tempdir().unwrap();
    let replicas: Vec<_> = (0..4)
        .map(|_| SharedDir::new(folder.path().to_owned(), 1 << 20))
        .collect();
    let writes = replicas.iter().flat_map(|replica| {
        (0..4).map(|number| replica.store(vec![module(number, 4096), module(9, 4096)]))
    });
    for written in join_all(writes).await {
        written.unwrap();
    }
    let expected: BTreeSet<_> = [0, 1, 2, 3, 9].map(|number| module(number, 0).name).into();
    assert_eq!(names(folder.path()), expected);
    for name in expected {
        let written = fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!(written.len(), 4096);
    }
}

#[tokio::test]
async fn old_files_that_no_policy_names_are_removed_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let shared = SharedDir::new(folder.path().to_owned(), 1 << 20);
    let signature = format!("{}.signature-x", digest(2));
    let [named, unnamed, recent] = [1, 2, 3].map(|number| module(number, 1).name);
    let of_others = ["readme.txt", "x.wasm", "lost+found"];
    for name in [
        &*named,
        &*unnamed,
        &*signature,
        &*recent,
        "part-1",
        "part-2",
    ] {
        fs::write(path(name), b"x").unwrap();
    }
    for name in of_others {
        fs::create_dir(path(name)).unwrap();
        fs::write(path(name).join(&unnamed), b"x").unwrap();
        age(&path(name).join(&unnamed));
    }
    for name in [&*named, &*unnamed, &*signature, "part-1"] {
        age(&path(name));
    }
    shared.prune(None).await.unwrap();
    assert!(path(&unnamed).exists() && path(&signature).exists());
    assert!(!path("part-1").exists(), "its writer has ended");
    shared.prune(Some([digest(1)].into())).await.unwrap();
    let left = [&*named, &*recent, "part-2"].into_iter().chain(of_others);
    let left: BTreeSet<_> = left.map(str::to_owned).collect();
    assert_eq!(names(folder.path()), left);
}

#[tokio::test]
async fn a_full_folder_loses_unnamed_modules_and_refuses_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: u32| folder.path().join(module(number, 0).name);
    let shared = SharedDir::new(folder.path().to_owned(), 300);
    for number in [1, 2, 3] {
        shared.store(vec![module(number, 100)]).await.unwrap();
    }
    shared.prune(Some([digest(1)].into())).await.unwrap();
    let error = shared.store(vec![module(4, 100)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert!(error.to_string().contains("more than 300 bytes"), "{error}");
    // The same module is no addition, however large the file under its name is.
    fs::write(path(1), [0; 1_000]).unwrap();
    let error = shared.store(vec![module(4, 100)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    shared.store(vec![module(1, 100)]).await.unwrap();
    age(&path(2));
    shared.store(vec![module(4, 100)]).await.unwrap();
    assert!(!path(2).exists() && path(3).exists() && path(4).exists());
}

#[test]
fn age_counts_from_the_last_time_that_a_policy_named_the_module() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let write = |number: u32, modified: SystemTime| {
        let path = folder.path().join(format!("{}.wasm", digest(number)));
        fs::write(&path, b"a module").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
        path
    };
    let (last_week, in_a_year) = (now - GRACE * 84, now + GRACE * 4_380);
    let named = write(1, last_week);
    let unnamed = write(2, last_week);
    let forged = write(3, in_a_year);
    remove_unnamed(folder.path(), Some(&BTreeSet::from([digest(1)]))).unwrap();
    assert_eq!(
        [&named, &unnamed, &forged].map(|path| path.exists()),
        [true, false, false]
    );
    // No policy names it any more, for the first time.
    remove_unnamed(folder.path(), Some(&BTreeSet::new())).unwrap();
    assert!(named.exists());
}
