//! What the README says of the tool is what the tool says of itself.

use std::fmt::Write as _;

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
