//! Files nobody would write: whatever the text, resolving ends with a stack or
//! with problems, soon, and the same way twice.
//!
//! A few hundred cases run with every test. `PROPTEST_CASES` sets another count
//! for a long run.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

/// Cases of an ordinary test run; each writes and reads four small files.
const CASES: u32 = 150;

/// Far beyond the milliseconds a case takes: only a hang is slower.
const LONGEST_CASE: Duration = Duration::from_secs(20);

/// Keys of services and of what stands in them; any may stand anywhere.
const KEYS: &str = "image build context args command entrypoint environment env_file path required depends_on \
    condition links healthcheck test interval retries disable volumes type source target \
    read_only volume nocopy bind tmpfs size mode networks aliases ipv4_address network_mode \
    container_name cpus mem_limit memswap_limit pids_limit cpuset scale deploy replicas \
    resources limits reservations memory pids user shm_size ulimits nofile soft hard sysctls \
    extra_hosts dns labels stop_grace_period profiles secrets configs content file external name \
    driver_opts ipam config subnet gateway aux_addresses ports published expose devices ipc pid \
    privileged restart logging extends service app db default data x-own << include ?";

/// Values that some key likes, or that break something.
const SCALARS: &[&str] = &[
    "app",
    "db",
    "data",
    "default",
    "a:1",
    "a:|1|",
    "postgres:17",
    "1",
    "0",
    "-1",
    "0.5",
    "1e3",
    "1e999",
    ".inf",
    ".nan",
    "0x1F",
    "0755",
    "1_000",
    "9223372036854775808",
    "-0",
    "64m",
    "512kb",
    "1.5g",
    "99999999999g",
    "10s",
    "1m30s",
    "1h1h",
    "999999999999h",
    "true",
    "no",
    "~",
    "null",
    "''",
    "' '",
    "'${A}'",
    "'${A:-${B:-c}}'",
    "'${A?}'",
    "'${A:?m}'",
    "'${'",
    "'$'",
    "'$$'",
    "'${A:-'",
    "'a=b'",
    "'=b'",
    "'a='",
    "'A'",
    "'d:/x'",
    "'./x:/x:ro'",
    "'~/x:/x'",
    "'~x/y:/z'",
    "':/x'",
    "'/x'",
    "'/:/'",
    "'a:b:c:d'",
    "'../../..'",
    "'80:80'",
    "'8000-8010:80/udp'",
    "'[::1]:1:1'",
    "service:app",
    "service:db",
    "container:x",
    "host",
    "none",
    "service_healthy",
    "service_completed_successfully",
    "10.0.0.0/8",
    "10.0.0.1",
    "'fd00::/64'",
    "sh -c 'x'",
    "'\"'",
    "'a && b'",
    "\"\\x00\"",
    "\"\\u202e\"",
    "'ü'",
    "compose.yaml",
    "base.yaml",
    "a.env",
    "later.yaml",
    "*",
    "0-3",
    "3-0",
    "/dev/null",
    "'/dev/null:/d:rwm'",
    "!reset null",
    "!override x",
    "*shared",
    "&again x",
];

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(SCALARS).prop_map(str::to_owned),
        1 => "[ -~]{0,12}".prop_map(|text| format!("'{}'", text.replace('\'', "''"))),
    ]
}

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(KEYS.split(' ').collect::<Vec<_>>())
}

fn map_of(entries: &[(&str, String)]) -> String {
    let entries: Vec<String> = entries
        .iter()
        .map(|(key, value)| format!("\"{key}\": {value}"))
        .collect();
    format!("{{{}}}", entries.join(", "))
}

/// A value in flow form.
fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 24, 5, |below| {
        prop_oneof![
            prop::collection::vec(below.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec((key(), below.clone()), 0..5)
                .prop_map(|entries| map_of(&entries)),
            (
                prop::sample::select(&["!reset ", "!override ", ""][..]),
                below
            )
                .prop_map(|(tag, value)| if value.starts_with('!') {
                    value
                } else {
                    format!("{tag}{value}")
                }),
        ]
    })
}

fn section() -> impl Strategy<Value = String> {
    prop::collection::vec(
        (
            prop::sample::select(&["app", "db", "data", "default", "x"][..]),
            value(),
        ),
        0..4,
    )
    .prop_map(|entries| map_of(&entries))
}

fn service() -> impl Strategy<Value = String> {
    prop::collection::vec((key(), value()), 0..7).prop_map(|mut entries| {
        entries.push(("image", "a".to_owned()));
        map_of(&entries)
    })
}

/// A document; keys may repeat and sections may be of any form.
fn document() -> impl Strategy<Value = String> {
    (
        prop::collection::vec(service(), 0..4),
        prop::collection::vec(
            (
                prop::sample::select(&["networks", "volumes", "secrets", "configs"][..]),
                section(),
            ),
            0..4,
        ),
        prop::option::weighted(0.2, value()),
        prop::option::weighted(0.2, value()),
    )
        .prop_map(|(services, sections, include, shared)| {
            let mut text = String::new();
            if let Some(shared) = shared {
                writeln!(text, "x-shared: &shared {}", shared.replace("*shared", "1")).unwrap();
            }
            text += "services:\n";
            for (name, service) in ["app", "db", "cache", "data"].iter().zip(services) {
                writeln!(text, "  {name}: {service}").unwrap();
            }
            for (name, section) in sections {
                writeln!(text, "{name}: {section}").unwrap();
            }
            if let Some(include) = include {
                writeln!(text, "include: [{include}]").unwrap();
            }
            text
        })
}

fn dotenv() -> impl Strategy<Value = String> {
    prop::collection::vec(
        (
            prop::sample::select(&["A", "B", "export A", "'A", "=", "A B"][..]),
            scalar(),
        ),
        0..5,
    )
    .prop_map(|lines| {
        let lines = lines
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"));
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// Resolves in every way there is; the outcome may be anything but a panic or a hang.
fn resolve_all_ways(case: &Case) {
    let begun = Instant::now();
    if let Ok(files) = ComposeFiles::read(&case.compose) {
        let _ = files.variables();
        let first = case.resolve_files(&files);
        assert_eq!(first, case.resolve_files(&files), "the same twice");
        let stack = match first {
            Ok(resolution) => resolution.stack,
            Err(problems) => {
                assert!(!problems.0.is_empty() && !problems.to_string().is_empty());
                // Few random files resolve; what explains them is tried on all.
                let service = |name: &str| (name.to_owned(), Service::default());
                Stack {
                    services: ["app", "db"].map(service).into_iter().collect(),
                    ..Stack::default()
                }
            }
        };
        serde_json::to_string(&stack).unwrap();
        let request = ResolveRequest {
            cell: &case.cell,
            environment: &case.environment,
            roots: &case.roots,
            profiles: &case.profiles,
            shared: &case.shared,
        };
        let _ = files.explain(&request, &stack);
    }
    assert!(begun.elapsed() < LONGEST_CASE);
}

fn config() -> Config {
    // A count from the environment is in the default configuration already.
    match std::env::var("PROPTEST_CASES") {
        Ok(_) => Config::default(),
        Err(_) => Config::with_cases(CASES),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_combination_of_keys_and_values_panics(
        first in document(), later in document(), base in document(), dotenv in dotenv(),
        all_profiles in any::<bool>(),
    ) {
        let mut case = Case::new(&first)
            .compose("later.yaml", &later)
            .file("base.yaml", &base)
            .file(".env", &dotenv)
            .file("a.env", &dotenv)
            .cell("B", "cell");
        if all_profiles {
            case = case.profiles(&["*"]);
        }
        resolve_all_ways(&case);
    }

    #[test]
    fn no_text_between_valid_lines_panics(
        document in document(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..8, "[ -~\\n\\t&*!<|>]{0,4}"), 0..6),
    ) {
        let mut text = document;
        for (at, cut, insert) in edits {
            let start = at.index(text.len() + 1);
            let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap();
            let end = (start + cut).min(text.len());
            let end = (end..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap();
            text.replace_range(start..end, &insert);
        }
        resolve_all_ways(&Case::new(&text).cell("A", "1"));
    }
}
