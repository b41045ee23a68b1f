//! `helper`: the tool inside a container of its own.

use super::error::{AppError, Outcome};
use crate::cli::{HelperArgs, HelperJob, HelperMode};
use crate::report::Printer;
use crate::tree::{CloneMode, Depth, TreeJob, carry_out};

/// Does the job and prints one line of JSON.
pub(super) fn helper(arguments: HelperArgs, printer: Printer) -> Result<Outcome, AppError> {
    let (job, names) = job_of(arguments.job);
    let answer = carry_out(&job, &names).map_err(AppError::environment)?;
    let line = serde_json::to_string(&answer).map_err(AppError::bug)?;
    printer.data(&line);
    Ok(Outcome::Done)
}

fn job_of(job: HelperJob) -> (TreeJob, Vec<String>) {
    let depth_of = |shape| if shape { Depth::Shape } else { Depth::Content };
    match job {
        HelperJob::Clone {
            from,
            to,
            mode,
            shape,
            sync,
            names,
        } => {
            let mode = match mode {
                HelperMode::Auto => CloneMode::Auto,
                HelperMode::Reflink => CloneMode::Reflink,
                HelperMode::Copy => CloneMode::Copy,
            };
            let depth = depth_of(shape);
            let job = TreeJob::Clone {
                from,
                to,
                mode,
                depth,
                sync,
            };
            (job, names)
        }
        HelperJob::Fingerprint { at, shape, names } => {
            let depth = depth_of(shape);
            (TreeJob::Fingerprint { at, depth }, names)
        }
        HelperJob::Scratch { from, to, names } => (TreeJob::Scratch { from, to }, names),
    }
}
