//! Files to stacks: what is started, what is refused, what is said.

mod fuzz;
mod keys;
mod networks;
mod paths;
mod real;
mod served;
mod started;
mod values;
mod volumes;

use std::collections::BTreeMap;
use std::path::PathBuf;

use indexmap::IndexMap;
use tempfile::TempDir;

use super::*;

/// Lines as they stand below the name of a service.
pub(super) fn indented(lines: &str) -> String {
    lines
        .lines()
        .fold(String::new(), |text, line| text + "    " + line + "\n")
}

/// Files in a folder of their own, and the arguments of one resolving.
pub(super) struct Case {
    folder: TempDir,
    compose: Vec<PathBuf>,
    cell: IndexMap<String, String>,
    environment: BTreeMap<String, String>,
    settings: IndexMap<String, String>,
    roots: Vec<String>,
    profiles: Vec<String>,
    shared: Vec<String>,
}

impl Case {
    /// One Compose file.
    pub(super) fn new(text: &str) -> Self {
        let case = Self {
            folder: tempfile::tempdir().unwrap(),
            compose: Vec::new(),
            cell: IndexMap::new(),
            environment: BTreeMap::new(),
            settings: IndexMap::new(),
            roots: Vec::new(),
            profiles: Vec::new(),
            shared: Vec::new(),
        };
        case.compose("compose.yaml", text)
    }

    /// One service called app, given as the lines below its name.
    pub(super) fn app(lines: &str) -> Self {
        Self::new(&format!("services:\n  app:\n{}", indented(lines)))
    }

    /// One more Compose file, merged over the earlier ones.
    pub(super) fn compose(mut self, name: &str, text: &str) -> Self {
        self.compose.push(self.folder.path().join(name));
        self.file(name, text)
    }

    pub(super) fn file(self, name: &str, text: &str) -> Self {
        let path = self.folder.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
        self
    }

    pub(super) fn cell(mut self, name: &str, value: &str) -> Self {
        self.cell.insert(name.into(), value.into());
        self
    }

    pub(super) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// A value that all cells have, as `--set` gives it.
    pub(super) fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.into(), value.into());
        self.cell(name, value)
    }

    pub(super) fn roots(mut self, roots: &[&str]) -> Self {
        self.roots = roots.iter().map(ToString::to_string).collect();
        self
    }

    pub(super) fn profiles(mut self, profiles: &[&str]) -> Self {
        self.profiles = profiles.iter().map(ToString::to_string).collect();
        self
    }

    pub(super) fn shared(mut self, shared: &[&str]) -> Self {
        self.shared = shared.iter().map(ToString::to_string).collect();
        self
    }

    /// The same files with another list of what is shared.
    pub(super) fn shared_now(&mut self, shared: &[&str], home: &str) -> &Self {
        self.shared = shared.iter().map(ToString::to_string).collect();
        self.environment.insert("HOME".into(), home.into());
        self
    }

    pub(super) fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(super) fn files(&self) -> ComposeFiles {
        ComposeFiles::read_in(&self.compose, &self.environment, &self.settings)
            .unwrap_or_else(|problems| panic!("{problems}"))
    }

    pub(super) fn resolve_files(&self, files: &ComposeFiles) -> Result<Resolution, Problems> {
        files.resolve(&ResolveRequest {
            cell: &self.cell,
            environment: &self.environment,
            roots: &self.roots,
            profiles: &self.profiles,
            shared: &self.shared,
        })
    }

    pub(super) fn resolution(&self) -> Resolution {
        self.resolve_files(&self.files())
            .unwrap_or_else(|problems| panic!("{problems}"))
    }

    pub(super) fn stack(&self) -> Stack {
        self.resolution().stack
    }

    pub(super) fn service(&self) -> Service {
        self.stack().services.shift_remove("app").unwrap()
    }

    /// The problems of reading or resolving, with the folder taken out.
    pub(super) fn problems(&self) -> Vec<String> {
        let outcome = ComposeFiles::read_in(&self.compose, &self.environment, &self.settings)
            .and_then(|files| self.resolve_files(&files));
        let problems = outcome.expect_err("a problem").0;
        let folder = format!("{}/", self.folder.path().display());
        problems
            .iter()
            .map(|problem| problem.to_string().replace(&folder, ""))
            .collect()
    }
}

/// The rest of every sentence that was said of a key of the service `app`.
pub(super) fn said(stack: &Stack, key: &str) -> String {
    let path = format!("services.app.{key}");
    let is_it = |text: &&String| {
        text.split(": ")
            .next()
            .is_some_and(|keys| keys.split(", ").any(|one| one == path))
    };
    let found: Vec<&str> = stack
        .warnings
        .iter()
        .filter(is_it)
        .map(|text| text.split_once(": ").unwrap().1)
        .collect();
    found.join("; ")
}
