//! Compose files of other people's projects through the resolver.
//!
//! The files are not part of the repository. `NIGHTSWEEP_CORPUS` names a folder
//! with one subfolder per entry and an `INDEX.tsv` whose first, second and last
//! columns are the subfolder, the Compose file in it, and `complete` or
//! `override or fragment of NN`, `NN` being the number of the entry below it.
//! The tests exist with the feature `corpus-tests` and fail without the variable.
//!
//! A fixture carries the Compose files alone. What they refer to beside them
//! (env files, bind sources, config files) is made in a scratch copy, paths of
//! another host are moved there, and what a service may write to is listed as
//! shared, as its owner would: the rules stay as strict as they are for a user.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use nightsweep::engine::check_stack;
use nightsweep::problem::{Problem, Problems};
use nightsweep::stack::{ComposeFiles, Condition, Resolution, ResolveRequest, Stack};

/// Names the folder with the corpus.
const VARIABLE: &str = "NIGHTSWEEP_CORPUS";

/// More rounds of supplying what is missing than any entry needs.
const MOST_ROUNDS: usize = 200;

/// Why a file cannot be resolved, whoever reads it, by words of the message.
const REASONS: [(&str, &str); 8] = [
    ("required variable `", "a variable without a value"),
    ("has no value", "a variable without a value"),
    ("have no value", "a variable without a value"),
    ("is not name:address", "a variable without a value"),
    ("must be a text, not a map", "a map where a text belongs"),
    ("is not declared", "nowhere declared"),
    ("there is no such service", "nowhere declared"),
    ("has neither `image` nor `build`", "neither image nor build"),
];

/// Why a stack that resolves cannot be launched, by words of the reason.
const UNLAUNCHABLE: [(&str, &str); 1] = [(
    "is not an image reference",
    "an image that is a placeholder",
)];

/// Names the file that the table is written to, where somebody wants it.
const REPORT: &str = "NIGHTSWEEP_TEST_REPORT";

/// One line of the index.
struct Entry {
    folder: String,
    file: String,
    /// Number of the entry it is merged over.
    base: Option<String>,
}

impl Entry {
    fn all(corpus: &Path) -> Vec<Self> {
        let index = std::fs::read_to_string(corpus.join("INDEX.tsv")).unwrap();
        let entry = |line: &str| {
            let columns: Vec<&str> = line.split('\t').collect();
            let base = columns.last().unwrap().rsplit_once(" of ");
            Self {
                folder: columns[0].to_owned(),
                file: columns[1].to_owned(),
                base: base.map(|(_, number)| number.trim().to_owned()),
            }
        };
        index.lines().skip(1).map(entry).collect()
    }

    fn number(&self) -> &str {
        self.folder.split('_').next().unwrap()
    }
}

/// A scratch copy of an entry that grows what it lacks.
struct Bench {
    scratch: tempfile::TempDir,
    paths: Vec<PathBuf>,
    shared: Vec<String>,
    variables: BTreeMap<String, String>,
    /// Whether variables without a value get one.
    gives_values: bool,
    n_made: usize,
}

impl Bench {
    fn new(corpus: &Path, entry: &Entry, entries: &[Entry]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let below = entry.base.as_ref().map(|number| {
            let is_it = |other: &&Entry| other.number() == number;
            entries.iter().find(is_it).expect("the index has the base")
        });
        let mut paths = Vec::new();
        for layer in below.into_iter().chain([entry]) {
            copy_tree(&corpus.join(&layer.folder), scratch.path());
            paths.push(scratch.path().join(&layer.file));
        }
        // What every shell has.
        let folder = paths[0].parent().unwrap().display().to_string();
        let home = scratch.path().join("home").display().to_string();
        let variables = BTreeMap::from([("HOME".into(), home), ("PWD".into(), folder)]);
        Self {
            scratch,
            paths,
            shared: Vec::new(),
            variables,
            gives_values: false,
            n_made: 0,
        }
    }

    fn attempt(&self, profiles: &[&str]) -> Result<Resolution, Problems> {
        let profiles: Vec<String> = profiles.iter().map(ToString::to_string).collect();
        ComposeFiles::read_in(&self.paths, &self.variables, &IndexMap::new())?.resolve(
            &ResolveRequest {
                cell: &IndexMap::new(),
                environment: &self.variables,
                roots: &[],
                profiles: &profiles,
                shared: &self.shared,
            },
        )
    }

    /// Resolves again and again, supplying what is missing, until nothing more can be.
    fn settle(&mut self, profiles: &[&str]) -> Result<Resolution, Problems> {
        let mut result = self.attempt(profiles);
        for _ in 0..MOST_ROUNDS {
            let Err(problems) = &result else { break };
            let mut has_helped = false;
            for problem in &problems.0 {
                has_helped |= self.supply(problem);
            }
            if !has_helped {
                break;
            }
            result = self.attempt(profiles);
        }
        result
    }

    /// Makes what a problem says is missing; whether that was possible.
    fn supply(&mut self, problem: &Problem) -> bool {
        let message = &problem.message;
        let words: Vec<&str> = message.split('`').collect();
        if message.contains("writable_mount: ") {
            let shared = words[3].to_owned();
            let is_new = !self.shared.contains(&shared);
            self.shared.push(shared);
            return is_new;
        }
        if let Some(name) = variable_of(problem) {
            let stands_for_a_port = message.contains("is not a port");
            let value = if stands_for_a_port {
                "8080".to_owned()
            } else if message.contains(".image: ") {
                // As a name and as a tag.
                "1".to_owned()
            } else {
                self.scratch.path().join("value").display().to_string()
            };
            return self.gives_values && self.variables.insert(name, value).is_none();
        }
        let is_missing = [
            "does not exist on this host",
            "cannot be read",
            "is not a file of",
        ];
        let is_missing = is_missing.iter().any(|words| message.contains(words));
        let path = Path::new(words.get(1).copied().unwrap_or_default());
        if !is_missing || path.exists() || !path.is_absolute() {
            return false;
        }
        if path.starts_with(self.scratch.path()) {
            make(path);
            self.n_made += 1;
            true
        } else {
            self.move_here(problem, path)
        }
    }

    /// Points one line of the copy to a path below the scratch folder.
    fn move_here(&mut self, problem: &Problem, path: &Path) -> bool {
        let file = &problem.location.file;
        let text = std::fs::read_to_string(file).unwrap();
        let here = self
            .scratch
            .path()
            .join("host")
            .join(path.strip_prefix("/").unwrap());
        let (from, to) = (path.display().to_string(), here.display().to_string());
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = &mut lines[problem.location.line - 1];
        if !line.contains(&from) || line.contains(&to) {
            return false;
        }
        *line = line.replacen(&from, &to, 1);
        std::fs::write(file, lines.join("\n")).unwrap();
        true
    }
}

/// The variable without a value that a problem names.
fn variable_of(problem: &Problem) -> Option<String> {
    let message = &problem.message;
    let hint = problem.hint.as_deref().unwrap_or_default();
    let name = if let Some((_, rest)) = message.split_once("required variable `") {
        rest.split('`').next()
    } else if message.ends_with("` has no value") || message.ends_with("` have no value") {
        message.rsplit('`').nth(1)
    } else if hint.starts_with("give `") {
        hint.split('`').nth(1)
    } else {
        None
    };
    name.map(str::to_owned)
}

/// A file at a path; a folder above it may have been made as a file before.
fn make(path: &Path) {
    let folder = path.parent().unwrap();
    for above in folder.ancestors().filter(|above| above.is_file()) {
        std::fs::remove_file(above).unwrap();
    }
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(path, "").unwrap();
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            // Not `copy`, which would hand on that the file is read only.
            std::fs::write(target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// The reasons of all problems; one that is none of the known ones as it is.
fn reasons(problems: &Problems) -> BTreeSet<String> {
    let reason = |problem: &Problem| {
        let hint = problem.hint.as_deref().unwrap_or_default();
        let known = REASONS
            .iter()
            .find(|(words, _)| problem.message.contains(words) || hint.ends_with(words));
        known.map_or_else(|| problem.to_string(), |(_, reason)| (*reason).to_owned())
    };
    problems.0.iter().map(reason).collect()
}

/// Why the stack of an entry cannot be launched, with the number of services each
/// reason holds for; nothing else may be in the way.
fn unlaunchable(entry: &str, stack: &Stack) -> String {
    let refused = check_stack(stack).err().map_or_else(Vec::new, |e| e.0);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &refused {
        let known = UNLAUNCHABLE.iter().find(|(words, _)| line.contains(words));
        let (_, reason) = known.unwrap_or_else(|| panic!("{entry}: {line}"));
        *counts.entry(reason).or_default() += 1;
    }
    let counts = counts
        .iter()
        .map(|(reason, n)| format!("{reason} ({n} services)"));
    counts.collect::<Vec<_>>().join(", ")
}

fn corpus() -> PathBuf {
    let folder = std::env::var_os(VARIABLE);
    PathBuf::from(folder.unwrap_or_else(|| panic!("{VARIABLE} must name the corpus")))
}

/// What became of an entry: a line of the table.
struct Outcome {
    /// Its number in the index: the table has nothing of the files themselves.
    number: String,
    result: String,
    n_services: Option<usize>,
    n_warnings: Option<usize>,
    launch: String,
}

impl Outcome {
    fn of(entry: &Entry, resolution: &Resolution, result: &str) -> Self {
        let stack = &resolution.stack;
        let launch = match unlaunchable(&entry.folder, stack) {
            none if none.is_empty() => "ok".to_owned(),
            reasons => format!("refused: {reasons}"),
        };
        Self {
            number: entry.number().to_owned(),
            result: result.to_owned(),
            n_services: Some(stack.services.len()),
            n_warnings: Some(stack.warnings.len()),
            launch,
        }
    }

    fn failed(entry: &Entry, reasons: &BTreeSet<String>) -> Self {
        let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
        Self {
            number: entry.number().to_owned(),
            result: format!("cannot: {}", reasons.join("; ")),
            n_services: None,
            n_warnings: None,
            launch: String::new(),
        }
    }

    fn line(&self) -> String {
        let count = |n: Option<usize>| n.map_or_else(String::new, |n| n.to_string());
        let (services, warnings) = (count(self.n_services), count(self.n_warnings));
        let (number, result, launch) = (&self.number, &self.result, &self.launch);
        format!("| {number} | {result} | {services} | {warnings} | {launch} |")
    }
}

/// Resolves an entry, with values for its variables where it has none.
fn outcome(corpus: &Path, entry: &Entry, entries: &[Entry]) -> Outcome {
    let mut bench = Bench::new(corpus, entry, entries);
    let problems = match bench.settle(&["*"]) {
        Ok(resolution) => return Outcome::of(entry, &resolution, "resolves"),
        Err(problems) => problems,
    };
    for problem in &problems.0 {
        println!("    {problem}");
    }
    let known: Vec<&str> = REASONS.iter().map(|(_, reason)| *reason).collect();
    for reason in reasons(&problems) {
        let is_known = known.contains(&reason.as_str());
        assert!(is_known, "{}: {reason}", entry.folder);
    }
    // With values for its variables it resolves, or one reason remains.
    bench.gives_values = true;
    match bench.settle(&["*"]) {
        Ok(resolution) => Outcome::of(entry, &resolution, WITH_VALUES),
        Err(problems) => {
            let reasons = reasons(&problems);
            assert_eq!(reasons.len(), 1, "{}: {reasons:?}", entry.folder);
            Outcome::failed(entry, &reasons)
        }
    }
}

/// The result of an entry whose variables the test had to give values.
const WITH_VALUES: &str = "resolves once its variables have values";

/// The outcomes for people; `NIGHTSWEEP_TEST_REPORT` names a file to keep it in.
fn table(outcomes: &[Outcome]) -> String {
    let count = |result: &str| outcomes.iter().filter(|o| o.result == result).count();
    let (n_plain, n_with_values) = (count("resolves"), count(WITH_VALUES));
    let n_launchable = outcomes.iter().filter(|o| o.launch == "ok").count();
    let n = outcomes.len();
    let lines: Vec<String> = outcomes.iter().map(Outcome::line).collect();
    format!(
        "Compose files of {n} public projects, as they are in their repositories, all profiles on. What they \
         refer to beside them is made empty. None of their content is kept here; the numbers are those of \
         the list that the test reads.\n\n\
         - {n_plain} resolve as they are, {n_with_values} more once their variables have values, {} cannot\n\
         - {n_launchable} of those that resolve ask for nothing that no launch can do (images were not fetched, \
         contexts of builds not read)\n\n\
         | entry | result | services | warnings | launch |\n| ---: | --- | ---: | ---: | --- |\n{}\n",
        n - n_plain - n_with_values,
        lines.join("\n")
    )
}

#[test]
fn every_file_of_the_corpus_resolves_or_cannot_for_one_reason() {
    let corpus = corpus();
    let entries = Entry::all(&corpus);
    assert!(!entries.is_empty());
    let mut outcomes = Vec::new();
    for entry in &entries {
        let outcome = outcome(&corpus, entry, &entries);
        println!("{:<46} {}", entry.folder, outcome.line());
        outcomes.push(outcome);
    }
    let table = table(&outcomes);
    println!("{table}");
    if let Some(path) = std::env::var_os(REPORT) {
        std::fs::write(path, table).unwrap();
    }
}

/// The first two entries: the benchmark of a FHIR server's vendor and its override.
#[test]
fn the_reference_benchmark_of_the_corpus_has_its_limits_order_and_replicas() {
    let corpus = corpus();
    let entries = Entry::all(&corpus);
    let stack_of = |index: usize, profiles: &[&str]| -> Stack {
        let mut bench = Bench::new(&corpus, &entries[index], &entries);
        bench.settle(profiles).unwrap().stack
    };
    let gibibytes = |count: u64| Some(count << 30);
    let stack = stack_of(1, &[]);
    assert_eq!(stack.not_started, ["k6"]);
    let (subject, database) = (&stack.services["aidbox"], &stack.services["postgres"]);
    assert_eq!((subject.cpus, subject.mem_limit), (Some(8.0), gibibytes(3)));
    assert_eq!(
        (database.cpus, database.mem_limit),
        (Some(8.0), gibibytes(30))
    );
    assert_eq!(stack.services["medplum"].replicas, Some(8));
    assert_eq!(
        stack.services["microsoft"].depends_on["mssql-tune"].condition,
        Condition::ServiceCompletedSuccessfully
    );
    assert_eq!(
        stack.services["mssql-tune"].depends_on["mssql"].condition,
        Condition::ServiceHealthy
    );
    let alone = stack_of(0, &["donotstart"]);
    assert!(alone.not_started.is_empty());
    assert_eq!(alone.services["aidbox"].mem_limit, gibibytes(24));
    assert!(alone.services.contains_key("k6"));
}
