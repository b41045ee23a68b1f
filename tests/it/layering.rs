//! The arrows between modules, as ARCHITECTURE.md draws them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules that anyone may use and that use nothing but each other.
const LEAVES: [&str; 10] = [
    "cpus",
    "placed",
    "problem",
    "reported",
    "scalar",
    "secret",
    "threshold",
    "tls",
    "toml_file",
    "units",
];

/// Who may use whom; `app` may use everything.
const ARROWS: [(&str, &[&str]); 12] = [
    ("matrix", &[]),
    ("stack", &[]),
    ("tree", &[]),
    ("engine", &["stack", "tree"]),
    ("measure", &[]),
    ("load", &["measure"]),
    ("event", &["matrix", "measure"]),
    ("results", &["matrix", "measure"]),
    (
        "sweep",
        &[
            "matrix", "stack", "engine", "load", "measure", "event", "results", "tree",
        ],
    ),
    ("chart", &["results"]),
    ("report", &["event", "load", "matrix", "measure", "results"]),
    ("cli", &[]),
];

/// The one home of each heavy crate.
const HOMES: [(&str, &[&str]); 11] = [
    ("bollard", &["engine"]),
    ("plotters", &["chart"]),
    ("png", &["chart"]),
    ("clap", &["cli", "main", "app"]),
    ("csv", &["results"]),
    ("rhai", &["matrix"]),
    ("saphyr_parser", &["stack"]),
    ("anyhow", &["main", "app"]),
    // HTTP/2 of the load; requests over TLS that ask whether a service is ready.
    ("hyper", &["load", "engine"]),
    ("rustls", &["tls", "load", "engine"]),
    ("tokio_rustls", &["load", "engine"]),
];

fn source_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("src can be listed") {
        let path = entry.expect("src can be listed").path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The top-level module a file belongs to: `src/load/open.rs` is `load`.
fn module_of(file: &Path) -> String {
    let relative = file
        .strip_prefix(source_root())
        .expect("files are under src");
    let first = relative
        .components()
        .next()
        .expect("a file has a name")
        .as_os_str()
        .to_string_lossy()
        .into_owned();
    first.strip_suffix(".rs").unwrap_or(&first).to_owned()
}

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Code without comment lines; doc links may point anywhere.
fn code_of(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("sources are text");
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn first_word(text: &str) -> String {
    let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    text.trim_start().chars().take_while(is_word).collect()
}

/// The items of a `use` list up to its closing brace; lists inside belong to their item.
fn items_of(list: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut depth = 0;
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().expect("there is always one").push(c);
    }
    items
}

/// The identifiers that follow each `prefix` in the code.
fn names_after(code: &str, prefix: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.match_indices(prefix)
        .filter(|(start, _)| !code[..*start].ends_with(is_word) && !code[..*start].ends_with('$'))
        .flat_map(|(start, _)| {
            let rest = &code[start + prefix.len()..];
            match rest.strip_prefix('{') {
                // `use crate::{a::B, c}`: the first word of each item.
                Some(list) => items_of(list).iter().map(|item| first_word(item)).collect(),
                None => vec![first_word(rest)],
            }
        })
        .filter(|name| !name.is_empty())
        .collect()
}

fn all_sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    source_files(&source_root(), &mut files);
    files.sort();
    files
}

#[test]
fn modules_use_only_what_lies_below_them() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    let mut wrong = Vec::new();
    for file in all_sources() {
        let module = module_of(&file);
        if ["app", "main", "lib"].contains(&module.as_str()) {
            continue;
        }
        for used in names_after(&code_of(&file), "crate::") {
            let is_leaf = LEAVES.contains(&used.as_str());
            let allowed = used == module
                || is_leaf
                || arrows
                    .get(module.as_str())
                    .is_some_and(|list| list.contains(&used.as_str()));
            if !allowed {
                wrong.push(format!("{}: {module} -> {used}", file.display()));
            }
        }
        assert!(
            LEAVES.contains(&module.as_str()) || arrows.contains_key(module.as_str()),
            "{module} has no place in the layers: give it one here and in ARCHITECTURE.md"
        );
    }
    assert!(wrong.is_empty(), "forbidden arrows:\n{}", wrong.join("\n"));
}

#[test]
fn each_heavy_crate_has_one_home() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        let module = module_of(&file);
        let code = code_of(&file);
        for (name, homes) in HOMES {
            let is_used = !names_after(&code, &format!("{name}::")).is_empty()
                || code.contains(&format!("use {name}"));
            if is_used && !homes.contains(&module.as_str()) {
                wrong.push(format!("{}: {name} belongs to {homes:?}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reader_of_use_lines_sees_each_form() {
    let code = "use crate::load::Target;\nuse crate::{engine::{Engine, Limits}, units};\nfn f() -> crate::event::Event { $crate::no }";
    let names: Vec<String> = names_after(code, "crate::").into_iter().collect();
    assert_eq!(names, ["engine", "event", "load", "units"]);
}
