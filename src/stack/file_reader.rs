//! Reading Compose files and the files they lead to.
//!
//! Follows `include` and `extends` to files, checks the top of each, and collects
//! every problem. Opens files only. Nothing is interpolated yet but the paths of
//! files, which cannot wait for a cell. Read next: [`super::files`].

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;

use super::dotenv::DotEnv;
use super::field::Field;
use super::files::{Layer, PathVariables, Project};
use super::node::{Map, Node, Source, Tag, Value};
use super::notes::Notes;
use super::variables::{Variables, interpolate};
use super::yaml;
use crate::problem::{Location, Problem, nearest};

/// `include` and `extends` may lead through this many files in a row.
const LONGEST_CHAIN: usize = 16;

/// Most `include` entries of all files; a file that includes itself twice would
/// otherwise be read 65,536 times before its chain is too long.
const MOST_INCLUDES: usize = 200;

/// The keys at the top of a Compose file.
const SECTIONS: [&str; 9] = [
    "version", "name", "services", "networks", "volumes", "secrets", "configs", "include",
    // Read by nobody: a started service that names one is refused.
    "models",
];

/// Reads files and what they lead to.
pub(super) struct FileReader<'a> {
    environment: &'a BTreeMap<String, String>,
    /// Values that are the same for all cells; no cell is known yet.
    settings: &'a IndexMap<String, String>,
    /// What the variables in paths led to.
    pub(super) paths: PathVariables,
    /// Compose files with their texts.
    pub(super) texts: Vec<(PathBuf, String)>,
    /// Files that `extends` refers to, by absolute path.
    pub(super) extended: IndexMap<PathBuf, Layer>,
    /// What is wrong.
    pub(super) problems: Vec<Problem>,
    n_includes: usize,
}

impl<'a> FileReader<'a> {
    /// A reader of files whose paths may have these variables.
    pub(super) fn new(
        environment: &'a BTreeMap<String, String>,
        settings: &'a IndexMap<String, String>,
    ) -> Self {
        Self {
            environment,
            settings,
            paths: PathVariables {
                settings: settings.clone(),
                ..PathVariables::default()
            },
            texts: Vec::new(),
            extended: IndexMap::new(),
            problems: Vec::new(),
            n_includes: 0,
        }
    }

    /// Reads files that are merged with each other; `parent` are the variables of
    /// the project that includes them.
    pub(super) fn project(
        &mut self,
        paths: &[PathBuf],
        folder: PathBuf,
        dotenv: Vec<DotEnv>,
        parent: Option<&Variables<'a>>,
        depth: usize,
    ) -> Project {
        let variables = self.variables(&dotenv, parent);
        let mut layers = Vec::new();
        for path in paths {
            for root in self.documents(path, &folder) {
                let includes = self.includes(&root, &variables, depth);
                let layer = Layer { root, includes };
                self.read_extended(&layer, &variables, depth);
                layers.push(layer);
            }
        }
        Project {
            folder,
            layers,
            dotenv,
        }
    }

    /// The variables that paths in a project's files may have.
    fn variables(&self, dotenv: &[DotEnv], parent: Option<&Variables<'a>>) -> Variables<'a> {
        let mut variables = Variables {
            cell: self.settings,
            environment: self.environment,
            dotenv: parent.map_or_else(IndexMap::new, |parent| parent.dotenv.clone()),
            project: String::new(),
        };
        for file in dotenv {
            // What is wrong in it is said when a cell is resolved.
            let values = file.evaluate(&variables, &mut Notes::default());
            for (name, value) in values {
                variables.dotenv.entry(name).or_insert(value);
            }
        }
        variables
    }

    /// The documents of one file, each checked to be a map of known sections.
    fn documents(&mut self, path: &Path, folder: &Path) -> Vec<Arc<Node>> {
        let text = match fs_err::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("the Compose file cannot be read: {error}");
                self.problems
                    .push(Problem::new(Location::start_of(path), message));
                return Vec::new();
            }
        };
        let source = Arc::new(Source {
            path: path.to_owned(),
            folder: folder.to_owned(),
            is_inline: false,
        });
        let documents = match yaml::parse(&source, &text) {
            Ok(documents) => documents,
            Err(problems) => {
                self.problems.extend(problems);
                Vec::new()
            }
        };
        if !self.texts.iter().any(|(known, _)| known == path) {
            self.texts.push((path.to_owned(), text));
        }
        let is_usable = |root: &Arc<Node>| check_top(root, &mut self.problems);
        documents.into_iter().filter(is_usable).collect()
    }

    /// Reads the `.env` of a folder, where it has one.
    pub(super) fn dotenv_beside(&mut self, folder: &Path) -> Vec<DotEnv> {
        let path = folder.join(".env");
        if path.is_file() {
            self.dotenv(&path)
        } else {
            Vec::new()
        }
    }

    fn dotenv(&mut self, path: &Path) -> Vec<DotEnv> {
        let text = match fs_err::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let message = format!("the environment file cannot be read: {error}");
                self.problems
                    .push(Problem::new(Location::start_of(path), message));
                return Vec::new();
            }
        };
        match DotEnv::parse(path, &text) {
            Ok(file) => vec![file],
            Err(problems) => {
                self.problems.extend(problems);
                Vec::new()
            }
        }
    }

    fn includes(
        &mut self,
        root: &Arc<Node>,
        variables: &Variables<'a>,
        depth: usize,
    ) -> Vec<Project> {
        let Some(include) = root.get("include").filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        let Value::List(items) = &include.value else {
            self.problem(
                include,
                format!("include: must be a list, not {}", include.kind()),
            );
            return Vec::new();
        };
        self.n_includes += items.len();
        if depth >= LONGEST_CHAIN || self.n_includes > MOST_INCLUDES {
            self.problem(
                include,
                "include: files include each other without end".to_owned(),
            );
            return Vec::new();
        }
        let mut projects = Vec::new();
        for item in items {
            projects.extend(self.include(item, variables, depth));
        }
        projects
    }

    fn include(
        &mut self,
        item: &Arc<Node>,
        variables: &Variables<'a>,
        depth: usize,
    ) -> Option<Project> {
        if let Some(map) = item.as_map() {
            for (key, entry) in map {
                if !matches!(&**key, "path" | "project_directory" | "env_file") {
                    let message = format!("include.{key}: there is no such key");
                    self.problems
                        .push(Problem::new(entry.mark.location(), message));
                }
            }
        }
        let paths = match item.get("path") {
            Some(paths) => self.file_paths(paths, "include.path", variables)?,
            None => self.file_paths(item, "include", variables)?,
        };
        let first = paths.first()?;
        let folder = match item.get("project_directory") {
            Some(node) => self
                .file_paths(node, "include.project_directory", variables)?
                .into_iter()
                .next()?,
            None => folder_of(first),
        };
        let dotenv = match item.get("env_file") {
            Some(node) => {
                let files = self.file_paths(node, "include.env_file", variables)?;
                files.iter().flat_map(|file| self.dotenv(file)).collect()
            }
            None => self.dotenv_beside(&folder),
        };
        Some(self.project(&paths, folder, dotenv, Some(variables), depth + 1))
    }

    /// One path or a list of them, absolute.
    fn file_paths(
        &mut self,
        node: &Arc<Node>,
        key: &'static str,
        variables: &Variables<'a>,
    ) -> Option<Vec<PathBuf>> {
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            Value::Scalar(_) | Value::Map(_) => std::slice::from_ref(node),
        };
        let mut paths = Vec::new();
        for item in items {
            let mut found = Notes::default();
            let plain = interpolate(&Field::root(key, item), variables, &mut found);
            let place = item.mark.location();
            let names = found.referred.iter().cloned();
            let names = names.map(|name| (name, key, place.clone()));
            self.paths.names.extend(names);
            let is_replaced = found.problems.is_empty();
            self.problems.append(&mut found.problems);
            self.paths.notes.absorb(found);
            if !is_replaced {
                return None;
            }
            match plain.as_text() {
                Some("") => {
                    let unset = Field::root(key, &plain).unset_reason();
                    self.problem(item, format!("{key}: the path is empty{unset}"));
                    return None;
                }
                Some(text) => paths.push(item.mark.folder().join(text)),
                None => {
                    self.problem(item, format!("{key}: must be a path, not {}", item.kind()));
                    return None;
                }
            }
        }
        Some(paths)
    }

    /// Reads the files that `extends` of a layer's services refers to.
    fn read_extended(&mut self, layer: &Layer, variables: &Variables<'a>, depth: usize) {
        for entry in layer.section("services").into_iter().flat_map(Map::values) {
            let Some(file) = entry.node.get("extends").and_then(|node| node.get("file")) else {
                continue;
            };
            let Some(path) = self
                .file_paths(file, "extends.file", variables)
                .and_then(|paths| paths.into_iter().next())
            else {
                continue;
            };
            if depth >= LONGEST_CHAIN {
                self.problem(
                    file,
                    "extends.file: files extend each other without end".to_owned(),
                );
            } else if !self.extended.contains_key(&path) {
                // The first document only: Compose looks a base up in one file.
                let documents = self.documents(&path, &folder_of(&path));
                if let Some(root) = documents.into_iter().next() {
                    let layer = Layer {
                        root,
                        includes: Vec::new(),
                    };
                    self.extended.insert(path, layer.clone());
                    self.read_extended(&layer, variables, depth + 1);
                }
            }
        }
    }

    fn problem(&mut self, node: &Node, message: String) {
        self.problems
            .push(Problem::new(node.mark.location(), message));
    }
}

/// Whether a document is a map of known sections; what is wrong is noted.
pub(super) fn check_top(root: &Arc<Node>, problems: &mut Vec<Problem>) -> bool {
    let Value::Map(entries) = &root.value else {
        let message = format!("a Compose file must be a map, not {}", root.kind());
        problems.push(Problem::new(root.mark.location(), message));
        return false;
    };
    for (key, entry) in entries {
        let place = entry.mark.location();
        if key.starts_with("x-") || matches!(&**key, "version" | "name" | "include") {
            continue;
        }
        if !SECTIONS.contains(&&**key) {
            let problem = Problem::new(place, format!("{key}: there is no such key"));
            problems.push(match nearest(key, SECTIONS) {
                Some(near) => problem.with_hint(format!("did you mean `{near}`?")),
                None => problem.with_hint(
                    "services stand under `services:`; keys of your own start with `x-`",
                ),
            });
        } else if entry.node.tag != Tag::None {
            problems.push(Problem::new(
                place,
                format!("{key}: a tag on a whole section is refused; tag its elements instead"),
            ));
        } else if entry.node.as_map().is_none() && !entry.node.is_null() {
            let kind = entry.node.kind();
            problems.push(Problem::new(
                place,
                format!("{key}: must be a map, not {kind}"),
            ));
        }
    }
    true
}

/// The folder of a file, absolute; the current folder for a bare name.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    absolute(folder)
}

/// The path from the root, `.` and `..` resolved by name alone.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}
