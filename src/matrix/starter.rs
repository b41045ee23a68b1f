//! The files that `init` writes beside a user's own Compose file.
//!
//! Text only: who finds the services and who writes the files is outside. The
//! matrix is one that `read` and `plan` accept as it stands, so that the first
//! `check` says nothing; lines to look at are marked EDIT.

use std::fmt::Write as _;

/// What was found beside the place of the new files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StarterInput {
    /// Name of the project, such as its folder's.
    pub project: String,
    /// Compose files in the order they are merged, relative to the new files.
    pub compose_files: Vec<String>,
    /// Services in file order.
    pub services: Vec<StarterService>,
    /// The service that is probably to be sized.
    pub subject: Option<String>,
    /// Where it probably answers, as `http://app:8080`.
    pub target: Option<String>,
}

/// One service of the Compose files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StarterService {
    /// Its Compose name.
    pub name: String,
    /// Its image; `None` where it is built.
    pub image: Option<String>,
    /// Ports inside the container.
    pub container_ports: Vec<u16>,
    /// Whether the file says how to test it.
    pub has_healthcheck: bool,
    /// Whether it stores what others write.
    pub looks_like_database: bool,
}

/// The two files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StarterFiles {
    /// Text of matrix.toml.
    pub matrix: String,
    /// Text of workload.toml.
    pub workload: String,
}

/// Writes the two files for what was found.
///
/// Missing guesses are filled: the subject is the first service that is no
/// database, the target its first port.
pub fn starter(info: &StarterInput) -> StarterFiles {
    let subject = subject(info);
    let service = info.services.iter().find(|service| service.name == subject);
    let target = info.target.clone().unwrap_or_else(|| {
        let port = service.and_then(|service| service.container_ports.first());
        format!("http://{subject}:{}", port.unwrap_or(&8080))
    });
    let stack: Vec<String> = if info.compose_files.is_empty() {
        vec![quoted("compose.yaml")]
    } else {
        info.compose_files.iter().map(|file| quoted(file)).collect()
    };
    let ready = if service.is_some_and(|service| service.has_healthcheck) {
        "# ready  = { path = \"/health\", status = 200 }  # beside the service's own health check"
    } else {
        "ready    = { path = \"/\", status = 200 }          # EDIT: a path that answers when the service can work"
    };
    let matrix = filled(
        MATRIX,
        &[
            ("@NAME@", sweep_name(&info.project)),
            ("@READY@", ready.to_owned()),
            ("@SERVICES@", service_lines(info)),
            ("@STACK@", stack.join(", ")),
            ("@SUBJECT_KEY@", key(&subject)),
            ("@SUBJECT@", quoted(&subject)),
            ("@TARGET@", quoted(&target)),
        ],
    );
    StarterFiles {
        matrix,
        workload: WORKLOAD.to_owned(),
    }
}

fn subject(info: &StarterInput) -> String {
    let guessed = info.subject.clone();
    let service = || {
        let mut services = info.services.iter();
        services
            .find(|service| !service.looks_like_database)
            .or(info.services.first())
            .map(|service| service.name.clone())
    };
    guessed.or_else(service).unwrap_or_else(|| "app".to_owned())
}

/// A name that is safe in a folder's name, as near to the project's as can be.
fn sweep_name(project: &str) -> String {
    let safe: String = project
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || "._-".contains(letter) {
                letter
            } else {
                '-'
            }
        })
        .collect();
    let name: String = safe
        .trim_matches(['.', '_', '-'])
        .chars()
        .take(64)
        .collect();
    if name.is_empty() {
        "sweep".to_owned()
    } else {
        name
    }
}

/// The template with its marks replaced; what comes in is not searched again.
fn filled(template: &str, marks: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('@') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((mark, by)) = marks.iter().find(|(mark, _)| rest.starts_with(mark)) {
            text.push_str(by);
            rest = &rest[mark.len()..];
        } else {
            text.push('@');
            rest = &rest[1..];
        }
    }
    text.push_str(rest);
    text
}

/// A TOML string on one line.
fn quoted(text: &str) -> String {
    let mut string = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => string.extend(['\\', letter]),
            letter if letter.is_control() => {
                // Control characters end at U+009F, so four digits are enough.
                let _ = write!(string, "\\u{:04X}", u32::from(letter));
            }
            letter => string.push(letter),
        }
    }
    string.push('"');
    string
}

/// A TOML key: bare where it can be.
fn key(text: &str) -> String {
    let is_bare = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    if !text.is_empty() && text.chars().all(is_bare) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

/// What was found, as comments.
fn service_lines(info: &StarterInput) -> String {
    let mut lines = String::new();
    for service in &info.services {
        let mut facts = Vec::new();
        if let Some(image) = &service.image {
            facts.push(image.clone());
        }
        for port in &service.container_ports {
            facts.push(format!("port {port}"));
        }
        if service.looks_like_database {
            facts.push("a database".to_owned());
        }
        if !service.has_healthcheck {
            facts.push("no health check".to_owned());
        }
        let line = format!("#   {}: {}", service.name, facts.join(", "));
        // A comment ends with its line, whatever stands in an image's name.
        lines.push_str(&line.replace(char::is_control, " "));
        lines.push('\n');
    }
    if lines.is_empty() {
        lines.push_str("#   none\n");
    }
    lines
}

const MATRIX: &str = r#"# Which settings should the service run with? This file says what is tried.
# Lines marked EDIT need a look before the first run.
#
#   nightsweep check     reads everything, starts nothing
#   nightsweep plan      what would be launched, and how long it takes
#   nightsweep run       launches it
#
# Services found:
@SERVICES@
format = 1

[sweep]
name    = "@NAME@"
stack   = [@STACK@]  # merged in order; paths are relative to this file
subject = @SUBJECT@  # EDIT: the service that is being sized
tier    = "cpus"     # charts and tables come per value of this name

# The knobs. Every combination is launched; the first axis changes slowest.
# Each is a variable in the Compose files: ${cpus}. Any key there can be swept.
[axes]
cpus = [1, 2]              # EDIT: CPU limits to compare; the host needs more than the largest
# threads = [4, 8, 16]     # EDIT: a knob of the service; see [override] below

# Values computed from the axes, in order.
# [derived]
# db_pool = "round(threads * 1.5)"

# A combination that breaks a rule is left out, and `plan` says so.
# [constraints]
# pool_covers_threads = "db_pool >= threads"

# Merged behind the Compose files, so that those need no change. It says how a
# knob reaches the service: as a limit here, or as what the service reads.
[override.services.@SUBJECT_KEY@]
cpus = "${cpus}"
# environment = { WEB_THREADS = "${threads}", DB_POOL = "${db_pool}" }  # EDIT: its own variables

# What 'cheaper' means between cells that do equally well.
# [cost]
# order = ["threads"]

[trials]
repeats = 3                # launches of every cell: the spread between them says how sure an answer is
order   = "blocks"         # every repeat is one random pass over all cells
seed    = 1                # same seed, same order
state   = "fresh"          # new volumes for every launch | golden: see below | keep: one database for all
ready_timeout = "120s"
max_consecutive_failures = 5

# With state = "golden" the volumes are filled once and cloned for every launch.
# [golden]
# volumes = ["data"]
# from    = "prepare"      # run the stack and [seed] once, or "volume:NAME", or "dir:PATH"; those are only read
# clone   = "auto"         # shared blocks where the file system can, else copied; or reflink, overlay, copy
#
# [seed]
# service  = "seed"        # a service of the Compose file that fills the database and ends
# workload = "seed.toml"   # or requests, every one of which must succeed
# journeys = 1000
# users    = 4

[load]
workload = "workload.toml" # what is sent
target   = @TARGET@  # EDIT: service and port inside the stack
@READY@
timeout  = "30s"
drain    = "5s"

# Stretches of load, in order. Only windows are measured.
[[phase]]
name = "warm-up"
open = { requests_per_second = "50 * cpus" }   # EDIT: about half of what a CPU can carry
duration = "20s"

# How long do requests take, at a rate that every cell can carry?
[[phase]]
name = "latency"
window = true
answers = "latency"
open = { requests_per_second = "50 * cpus" }   # EDIT: as above
# With arrivals = "poisson" behind the rate requests come at random, as those of many users do;
# else evenly. max_in_flight = 1000 bounds how many are under way.
duration = "45s"

# How many requests a second can be had? Behind the latency window, so that
# every cell meets the same database there.
[[phase]]
name = "stress"
window = true
answers = "capacity"
closed = { users = 32 }    # EDIT: at least twice the largest pool, the same for all cells of a tier
duration = "45s"

# What changes from one load to the next? Every load that is held makes a row with its step.
# [[phase]]
# name = "ladder"
# window = true
# answers = "ladder"
# stages = [{ closed = { users = [50, 100, 150, 200] }, ramp = "10s", hold = "2m" }]

# Or a shape with a name, in shares of the load: smoke, load, stress, spike, soak, or breakpoint,
# which grows until a threshold with `abort` is crossed. `nightsweep plan` shows what it becomes.
# [[phase]]
# name = "crowd"
# window = true
# answers = "ladder"
# profile = "spike"
# closed = { users = 32 }

# What must hold of windows; one that does not is flagged, and with `abort` ends the load of its trial.
# [[threshold]]
# rule   = "p95 < 500 ms"    # or p50, p99, max, error_rate < 1 %, throughput > 100/s
# window = "stress"          # of all windows unless set
# abort  = true
# after  = "10s"             # how long into the window it is looked at first

# A command in a container before every window, or before one phase; ${name} is the cell's value, $$ a dollar.
# [[hook]]
# before  = "window"
# service = "db"
# exec    = ["psql", "-U", "app", "-c", "CHECKPOINT"]

# What a latency window must keep to.
# [slo]
# p99_ms = 100
# error_rate = 0.01
# [slo.operation."create Patient"]   # EDIT: one operation of the workload
# p99_ms = 200

# A knob as the service itself reports it: a misspelt variable is found by nothing else.
# [[prove]]
# url    = "http://app:8080/metrics"   # EDIT: a service and port of the stack
# series = "db_pool_size"              # EDIT: Prometheus; or json = "$.pool.size"
# equals = "${db_pool}"

# Whose CPUs are whose; `nightsweep plan` shows it.
# [host]
# cpu_mode = "quota"                   # or "cpuset": as many whole CPUs as the limit says
# reserve_cpus = 2                     # for the load generator
"#;

const WORKLOAD: &str = r#"# What one virtual user does, over and over: the steps in order.
# Lines marked EDIT need a look before the first run.
#
#   nightsweep load workload.toml --target URL --once --verbose    shows one pass

on_failure = "abort"       # a failed step ends the pass; or "continue"

[[step]]
name   = "read"
method = "GET"
path   = "/"               # EDIT: a request that your users make
expect = { status = 200 }  # anything else is an error, not throughput

# More that `expect` can ask for: exists = ["$.id"], absent = "$.error", json_matches = { "$.id" = '^\d+$' },
# contains = "text", not_contains = "text", matches = 'pattern', size = { min = "1 KB" }, headers, header_matches.
# More that a step can have: timeout = "60s", refused = [503], redirects = 3, headers = { x-tenant = "7" }.
#
# More for all steps, above the first one: bearer = "${env.TOKEN}" or basic = { user = "u", password = "${env.PASSWORD}" }
# (a step without: auth = "none"), cookies = true (each user keeps its own), gzip = true, refused = [429, 503].

# A request with a body, whose answer the next step uses. A body may also be a text,
# body = '''TEXT''' or body_file = "item.json" beside this file: with a content-type of
# JSON a ${} between the quotes of a JSON string is escaped, elsewhere it stands as it is.
# form = { user = "ana" } is sent as a browser sends it, a file that is no text as it is.
#
# [[step]]
# name    = "create"
# method  = "POST"
# path    = "/items"
# json    = { name = "item ${counter}" }
# expect  = { status = 201 }
# capture = { id = "$.id" }
#
# [[step]]
# name   = "read it back"
# method = "GET"
# path   = "/items/${id}"
# expect = { status = 200, json = { "$.id" = "${id}" } }
"#;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::matrix::{Sweep, plan, read};

    fn sweep(info: &StarterInput) -> Sweep {
        let files = starter(info);
        read(Path::new("matrix.toml"), &files.matrix)
            .unwrap_or_else(|problems| panic!("{problems}\n{}", files.matrix))
    }

    fn app_and_database() -> StarterInput {
        StarterInput {
            project: "My shop".into(),
            compose_files: vec!["compose.yaml".into(), "compose.prod.yaml".into()],
            services: vec![
                StarterService {
                    name: "db".into(),
                    image: Some("postgres:17".into()),
                    container_ports: vec![5432],
                    has_healthcheck: true,
                    looks_like_database: true,
                },
                StarterService {
                    name: "api".into(),
                    container_ports: vec![3000],
                    ..StarterService::default()
                },
            ],
            ..StarterInput::default()
        }
    }

    #[test]
    fn the_starter_is_a_matrix_that_plans() {
        let sweep = sweep(&app_and_database());
        assert_eq!(sweep.name, "My-shop");
        assert_eq!(sweep.subject.value, "api");
        assert_eq!(sweep.stack.len(), 2);
        assert_eq!(sweep.load.target.value.text, "http://api:3000");
        assert!(
            sweep.load.ready.is_some(),
            "without a health check a path is asked"
        );
        assert!(sweep.overrides.is_some());
        let plan = plan(&sweep, &BTreeSet::from(["cpus".to_owned()])).unwrap();
        assert_eq!(plan.cells.len(), 2);
        assert_eq!(plan.trials.len(), 6);
    }

    #[test]
    fn guesses_are_taken_and_nothing_found_is_no_trouble() {
        let mut info = app_and_database();
        info.subject = Some("db".into());
        info.target = Some("http://db:1/base".into());
        let guessed = sweep(&info);
        assert_eq!(guessed.subject.value, "db");
        assert_eq!(guessed.load.ready, None, "its health check is enough");
        assert_eq!(guessed.load.target.value.base_path, "/base");
        let nothing = sweep(&StarterInput::default());
        assert_eq!(
            (nothing.name.as_str(), nothing.subject.value.as_str()),
            ("sweep", "app")
        );
    }

    #[test]
    fn lines_behind_comment_marks_are_a_matrix_too() {
        // Whoever takes the marks away must not find a mistake of ours.
        let text = starter(&app_and_database()).matrix;
        let (head, body) = text.split_once("format = 1").unwrap();
        assert!(head.contains("#   db: postgres:17, port 5432, a database"));
        let optional = [
            "# threads",
            "# [",
            "# db_pool",
            "# pool_",
            "# environment",
            "# order",
            "# p99_ms",
            "# error_rate",
            "# url",
            "# series",
            "# equals",
            "# cpu_mode",
            "# reserve_cpus",
            "# volumes",
            "# from ",
            "# clone ",
            "# service ",
            "# workload ",
            "# journeys",
            "# users",
            "# before",
            "# exec",
            "# name ",
            "# window ",
            "# answers ",
            "# stages ",
            "# profile ",
            "# closed ",
            "# rule ",
            "# abort ",
            "# after ",
        ];
        let body = body
            .lines()
            .map(|line| {
                let is_optional = optional.iter().any(|start| line.starts_with(start));
                if is_optional { &line[2..] } else { line }
            })
            .collect::<Vec<_>>()
            .join("\n");
        // The sections of golden volumes go with that state alone.
        let body = body.replace("state   = \"fresh\"", "state   = \"golden\"");
        let text = format!("format = 1{body}");
        let sweep =
            read(Path::new("matrix.toml"), &text).unwrap_or_else(|problems| panic!("{problems}"));
        let reached = ["cpus", "threads", "db_pool"].map(str::to_owned);
        assert_eq!(
            plan(&sweep, &BTreeSet::from(reached)).unwrap().cells.len(),
            6
        );
    }

    #[test]
    fn the_workload_is_toml_with_and_without_its_comments() {
        let text = starter(&StarterInput::default()).workload;
        assert!(text.parse::<toml::Table>().is_ok());
        let (plain, commented) = text.split_once("# [[step]]").unwrap();
        let commented = commented.replace("\n# ", "\n").replace("\n#\n", "\n");
        let whole = format!("{plain}[[step]]{commented}");
        let table: toml::Table = whole.parse().unwrap();
        assert_eq!(table["step"].as_array().map(Vec::len), Some(3));
    }

    proptest! {
        #[test]
        fn odd_names_still_make_a_matrix(
            project in ".{0,80}",
            file in "[^\\p{C}]{1,20}[a-z]",
            image in ".{0,20}",
            subject in "[a-z'\"@A-Z .\\\\é-]{0,10}[a-z]",
        ) {
            let info = StarterInput {
                project,
                compose_files: vec![file.clone()],
                services: vec![StarterService {
                    name: subject.clone(),
                    image: Some(image),
                    ..StarterService::default()
                }],
                subject: None,
                target: Some("http://app:8080".into()),
            };
            let sweep = sweep(&info);
            prop_assert_eq!(&sweep.subject.value, &subject);
            let stack = sweep.stack[0].value.to_string_lossy();
            prop_assert_eq!(stack.as_ref(), file.as_str());
        }
    }
}
