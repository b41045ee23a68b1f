//! What is mounted, and what of the user's must not be written to.

use super::*;
use crate::stack::{Mount, MountSource};

fn mount(target: &str, source: MountSource, read_only: bool) -> Mount {
    Mount {
        target: target.into(),
        source,
        read_only,
    }
}

#[test]
fn volumes_in_every_form() {
    let case = Case::new(
        "services:\n  app:\n    image: a\n    tmpfs: /run:size=64m,mode=1777\n    volumes:\n      - data:/data\n      - ./conf:/conf:ro,z\n      - ~/x:/x:ro\n      - /anonymous\n      - {type: tmpfs, target: /t, tmpfs: {size: 1m}}\n      - {type: bind, source: ./conf/f, target: /f, read_only: true}\n      - {type: volume, source: data, target: /again, read_only: true}\nvolumes:\n  data:\n",
    )
    .file("conf/f", "")
    .file("home/x", "");
    let home = case.path().join("home").display().to_string();
    let case = case.environment("HOME", &home);
    let stack = case.stack();
    let named = || MountSource::Volume {
        source: "data".into(),
        nocopy: false,
    };
    let bind = |path: &str| MountSource::Bind {
        source: case.path().join(path),
    };
    assert_eq!(
        stack.services["app"].mounts,
        [
            mount("/data", named(), false),
            mount("/conf", bind("conf"), true),
            mount("/x", bind("home/x"), true),
            mount("/anonymous", MountSource::Anonymous, false),
            mount(
                "/t",
                MountSource::Tmpfs {
                    size: Some(1 << 20),
                    mode: None,
                    options: Vec::new(),
                },
                false
            ),
            mount("/f", bind("conf/f"), true),
            mount("/again", named(), true),
            mount(
                "/run",
                MountSource::Tmpfs {
                    size: Some(64 << 20),
                    mode: Some(0o1777),
                    options: Vec::new(),
                },
                false
            ),
        ]
    );
    assert_eq!(stack.volumes.len(), 1);
    assert!(stack.warnings[0].contains("SELinux"));
}

#[test]
fn nothing_of_the_users_is_writable_unless_shared() {
    let text = "services:\n  app:\n    image: a\n    volumes:\n      - ./data:/data\n      - ext:/ext\n      - disk:/disk\nvolumes:\n  ext: {external: true, name: precious}\n  disk: {driver: local, driver_opts: {type: none, o: bind, device: /srv/disk}}\n";
    let mut case = Case::new(text).file("data/x", "");
    let problems = case.problems();
    assert_eq!(problems.len(), 3);
    assert!(
        problems[0].starts_with("compose.yaml:5:9: writable_mount: service `app` could write to `")
    );
    for (problem, source) in problems.iter().zip(["/data`", "`precious`", "`/srv/disk`"]) {
        assert!(problem.contains(": writable_mount: "), "{problem}");
        assert!(problem.contains(source), "{problem}");
        assert!(problem.ends_with(
            "hint: make it read only (`:ro`), use a named volume, or list it in `[trials] shared`"
        ));
    }
    let (absolute, home) = (
        case.path().join("data").display().to_string(),
        case.path().display().to_string(),
    );
    for shared in [
        ["./data", "ext", "disk"],
        ["data/", "precious", "/srv"],
        [&absolute, "ext", "/srv/disk"],
        ["~/data", "ext", "disk"],
    ] {
        let stack = case.shared_now(&shared, &home).stack();
        assert_eq!(stack.volumes["ext"].external.as_deref(), Some("precious"));
        assert!(!stack.services["app"].mounts[0].read_only);
    }
    let read_only = text
        .replace("/data\n", "/data:ro\n")
        .replace(":/ext", ":/ext:ro")
        .replace(":/disk", ":/disk:ro");
    Case::new(&read_only).file("data/x", "").stack();
}

#[test]
fn a_volume_that_stands_for_something_outside_is_found_in_every_form() {
    for (definition, outside) in [
        ("{external: {name: old}}", "`old`"),
        ("{external: 'true'}", "`v`"),
        ("{driver_opts: {o: bind, device: /srv}}", "`/srv`"),
        (
            "{driver_opts: {type: nfs, device: ':/export'}}",
            "`:/export`",
        ),
    ] {
        let text = format!(
            "services:\n  app: {{image: a, volumes: ['v:/v']}}\nvolumes: {{v: {definition}}}\n"
        );
        let problems = Case::new(&text).problems();
        assert!(
            problems[0].contains("writable_mount") && problems[0].contains(outside),
            "{problems:?}"
        );
    }
    for definition in [
        "{external: false}",
        "{driver_opts: {type: tmpfs, device: tmpfs}}",
        "{}",
        "",
    ] {
        let text = format!(
            "services:\n  app: {{image: a, volumes: ['v:/v']}}\nvolumes: {{v: {definition}}}\n"
        );
        assert_eq!(
            Case::new(&text).stack().volumes["v"].external,
            None,
            "{definition}"
        );
    }
}

#[test]
fn sharing_one_folder_does_not_share_its_neighbours() {
    let case = Case::app("image: a\nvolumes: ['./data-2:/d']")
        .file("data-2/x", "")
        .shared(&["./data", "data"]);
    assert!(case.problems()[0].contains("writable_mount"));
}

#[test]
fn mounts_that_cannot_be_are_refused() {
    for (volume, what) in [
        ("./none:/x:ro", "does not exist on this host"),
        ("nowhere:/x", "the volume `nowhere` is not declared"),
        (
            "${NONE}:/x",
            "`:/x` has an empty source: `NONE` has no value",
        ),
        ("/x:rel", "the target `rel` must be an absolute path"),
        ("a:b:c:d", "is not source:target:mode"),
        ("d:/x:rx", "`rx` is not a mode"),
        ("~other/x:/x:ro", "`~name` is not supported"),
        ("~/x:/x:ro", "needs HOME"),
    ] {
        let text = format!(
            "services:\n  app:\n    image: a\n    volumes: ['{volume}']\nvolumes: {{d: }}\n"
        );
        let problems = Case::new(&text).problems();
        assert_eq!(problems.len(), 1, "{volume}: {problems:?}");
        assert!(problems[0].contains(what), "{volume}: {problems:?}");
    }
    let problems = Case::app("image: a\nvolumes: [/x]\ntmpfs: [/x/, '/y:odd']").problems();
    assert!(
        problems[0].contains("`/x/` is mounted twice")
            && problems[1].contains("`odd` is not an option of a tmpfs"),
        "{problems:?}"
    );
}

#[test]
fn a_socket_is_refused_writable_and_named_read_only() {
    let case = Case::app("image: a\nvolumes: ['./s.sock:/s.sock:ro']");
    let _socket = std::os::unix::net::UnixListener::bind(case.path().join("s.sock")).unwrap();
    assert!(case.stack().warnings[0].contains("is a socket"));
    let case = Case::app("image: a\nvolumes: ['./s.sock:/s.sock']");
    let _socket = std::os::unix::net::UnixListener::bind(case.path().join("s.sock")).unwrap();
    assert!(case.problems()[0].contains("writable_mount"));
}
