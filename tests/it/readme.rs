//! What the README says of the tool is what the tool says of itself.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use clap::CommandFactory;
use nightsweep::cli::Cli;

use crate::support::repository;

fn readme() -> String {
    std::fs::read_to_string(repository().join("README.md")).unwrap()
}

#[test]
fn every_command_is_in_the_readme_in_the_words_of_its_help() {
    let mut expected = String::new();
    let commands = Cli::command();
    for command in commands
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        let about = command.get_about().unwrap();
        writeln!(expected, "| `{}` | {about} |", command.get_name()).unwrap();
    }
    assert!(
        readme().contains(&expected),
        "the README's table should be:\n{expected}"
    );
}

#[test]
fn every_file_the_readme_links_to_is_there() {
    let text = readme();
    let mut n_links = 0;
    for (start, _) in text.match_indices("](") {
        let target = text[start + 2..].split(')').next().unwrap();
        if !target.starts_with("http") {
            assert!(repository().join(target).exists(), "{target}");
            n_links += 1;
        }
    }
    assert!(n_links > 5);
}

#[test]
fn every_exit_code_of_the_help_is_in_the_readme() {
    let help = Cli::command().render_long_help().to_string();
    let codes = help.split("Exit codes:").nth(1).unwrap();
    let text = readme();
    for line in codes.lines().filter(|line| !line.trim().is_empty()) {
        let code = line.split_whitespace().next().unwrap();
        assert!(text.contains(&format!("| {code} | ")), "{code}");
    }
}

#[test]
fn every_reason_of_the_code_is_in_the_table_of_reasons() {
    let text = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let table = text.split("| verdict | reason |").nth(1).unwrap();
    let table = table.split("\n\n").next().unwrap();
    let reasons = reasons_of_the_code();
    assert!(reasons.len() > 25, "{reasons:?}");
    for reason in &reasons {
        assert!(table.contains(&format!("`{reason}`")), "{reason}");
    }
    let of_table = table.split('`').skip(1).step_by(2);
    let code_words = of_table.filter(|word| word.contains('_') && !word.starts_with("max_"));
    for word in code_words {
        assert!(reasons.contains(word), "`{word}` is no reason");
    }
}

/// The codes in the source: those of trials, of launches and of windows.
fn reasons_of_the_code() -> BTreeSet<String> {
    let source = repository().join("src");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut reasons = BTreeSet::new();
    let sweep = std::fs::read_dir(source.join("sweep")).unwrap();
    let sweep = sweep.map(|entry| entry.unwrap().path());
    let files = sweep.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    for file in files.chain([source.join("app/jobs.rs")]) {
        let text = read(&file);
        for marker in [
            "Reason::new(",
            "reason = Some(",
            "THRESHOLD_CROSSED: &str =",
        ] {
            let after = text.split(marker).skip(1).map(str::trim_start);
            reasons.extend(after.filter_map(quoted));
        }
    }
    for (file, function) in [
        ("engine/launch/error.rs", "pub fn reason("),
        ("measure/verdict.rs", "pub fn code("),
    ] {
        let text = read(&source.join(file));
        let body = text.split(function).nth(1).unwrap();
        let body = body.split("\n    }\n").next().unwrap();
        let arms = body.split("=>").skip(1);
        reasons.extend(arms.filter_map(|arm| quoted(arm.trim_start_matches([' ', '{', '\n']))));
    }
    reasons
}

/// What stands in quotes at the beginning.
fn quoted(text: &str) -> Option<String> {
    let rest = text.strip_prefix('"')?;
    Some(rest.split('"').next()?.to_owned())
}
