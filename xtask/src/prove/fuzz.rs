//! Proof: no Compose file makes the resolver panic or hang.
//!
//! The fuzz tests of the ordinary suite, for ten minutes: in rounds with a seed
//! each, so that a round that fails can be run again alone. Overflow checks are on,
//! which is why it is not a release build. Read src/stack/resolve/tests/fuzz.rs.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fs_err as fs;

use crate::steps::{StepError, Steps, cargo};

/// No round begins after this.
const LENGTH: Duration = Duration::from_mins(10);
/// Cases of each of the two tests in a round.
const CASES: u64 = 2000;
/// Seed of the first round; each later one has the next.
const FIRST_SEED: u64 = 20_261_130;
/// The tests, by the beginning of their names.
const TESTS: &str = "stack::resolve::tests::fuzz";
/// How many there are.
const N_TESTS: u64 = 2;

/// Runs rounds until the time is over.
pub(super) fn fuzz(steps: &mut Steps, scratch: &Path) -> Result<String, StepError> {
    let begun = Instant::now();
    let mut n_rounds = 0;
    while begun.elapsed() < LENGTH {
        let seed = FIRST_SEED + n_rounds;
        // A test binary that is built already may be named.
        let mut command = if let Some(tests) = std::env::var_os("NIGHTSWEEP_PROVE_TESTS") {
            Command::new(tests)
        } else {
            cargo(&["test", "--locked", "--lib"])
        };
        command
            .arg(TESTS)
            .env("PROPTEST_CASES", CASES.to_string())
            .env("PROPTEST_RNG_SEED", seed.to_string());
        let name = format!("fuzz, seed {seed}");
        steps.run(&name, &mut command).map_err(|error| {
            error.hint(format!(
                "again: PROPTEST_CASES={CASES} PROPTEST_RNG_SEED={seed} cargo test --lib {TESTS}"
            ))
        })?;
        n_rounds += 1;
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let last_seed = FIRST_SEED + n_rounds - 1;
    fs::remove_dir_all(scratch)?;
    Ok(format!(
        "Random Compose files, `.env` files and later files through the resolver. Each case must end in \
         a stack or in problems, within 20 s, the same twice, without a panic or an overflow; the answer \
         of `explain` and the stack as JSON are made as well.\n\n\
         | what | value |\n| --- | --- |\n\
         | tests (whole documents; documents with damaged text) | {N_TESTS} |\n\
         | rounds | {n_rounds}, {CASES} cases a test each |\n\
         | cases | {} |\n\
         | seeds (`PROPTEST_RNG_SEED`) | {FIRST_SEED} to {last_seed} |\n\
         | time | {minutes:.1} min |\n\
         | cases that failed | 0 |\n",
        n_rounds * CASES * N_TESTS
    ))
}
