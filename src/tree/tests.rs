use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn write(root: &Path, name: &str, content: &[u8]) {
    let path = root.join(name);
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, content).unwrap();
}

/// One of everything: folders, an empty one, files, links of both kinds, a hole, a pipe.
fn sample() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root, "base/1/16384", &vec![7; 100_000]);
    write(root, "base/1/empty", b"");
    write(root, "PG_VERSION", b"15\n");
    fs_err::create_dir(root.join("pg_notify")).unwrap();
    fs_err::os::unix::fs::symlink("base/1", root.join("link")).unwrap();
    fs_err::os::unix::fs::symlink("/nowhere/at all", root.join("dangling")).unwrap();
    fs_err::hard_link(root.join("PG_VERSION"), root.join("base/same")).unwrap();
    let sparse = fs_err::File::create(root.join("sparse")).unwrap();
    sparse.set_len(12 << 20).unwrap();
    sparse.file().write_all_at(b"middle", 6 << 20).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    let bits = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        fs_err::set_permissions(root.join(name), permissions).unwrap();
    };
    bits("PG_VERSION", 0o4750);
    bits("pg_notify", 0o1711);
    bits(".", 0o700);
    folder
}

fn content_of(root: &Path) -> String {
    fingerprint(root, Depth::Content).unwrap().content.unwrap()
}

#[test]
fn a_copy_is_alike_in_everything() {
    let from = sample();
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("new/copy");
    let cloned = clone_tree(from.path(), &to, CloneMode::Copy).unwrap();
    assert_eq!(cloned.method, CloneMode::Copy);
    assert_eq!(
        fingerprint(from.path(), Depth::Content).unwrap(),
        fingerprint(&to, Depth::Content).unwrap()
    );
    let look = |root: &Path, name: &str| fs_err::symlink_metadata(root.join(name)).unwrap();
    for name in [
        ".",
        "base/1/16384",
        "PG_VERSION",
        "pg_notify",
        "link",
        "sparse",
        "pipe",
    ] {
        let (a, b) = (look(from.path(), name), look(&to, name));
        assert_eq!(a.mode(), b.mode(), "{name}");
        assert_eq!((a.uid(), a.gid()), (b.uid(), b.gid()), "{name}");
        assert_eq!(
            (a.mtime(), a.mtime_nsec()),
            (b.mtime(), b.mtime_nsec()),
            "{name}"
        );
    }
    assert_eq!(look(&to, "PG_VERSION").ino(), look(&to, "base/same").ino());
    assert!(
        look(&to, "sparse").blocks() * 512 < 1 << 20,
        "holes stay holes"
    );
}

#[test]
fn every_kind_of_difference_shows() {
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 8] = [
        ("a byte", |root| {
            let file = fs_err::OpenOptions::new()
                .write(true)
                .open(root.join("base/1/16384"));
            file.unwrap().file().write_all_at(b"!", 99_999).unwrap();
        }),
        ("a byte in a hole", |root| {
            let file = fs_err::OpenOptions::new()
                .write(true)
                .open(root.join("sparse"));
            file.unwrap().file().write_all_at(b"!", 9 << 20).unwrap();
        }),
        ("a new file", |root| write(root, "new", b"")),
        ("a missing file", |root| {
            fs_err::remove_file(root.join("base/1/empty")).unwrap();
        }),
        ("a longer file", |root| write(root, "base/1/empty", b"x")),
        ("permissions", |root| {
            let permissions = std::fs::Permissions::from_mode(0o644);
            fs_err::set_permissions(root.join("base/1/16384"), permissions).unwrap();
            let permissions = std::fs::Permissions::from_mode(0o755);
            fs_err::set_permissions(root.join("base/1/16384"), permissions).unwrap();
        }),
        ("where a link leads", |root| {
            fs_err::remove_file(root.join("link")).unwrap();
            fs_err::os::unix::fs::symlink("base/2", root.join("link")).unwrap();
        }),
        ("a name", |root| {
            fs_err::rename(root.join("pg_notify"), root.join("pg_notifx")).unwrap();
        }),
    ];
    for (what, change) in changes {
        let folder = sample();
        let before = content_of(folder.path());
        assert_eq!(before, content_of(folder.path()), "reading changes nothing");
        change(folder.path());
        assert_ne!(before, content_of(folder.path()), "{what}");
    }
}

#[test]
fn shape_alone_does_not_see_content_and_sees_the_rest() {
    let folder = sample();
    let shape = || fingerprint(folder.path(), Depth::Shape).unwrap();
    let before = shape();
    assert_eq!(before.content, None);
    write(folder.path(), "base/1/16384", &vec![8; 100_000]);
    assert_eq!(shape().shape, before.shape);
    write(folder.path(), "base/1/16384", &vec![8; 100_001]);
    assert_ne!(shape().shape, before.shape);
}

#[test]
fn a_single_file_has_a_fingerprint_too() {
    let folder = sample();
    let file = folder.path().join("base/1/16384");
    let before = content_of(&file);
    write(folder.path(), "base/1/16384", &vec![7; 100_001]);
    assert_ne!(content_of(&file), before);
}

#[test]
fn what_is_there_already_is_never_mixed_with_a_copy() {
    let (from, to) = (sample(), sample());
    let before = content_of(to.path());
    let error = clone_tree(from.path(), to.path(), CloneMode::Auto).unwrap_err();
    assert!(matches!(error, TreeError::NotEmpty { .. }), "{error}");
    assert_eq!(before, content_of(to.path()));
}

#[test]
fn auto_shares_or_copies_and_says_which() {
    let from = sample();
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("auto");
    let auto = clone_tree(from.path(), &to, CloneMode::Auto).unwrap();
    assert_eq!(content_of(from.path()), content_of(&to));
    let forced = clone_tree(
        from.path(),
        &place.path().join("reflink"),
        CloneMode::Reflink,
    );
    match (auto.method, forced) {
        (CloneMode::Reflink, Ok(forced)) => assert_eq!(forced.method, CloneMode::Reflink),
        (CloneMode::Copy, Err(error)) => {
            assert!(matches!(error, TreeError::NoReflink { .. }), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_answers_in_one_line_that_reads_back() {
    let from = sample();
    let place = tempfile::tempdir().unwrap();
    let names = ["base".to_owned(), "pg_notify".to_owned()];
    let job = TreeJob::Clone {
        from: from.path().to_owned(),
        to: place.path().to_owned(),
        mode: CloneMode::Auto,
        depth: Depth::Content,
        sync: true,
    };
    let answer = carry_out(&job, &names).unwrap();
    let line = serde_json::to_string(&answer).unwrap();
    assert_eq!(
        answer_of_log(&format!("a warning\n{line}\n")),
        Some(answer.clone())
    );
    assert_eq!(answer_of_log("nothing of ours"), None);
    let read = TreeJob::Fingerprint {
        at: from.path().to_owned(),
        depth: Depth::Content,
    };
    let original = carry_out(&read, &names).unwrap();
    for name in &names {
        assert!(original.trees[name].is_like(&answer.trees[name]), "{name}");
        assert_eq!(original.trees[name].method, None);
    }
    assert!(!original.trees["base"].is_like(&answer.trees["pg_notify"]));
}

#[test]
fn the_place_an_overlay_writes_to_looks_like_the_original() {
    let from = sample();
    let to = tempfile::tempdir().unwrap();
    let job = TreeJob::Scratch {
        from: from.path().to_owned(),
        to: to.path().to_owned(),
    };
    carry_out(&job, &["pg_notify".to_owned()]).unwrap();
    let upper = fs_err::metadata(to.path().join("pg_notify/upper")).unwrap();
    assert_eq!(upper.mode() & 0o7777, 0o1711);
    assert!(to.path().join("pg_notify/work").is_dir());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_tree_is_copied_alike(files in prop::collection::btree_map(
        "[a-c]{1,2}(/[a-c]{1,2}){0,2}/f[0-9]", prop::collection::vec(any::<u8>(), 0..3_000), 0..12,
    )) {
        let from = tempfile::tempdir().unwrap();
        for (name, content) in &files {
            write(from.path(), name, content);
        }
        let place = tempfile::tempdir().unwrap();
        let to = place.path().join("copy");
        clone_tree(from.path(), &to, CloneMode::Auto).unwrap();
        let read = |root: &Path| fingerprint(root, Depth::Content).unwrap();
        prop_assert_eq!(read(from.path()).content, read(&to).content);
        for (name, content) in &files {
            prop_assert_eq!(&fs_err::read(to.join(name)).unwrap(), content);
        }
    }
}
