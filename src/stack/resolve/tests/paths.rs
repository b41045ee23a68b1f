//! Names of files that are made of variables.

use super::*;

#[test]
fn content_is_given_to_numbers_only() {
    let text = "services:\n  app: {image: a, configs: [{source: c, uid: www, gid: '33'}]}\nconfigs: {c: {content: x}}\n";
    assert_eq!(
        Case::new(text).problems(),
        ["compose.yaml:2:46: services.app.configs[0].uid: `www` is not a number such as 1000"]
    );
}

#[test]
fn paths_of_includes_take_variables_of_the_environment_and_of_dotenv() {
    let case = Case::new(
        "include:\n  - ${WHERE:-sub}/compose.yaml\n  - {path: 'b/${B}.yaml', project_directory: 'b/${FOLDER}', env_file: '${ENV}.env'}\nservices:\n  app: {image: a}\n",
    )
    .file(".env", "B=more\nFOLDER=home\n")
    .file("sub/compose.yaml", "services:\n  db: {image: d}\n")
    .file("b/more.yaml", "services:\n  web: {image: 'w:${TAG}', env_file: v.env}\n")
    .file("b/home/v.env", "A=1\n")
    .file("x.env", "TAG=9\n")
    .environment("ENV", "x");
    let resolution = case.resolution();
    let stack = &resolution.stack;
    assert_eq!(stack.services["web"].image, "w:9");
    assert_eq!(stack.services["web"].environment["A"], "1");
    assert!(stack.services.contains_key("db"));
    assert!(resolution.variables.contains("WHERE"));
}

#[test]
fn paths_of_extended_files_take_variables_and_their_own_folder() {
    let case = Case::app("extends: {file: '${BASE}/base.yaml', service: web}")
        .file(
            "lib/base.yaml",
            "services:\n  web: {image: a, env_file: v.env, volumes: ['./conf:/conf:ro'], extends: {file: '../${TOP}.yaml', service: top}}\n",
        )
        .file("lib/v.env", "A=1\n")
        .file("lib/conf/x", "")
        .file("top.yaml", "services:\n  top: {cpus: 2}\n")
        .environment("BASE", "lib")
        .environment("TOP", "top");
    let service = case.service();
    assert_eq!((service.cpus, &*service.environment["A"]), (Some(2.0), "1"));
    let crate::stack::MountSource::Bind { source } = &service.mounts[0].source else {
        panic!()
    };
    assert!(source.ends_with("lib/conf"), "{}", source.display());
}

#[test]
fn a_setting_may_name_a_file_since_all_cells_have_it() {
    let case = Case::new("include: ['${lib}.yaml']\nservices:\n  app: {image: a}\n")
        .file("base.yaml", "services:\n  db: {image: b}\n")
        .setting("lib", "base");
    assert_eq!(case.stack().services.len(), 2);
}

#[test]
fn what_differs_from_cell_to_cell_cannot_name_a_file() {
    let case = Case::new("include: ['${tag:-sub}.yaml']\nservices:\n  app: {image: a}\n")
        .file("sub.yaml", "services: {}\n");
    assert_eq!(case.stack().services.len(), 1);
    assert_eq!(
        case.cell("tag", "1").problems(),
        [
            "compose.yaml:1:11: include: `tag` differs from cell to cell, and which files are read cannot\n  hint: use a variable of the environment or of .env here"
        ]
    );
    for (path, what) in [
        (
            "'${NONE}'",
            "compose.yaml:1:11: include: the path is empty: `NONE` has no value",
        ),
        (
            "'${NONE:?say where}.yaml'",
            "required variable `NONE` has no value: say where",
        ),
        ("'${NONE'", "include: "),
        ("{path: {a: b}}", "include.path: must be a path, not a map"),
    ] {
        let problems = Case::new(&format!(
            "include: [{path}]\nservices:\n  app: {{image: a}}\n"
        ))
        .problems();
        assert_eq!(problems.len(), 1, "{path}: {problems:?}");
        assert!(problems[0].contains(what), "{path}: {problems:?}");
    }
}
