//! `clean`: removes what nightsweep created and no living run owns.

use super::environment::Environment;
use super::error::{AppError, Outcome};
use crate::cli::CleanArgs;
use crate::engine::{CleanRequest, DockerEngine, Leftover, LeftoverKind};
use crate::problem::chain;
use crate::report::{Align, Printer, Table};

/// Finds leftovers by label and removes them.
pub(super) async fn clean(
    arguments: &CleanArgs,
    environment: &Environment,
    printer: Printer,
) -> Result<Outcome, AppError> {
    let engine = DockerEngine::find(environment.variables()).await?;
    let request = CleanRequest {
        run_id: arguments.run.clone(),
        golden: arguments.golden,
        images: arguments.images,
        is_dry_run: arguments.dry_run,
    };
    let report = crate::engine::clean(&engine, &request).await?;
    let mut table = Table::new(&[
        ("what", Align::Left),
        ("name", Align::Left),
        ("run", Align::Left),
        ("outcome", Align::Left),
    ]);
    let mut add = |thing: &Leftover, outcome: String| {
        let run = thing
            .labels
            .get("nightsweep.run")
            .cloned()
            .unwrap_or_default();
        table.row(vec![
            kind_of(thing.kind).to_owned(),
            thing.name.clone(),
            run,
            outcome,
        ]);
    };
    let removed = if arguments.dry_run {
        "would be removed"
    } else {
        "removed"
    };
    for thing in &report.removed {
        add(thing, removed.to_owned());
    }
    for (thing, why) in &report.kept {
        add(thing, format!("kept: {why}"));
    }
    for (thing, error) in &report.failed {
        add(thing, format!("failed: {}", chain(error)));
    }
    if report.removed.is_empty() && report.kept.is_empty() && report.failed.is_empty() {
        printer.note("nothing of nightsweep's is left on this engine");
        return Ok(Outcome::Done);
    }
    printer.data(&table.lines().join("\n"));
    match report.failed.len() {
        0 => Ok(Outcome::Done),
        n => Err(
            AppError::environment(anyhow::anyhow!("{n} things could not be removed"))
                .hint("see why in the table, then run `nightsweep clean` again"),
        ),
    }
}

fn kind_of(kind: LeftoverKind) -> &'static str {
    match kind {
        LeftoverKind::Container => "container",
        LeftoverKind::Network => "network",
        LeftoverKind::Volume => "volume",
        LeftoverKind::Image => "image",
    }
}
