//! The project's own commands: `cargo xtask demo | test | prove | bench-load | images`.
//!
//! Standard library only, so that it is built in a second. Each command is a
//! list of steps; a step is a program with arguments, its name and its time.
//! Read `demo.rs` for what a newcomer runs and `test.rs` for what CI runs.

#![expect(
    clippy::print_stderr,
    reason = "this program's output is for the person who typed the command"
)]

mod bench_load;
mod demo;
mod images;
mod k6;
mod prove;
mod steps;
mod test;

use std::process::ExitCode;

use steps::{StepError, Steps};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  demo           build everything, get the images, sweep the demo matrix on the
                 bundled testbed and a real PostgreSQL, draw the charts
  test           everything CI runs: format, lints, docs, tests on real containers
  prove [PART]   the long proofs, whose dated results go to docs/proofs/:
                 cold-demo, golden, dead-time, launches, freeze, fuzz, fuzz-answers,
                 compose-corpus
  bench-load     what a request costs the load generator, beside wrk, oha, hey, ab, k6 and
                 bare loops, whichever are installed; to docs/proofs/, too.
                 [--rounds N] [--seconds N] [--only get|post|crud|tls|memory] [--network own|host]
                 [--binary PATH]
  images         get or make the container images that demo and test need
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut steps = Steps::new();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["demo"] => demo::demo(&mut steps),
        ["test"] => test::test(&mut steps),
        ["prove"] => prove::prove(&mut steps, None),
        ["prove", part] => prove::prove(&mut steps, Some(part)),
        ["bench-load", options @ ..] => bench_load::bench_load(&mut steps, options),
        ["images"] => images::images(&mut steps).map(|_| ()),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(StepError { message, hint }) => {
            eprintln!("error: {message}");
            if let Some(hint) = hint {
                eprintln!("  hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}
