//! The images of a sweep, got before anything is launched.

use std::sync::Arc;

use indexmap::IndexMap;

use super::environment::Environment;
use super::error::AppError;
use crate::engine::{
    CliConfig, Engine, ImageFacts, ImageProgress, Keyring, PrepareError, build_key_of,
    prepare_images, without_build_keys,
};
use crate::report::{ImageLines, Printer};
use crate::secret::Secrets;
use crate::stack::Stack;
use crate::sweep::{StatePlan, SweepPlan};

/// Gets the images of the trials that will run; stacks and plan then name them by content.
///
/// The credentials that were used count as secrets from then on.
pub(super) async fn prepare<E: Engine>(
    engine: &E,
    stacks: &mut [Arc<Stack>],
    plan: &mut SweepPlan,
    secrets: &mut Secrets,
    environment: &Environment,
    printer: Printer,
) -> Result<IndexMap<String, ImageFacts>, AppError> {
    let is_run = |stack: &Arc<Stack>| {
        let mut jobs = plan.jobs.iter().filter(|job| job.skip.is_none());
        jobs.any(|job| Arc::ptr_eq(&job.stack, stack))
    };
    let indexes: Vec<usize> = (0..stacks.len())
        .filter(|index| is_run(&stacks[*index]))
        .collect();
    // What prepares golden volumes may start more services than any trial.
    let preparing = match &plan.state {
        StatePlan::Golden(golden) => golden.specs.iter().map(|spec| &spec.stack).collect(),
        StatePlan::Fresh | StatePlan::Keep => Vec::new(),
    };
    let wanted: Vec<Arc<Stack>> = indexes
        .iter()
        .map(|index| &stacks[*index])
        .chain(preparing)
        .map(Arc::clone)
        .collect();
    let keyring = Keyring::new(CliConfig::read(environment.variables()));
    let lines = ImageLines::new(printer);
    let tell = |step: ImageProgress<'_>| tell(&lines, secrets, step);
    let prepared = prepare_images(engine, &wanted, &keyring, environment.now(), &tell).await;
    printer.clear_progress();
    for text in keyring.texts() {
        secrets.hide(&text);
    }
    let prepared = prepared.map_err(|error| in_words(error, secrets))?;
    for warning in &prepared.warnings {
        printer.note(&format!("warning: {}", secrets.redact(warning)));
    }
    // A key is a digest over arguments of the build, which may be secrets.
    for key in prepared
        .facts
        .keys()
        .filter_map(|image| build_key_of(image))
    {
        secrets.hide(key);
    }
    let mut pinned = prepared.stacks.into_iter();
    for (index, pinned) in indexes.into_iter().zip(pinned.by_ref()) {
        for job in &mut plan.jobs {
            if Arc::ptr_eq(&job.stack, &stacks[index]) {
                job.stack = Arc::clone(&pinned);
            }
        }
        stacks[index] = pinned;
    }
    if let StatePlan::Golden(golden) = &mut plan.state {
        for (spec, pinned) in golden.specs.iter_mut().zip(pinned) {
            spec.stack = pinned;
        }
    }
    Ok(prepared.facts)
}

fn tell(lines: &ImageLines, secrets: &Secrets, step: ImageProgress<'_>) {
    match step {
        ImageProgress::Pulling {
            image,
            done_bytes,
            total_bytes,
        } => lines.pulling(&secrets.redact(image), done_bytes, total_bytes),
        ImageProgress::Pulled {
            image,
            is_new,
            fetched_bytes,
        } => lines.pulled(&secrets.redact(image), is_new, fetched_bytes),
        ImageProgress::Sending {
            image,
            sent_bytes,
            total_bytes,
        } => lines.sending(image, sent_bytes, total_bytes),
        // A step may print an argument that came from the environment.
        ImageProgress::Building { image, line } => {
            lines.building(image, &without_build_keys(&secrets.redact(line)));
        }
        ImageProgress::Built { image, took } => lines.built(image, took),
        ImageProgress::BuiltBefore { image } => lines.built_before(image),
    }
}

fn in_words(error: PrepareError, secrets: &Secrets) -> AppError {
    match error {
        PrepareError::Missing(missing) => {
            let words = without_build_keys(&secrets.redact(&missing.to_string()));
            let words = anyhow::anyhow!(words);
            if missing.is_input() {
                AppError::input(words)
            } else {
                AppError::environment(words)
            }
        }
        PrepareError::Engine(source) => source.into(),
    }
}
