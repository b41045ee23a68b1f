//! The Compose files of a stack, read once and resolved once per cell.
//!
//! Everything that stands still is done here: reading, parsing, `include`, the
//! files of `extends`, `.env`. Read next: [`super::resolve`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};

use super::dotenv::DotEnv;
use super::file_reader::{FileReader, check_top, folder_of};
use super::node::{Map, Node, Source, Tag, Value};
use super::notes::Notes;
use super::override_tree;
use super::template::Template;
use crate::placed::PlacedNode;
use crate::problem::{Location, Problem, Problems, nearest};

/// The Compose files of a stack, in the order in which they are merged.
#[derive(Debug, Clone)]
pub struct ComposeFiles {
    /// The files named by the user.
    pub(super) project: Project,
    /// Files that `extends` refers to, by absolute path.
    pub(super) extended: IndexMap<PathBuf, Layer>,
    /// The inline file that is merged last.
    pub(super) inline: Option<Layer>,
    /// What the variables in the paths of files led to.
    pub(super) paths: PathVariables,
    texts: Vec<(PathBuf, String)>,
}

/// The variables in paths of `include` and `extends`, which were replaced when the
/// files were read.
#[derive(Debug, Clone, Default)]
pub(super) struct PathVariables {
    /// What was found on the way: names without a value, values to hide.
    pub(super) notes: Notes,
    /// The names, with the key and the place that refer to each.
    pub(super) names: Vec<(String, &'static str, Location)>,
    /// What was given for all cells alike.
    pub(super) settings: IndexMap<String, String>,
}

impl PathVariables {
    /// Refuses names that the cell gives a value: the files are the same for all cells.
    pub(super) fn check(&self, cell: &IndexMap<String, String>, notes: &mut Notes) {
        for (name, key, place) in &self.names {
            let value = cell.get(name);
            if value.is_some() && value != self.settings.get(name) {
                notes.problem_with_hint(
                    place.clone(),
                    format!(
                        "{key}: `{name}` differs from cell to cell, and which files are read cannot"
                    ),
                    "use a variable of the environment or of .env here",
                );
            }
        }
    }
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
    /// Reads the files, and the files they lead to, with no process environment.
    ///
    /// **Errors**: as [`ComposeFiles::read_in`].
    pub fn read(paths: &[PathBuf]) -> Result<Self, Problems> {
        Self::read_in(paths, &BTreeMap::new(), &IndexMap::new())
    }

    /// Reads the files, and the files they lead to.
    ///
    /// Variables in the paths of `include` and `extends` take their values from the
    /// settings, which are the same for all cells, the environment given and `.env`.
    ///
    /// **Errors**: every file that cannot be read or is not valid YAML, and every
    /// mistake at the top of a file. Mistakes inside services are found by
    /// [`ComposeFiles::resolve`], which knows what is started.
    pub fn read_in(
        paths: &[PathBuf],
        environment: &BTreeMap<String, String>,
        settings: &IndexMap<String, String>,
    ) -> Result<Self, Problems> {
        let Some(first) = paths.first() else {
            let place = Location::start_of(Path::new("."));
            return Err(Problems(vec![Problem::new(
                place,
                "no Compose file is named",
            )]));
        };
        let mut reader = FileReader::new(environment, settings);
        let folder = folder_of(first);
        let dotenv = reader.dotenv_beside(&folder);
        let project = reader.project(paths, folder, dotenv, None, 0);
        let files = Self {
            project,
            extended: reader.extended,
            inline: None,
            paths: reader.paths,
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
    pub fn with_override(mut self, tree: &PlacedNode) -> Result<Self, Problems> {
        let source = Arc::new(Source {
            path: tree.location.file.clone(),
            folder: self.project.folder.clone(),
            is_inline: true,
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
