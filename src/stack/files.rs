//! The Compose files of a stack, read once and resolved once per cell.
//!
//! Everything that stands still is done here: reading, parsing, `include`, the
//! files of `extends`, `.env`. Read next: [`super::resolve`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use super::dotenv::DotEnv;
use super::override_tree::{self, OverrideNode};
use super::template::Template;
use super::yaml::{self, Map, Node, Source, Tag, Value};
use crate::problem::{Location, Problem, Problems, nearest};

/// `include` and `extends` may lead through this many files in a row.
const LONGEST_CHAIN: usize = 16;

/// The keys at the top of a Compose file.
const SECTIONS: [&str; 8] = [
    "version", "name", "services", "networks", "volumes", "secrets", "configs", "include",
];

/// The Compose files of a stack, in the order in which they are merged.
#[derive(Debug, Clone)]
pub struct ComposeFiles {
    /// The files named by the user.
    pub(super) project: Project,
    /// Files that `extends` refers to, by absolute path.
    pub(super) extended: IndexMap<PathBuf, Layer>,
    /// The inline file that is merged last.
    pub(super) inline: Option<Layer>,
    texts: Vec<(PathBuf, String)>,
}

/// Files that are merged with each other and share variables.
#[derive(Debug, Clone)]
pub(super) struct Project {
    /// Folder of the first file, absolute.
    pub(super) folder: PathBuf,
    /// The documents, earlier ones first.
    pub(super) layers: Vec<Layer>,
    /// The `.env` beside the first file, or what `include` names instead.
    pub(super) dotenv: Vec<DotEnv>,
}

/// One document.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// The whole document, a map.
    pub(super) root: Arc<Node>,
    /// What its `include` brings.
    pub(super) includes: Vec<Project>,
}

impl Layer {
    /// The elements of `services`, `networks`, `volumes`, `secrets` or `configs`.
    pub(super) fn section(&self, section: &str) -> Option<&Map> {
        self.root.get(section)?.as_map()
    }
}

impl ComposeFiles {
    /// Reads the files, and the files they lead to.
    ///
    /// **Errors**: every file that cannot be read or is not valid YAML, and every
    /// mistake at the top of a file. Mistakes inside services are found by
    /// [`ComposeFiles::resolve`], which knows what is started.
    pub fn read(paths: &[PathBuf]) -> Result<Self, Problems> {
        let Some(first) = paths.first() else {
            let place = Location::start_of(Path::new("."));
            return Err(Problems(vec![Problem::new(
                place,
                "no Compose file is named",
            )]));
        };
        let mut reader = FileReader::default();
        let folder = folder_of(first);
        let dotenv = reader.dotenv_beside(&folder);
        let project = reader.project(paths, folder, dotenv, 0);
        let files = Self {
            project,
            extended: reader.extended,
            inline: None,
            texts: reader.texts,
        };
        if reader.problems.is_empty() {
            Ok(files)
        } else {
            Err(Problems(reader.problems))
        }
    }

    /// The same files with an inline one merged last.
    ///
    /// **Errors**: mistakes at its top, and services that no file has.
    pub fn with_override(mut self, tree: &OverrideNode) -> Result<Self, Problems> {
        let source = Arc::new(Source {
            path: tree.location.file.clone(),
            folder: self.project.folder.clone(),
        });
        let root = override_tree::to_node(tree, &source);
        let mut problems = Vec::new();
        check_top(&root, &mut problems);
        let names = self.service_names();
        for (name, entry) in root
            .get("services")
            .and_then(|node| node.as_map())
            .into_iter()
            .flatten()
        {
            if !names.iter().any(|known| **known == **name) && entry.node.get("image").is_none() {
                let message = format!("services.{name}: no Compose file has this service");
                let problem = Problem::new(entry.mark.location(), message);
                problems.push(problem.with_hint(near_service(name, &names)));
            }
        }
        if let Some(node) = root.get("include") {
            let message = "include: an inline override cannot include files";
            problems.push(Problem::new(node.mark.location(), message));
        }
        self.inline = Some(Layer {
            root,
            includes: Vec::new(),
        });
        if problems.is_empty() {
            Ok(self)
        } else {
            Err(Problems(problems))
        }
    }

    /// Every name that some value refers to, whether its service is started or not.
    ///
    /// Names behind a name of `.env` count; so do the bare names of `environment`
    /// and what the files of `env_file` refer to. [`super::Resolution::variables`]
    /// has only those of what is started.
    pub fn variables(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let inline = self.inline.iter();
        let layers = self.extended.values().chain(inline);
        layers.for_each(|layer| collect_layer(layer, &mut names));
        collect_project(&self.project, &mut names);
        names
    }

    /// The Compose files read, with their texts, for the record of a run.
    ///
    /// `.env` and the files of `env_file` are not among them: they hold secrets.
    pub fn texts(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.texts
            .iter()
            .map(|(path, text)| (path.as_path(), text.as_str()))
    }

    /// The services of all files in file order, started or not.
    pub fn service_names(&self) -> Vec<String> {
        let mut names = IndexSet::new();
        add_names(&self.project, "services", &mut names);
        if let Some(layer) = &self.inline {
            add_layer_names(layer, "services", &mut names);
        }
        names.into_iter().collect()
    }

    /// Folder of the first file: relative paths and `.env` start there.
    pub fn folder(&self) -> &Path {
        &self.project.folder
    }

    /// The place to blame for what no single value is to blame for.
    pub(super) fn start(&self) -> Location {
        match self.project.layers.first() {
            Some(layer) => layer.root.mark.location(),
            None => Location::start_of(&self.project.folder),
        }
    }

    /// The names with those that the values of `.env` files lead to.
    pub(super) fn with_names_behind(&self, mut names: BTreeSet<String>) -> BTreeSet<String> {
        let mut open = vec![&self.project];
        while let Some(project) = open.pop() {
            add_names_behind(project, &mut names);
            open.extend(project.layers.iter().flat_map(|layer| &layer.includes));
        }
        names
    }

    /// The elements of a section of all files in file order.
    pub(super) fn names_in(&self, section: &str) -> IndexSet<String> {
        let mut names = IndexSet::new();
        add_names(&self.project, section, &mut names);
        if let Some(layer) = &self.inline {
            add_layer_names(layer, section, &mut names);
        }
        names
    }
}

/// A hint that names the nearest service, or all of them.
pub(super) fn near_service(name: &str, names: &[String]) -> String {
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the services are: {}", names.join(", ")),
    }
}

fn add_names(project: &Project, section: &str, names: &mut IndexSet<String>) {
    for layer in &project.layers {
        for include in &layer.includes {
            add_names(include, section, names);
        }
        add_layer_names(layer, section, names);
    }
}

fn add_layer_names(layer: &Layer, section: &str, names: &mut IndexSet<String>) {
    for (name, entry) in layer.section(section).into_iter().flatten() {
        if entry.node.tag == Tag::Reset {
            names.shift_remove(&**name);
        } else if !names.contains(&**name) {
            names.insert(name.to_string());
        }
    }
}

fn collect_project(project: &Project, names: &mut BTreeSet<String>) {
    for layer in &project.layers {
        collect_layer(layer, names);
        for include in &layer.includes {
            collect_project(include, names);
        }
    }
    add_names_behind(project, names);
}

/// Follows values of `.env` that refer to other names, until nothing new comes.
fn add_names_behind(project: &Project, names: &mut BTreeSet<String>) {
    let mut open: Vec<String> = names.iter().cloned().collect();
    while let Some(name) = open.pop() {
        for behind in project
            .dotenv
            .iter()
            .flat_map(|file| file.names_behind(&name))
        {
            if names.insert(behind.clone()) {
                open.push(behind);
            }
        }
    }
}

fn collect_layer(layer: &Layer, names: &mut BTreeSet<String>) {
    collect_names(&layer.root, names);
    for entry in layer.section("services").into_iter().flat_map(Map::values) {
        if let Some(environment) = entry.node.get("environment") {
            collect_bare_names(environment, names);
        }
        if let Some(files) = entry.node.get("env_file") {
            collect_env_file_names(files, names);
        }
    }
}

fn collect_names(node: &Node, names: &mut BTreeSet<String>) {
    if !node.has_template {
        return;
    }
    match &node.value {
        Value::Scalar(scalar) => {
            if let Some(Ok(template)) = scalar.template.as_deref() {
                Template::collect_names(template, names);
            }
        }
        Value::List(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Map(entries) => entries
            .values()
            .for_each(|entry| collect_names(&entry.node, names)),
    }
}

fn collect_bare_names(environment: &Node, names: &mut BTreeSet<String>) {
    match &environment.value {
        Value::List(items) => {
            let texts = items.iter().filter_map(|item| item.as_text());
            names.extend(texts.filter(|text| !text.contains('=')).map(str::to_owned));
        }
        Value::Map(entries) => {
            let bare = entries.iter().filter(|(_, entry)| entry.node.is_null());
            names.extend(bare.map(|(name, _)| name.to_string()));
        }
        Value::Scalar(_) => {}
    }
}

/// Adds what the files of `env_file` refer to, where they can be read now.
/// Files that cannot are reported when the service is resolved.
fn collect_env_file_names(files: &Arc<Node>, names: &mut BTreeSet<String>) {
    let items = match &files.value {
        Value::List(items) => items.as_slice(),
        Value::Scalar(_) | Value::Map(_) => std::slice::from_ref(files),
    };
    for item in items {
        let path = item.as_text().or_else(|| item.get("path")?.as_text());
        let text = path.and_then(|path| fs_err::read_to_string(item.mark.folder().join(path)).ok());
        if let Some(Ok(file)) = text.map(|text| DotEnv::parse(Path::new(""), &text)) {
            file.collect_names(names);
        }
    }
}

/// Reads files and what they lead to.
#[derive(Default)]
struct FileReader {
    texts: Vec<(PathBuf, String)>,
    extended: IndexMap<PathBuf, Layer>,
    problems: Vec<Problem>,
}

impl FileReader {
    fn project(
        &mut self,
        paths: &[PathBuf],
        folder: PathBuf,
        dotenv: Vec<DotEnv>,
        depth: usize,
    ) -> Project {
        let mut layers = Vec::new();
        for path in paths {
            for root in self.documents(path, &folder) {
                let includes = self.includes(&root, depth);
                let layer = Layer { root, includes };
                self.read_extended(&layer, depth);
                layers.push(layer);
            }
        }
        Project {
            folder,
            layers,
            dotenv,
        }
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

    fn dotenv_beside(&mut self, folder: &Path) -> Vec<DotEnv> {
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

    fn includes(&mut self, root: &Arc<Node>, depth: usize) -> Vec<Project> {
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
        if depth >= LONGEST_CHAIN {
            self.problem(
                include,
                "include: files include each other without end".to_owned(),
            );
            return Vec::new();
        }
        let mut projects = Vec::new();
        for item in items {
            projects.extend(self.include(item, depth));
        }
        projects
    }

    fn include(&mut self, item: &Arc<Node>, depth: usize) -> Option<Project> {
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
            Some(paths) => self.static_paths(paths, "include.path")?,
            None => self.static_paths(item, "include")?,
        };
        let first = paths.first()?;
        let folder = match item.get("project_directory") {
            Some(node) => self
                .static_paths(node, "include.project_directory")?
                .into_iter()
                .next()?,
            None => folder_of(first),
        };
        let dotenv = match item.get("env_file") {
            Some(node) => {
                let files = self.static_paths(node, "include.env_file")?;
                files.iter().flat_map(|file| self.dotenv(file)).collect()
            }
            None => self.dotenv_beside(&folder),
        };
        Some(self.project(&paths, folder, dotenv, depth + 1))
    }

    /// One path or a list of them, absolute. Variables in them are refused.
    fn static_paths(&mut self, node: &Arc<Node>, key: &str) -> Option<Vec<PathBuf>> {
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            Value::Scalar(_) | Value::Map(_) => std::slice::from_ref(node),
        };
        let mut paths = Vec::new();
        for item in items {
            match item.as_text() {
                Some(_) if item.has_template => {
                    self.problem(item, format!("{key}: a variable here is not yet supported"));
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
    fn read_extended(&mut self, layer: &Layer, depth: usize) {
        for entry in layer.section("services").into_iter().flat_map(Map::values) {
            let Some(file) = entry.node.get("extends").and_then(|node| node.get("file")) else {
                continue;
            };
            let Some(path) = self
                .static_paths(file, "extends.file")
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
                    self.read_extended(&layer, depth + 1);
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
fn check_top(root: &Arc<Node>, problems: &mut Vec<Problem>) -> bool {
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
                format!("{key}: a tag on a whole section is not yet supported"),
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
            std::path::Component::ParentDir => {
                clean.pop();
            }
            std::path::Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}
