//! Proofs: no Compose file makes the resolver panic or hang, and no answer of a server does so
//! to the load generator.
//!
//! The fuzz tests of the ordinary suite, for ten minutes: in rounds with a seed
//! each, so that a round that fails can be run again alone. Overflow checks are on,
//! which is why it is not a release build. Read src/stack/resolve/tests/fuzz.rs and
//! `src/load/answer_tests.rs`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::steps::{StepError, Steps, cargo};

/// No round begins after this.
const LENGTH: Duration = Duration::from_mins(10);
/// Seed of the first round; each later one has the next.
const FIRST_SEED: u64 = 20_261_130;

/// What is fuzzed, by which tests.
struct Subject {
    /// Names of the tests, or how they begin.
    tests: &'static [&'static str],
    /// How many that are.
    n_tests: u64,
    /// Cases of each test in a round.
    cases: u64,
    /// What a case is, and what must hold of it.
    about: &'static str,
    /// The tests in words.
    words: &'static str,
}

/// Compose files through the resolver.
pub(super) fn compose(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    let subject = Subject {
        tests: &["stack::resolve::tests::fuzz"],
        n_tests: 2,
        cases: 2_000,
        about: "Random Compose files, `.env` files and later files through the resolver. Each case must end in \
                a stack or in problems, within 20 s, the same twice, without a panic or an overflow; the answer \
                of `explain` and the stack as JSON are made as well.",
        words: "whole documents; documents with damaged text",
    };
    fuzz(steps, scratch, &subject)
}

/// HTTP/1.1 answers through the generator's client.
pub(super) fn answers(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    let subject = Subject {
        tests: &[
            "load::answer::tests::an_answer_is_the_same_however_it_is_cut",
            "load::answer::tests::whatever_comes_is_an_answer_or_a_mistake",
        ],
        n_tests: 2,
        cases: 20_000,
        about: "Random HTTP/1.1 answers through the reader of the load generator: framed by length, by chunks and by \
                the end of the connection, whole, damaged, and noise, cut into pieces at random. Each case must end in \
                the same answer or in a mistake of the same class as in one piece, without a panic or an overflow; \
                what comes out is bounded, and bodies are decoded, cookies and `retry-after` read.",
        words: "whole answers; damaged ones and noise",
    };
    fuzz(steps, scratch, &subject)
}

/// Runs rounds until the time is over.
fn fuzz(steps: &mut Steps, scratch: &Path, subject: &Subject) -> Result<String, StepError> {
    let Subject {
        tests,
        n_tests,
        cases,
        about,
        words,
    } = subject;
    let begun = Instant::now();
    let mut n_rounds = 0;
    while begun.elapsed() < LENGTH {
        let seed = FIRST_SEED + n_rounds;
        // A test binary that is built already may be named.
        let mut command = if let Some(binary) = std::env::var_os("NIGHTSWEEP_PROVE_TESTS") {
            Command::new(binary)
        } else {
            cargo(&["test", "--locked", "--lib", "--"])
        };
        command
            .args(*tests)
            .env("PROPTEST_CASES", cases.to_string())
            .env("PROPTEST_RNG_SEED", seed.to_string());
        let name = format!("fuzz, seed {seed}");
        steps.run(&name, &mut command).map_err(|error| {
            error.hint(format!(
                "again: PROPTEST_CASES={cases} PROPTEST_RNG_SEED={seed} cargo test --lib -- {}",
                tests.join(" ")
            ))
        })?;
        n_rounds += 1;
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let last_seed = FIRST_SEED + n_rounds - 1;
    fs::remove_dir_all(scratch)?;
    Ok(format!(
        "{about}\n\n\
         | what | value |\n| --- | --- |\n\
         | tests ({words}) | {n_tests} |\n\
         | rounds | {n_rounds}, {cases} cases a test each |\n\
         | cases | {} |\n\
         | seeds (`PROPTEST_RNG_SEED`) | {FIRST_SEED} to {last_seed} |\n\
         | time | {minutes:.1} min |\n\
         | cases that failed | 0 |\n",
        n_rounds * cases * n_tests
    ))
}
