//! `report`: tables and charts again, from a run's files alone.

use indexmap::IndexSet;
use serde_json::Value;

use super::error::{AppError, Outcome};
use crate::chart::{ChartError, ChartInfo, draw_all};
use crate::cli::ReportArgs;
use crate::report::{Printer, best_tables, crossed_lines, cuts_json, cuts_table, ladder_tables};
use crate::results::{
    Cut, Parity, RunFolder, RunsFolder, TrialRow, best_measured, cut_windows, cuts_csv, ladders,
    read_trials, write_parity,
};

/// Finds the run and draws it.
pub(super) fn report(arguments: &ReportArgs, printer: Printer) -> Result<Outcome, AppError> {
    let folder = RunsFolder::under(&arguments.out).find(&arguments.run)?;
    if arguments.from.is_some() || arguments.to.is_some() {
        let asked = Cut {
            from_s: arguments.from.unwrap_or(0),
            to_s: arguments.to,
        };
        print_parts(&folder, asked, arguments, printer)?;
    } else if arguments.json || arguments.csv {
        let what = anyhow::anyhow!("--json and --csv are for parts of windows");
        return Err(
            AppError::input(what).hint("give --from or --to; --from 0s is the whole of each")
        );
    } else {
        draw(&folder, printer, true)?;
    }
    Ok(Outcome::Done)
}

/// Prints figures of a part of every window; charts and files stay as they are.
fn print_parts(
    folder: &RunFolder,
    asked: Cut,
    arguments: &ReportArgs,
    printer: Printer,
) -> Result<(), AppError> {
    let wrong = |what: String| AppError::input(anyhow::anyhow!(what));
    if let Some(to_s) = asked.to_s.filter(|to_s| *to_s <= asked.from_s) {
        let from_s = asked.from_s;
        return Err(wrong(format!(
            "--to {to_s}s is not after --from {from_s}s: there is nothing between them"
        )));
    }
    let read = read_trials(&folder.trials_csv())?;
    if let Some(torn) = &read.torn_line {
        printer.note(&format!("warning: {torn}"));
    }
    let cuts = cut_windows(folder, &read.rows, asked)?;
    if cuts.iter().all(|cut| cut.part.is_err()) {
        let from_s = asked.from_s;
        let reasons: IndexSet<&String> = cuts
            .iter()
            .filter_map(|cut| cut.part.as_ref().err())
            .collect();
        let reasons: Vec<&str> = reasons.into_iter().take(5).map(String::as_str).collect();
        return Err(
            wrong(format!("no window has figures from {from_s} s on")).hint(reasons.join("; "))
        );
    }
    printer.data(&if arguments.json {
        cuts_json(folder.id(), asked, &cuts).to_string()
    } else if arguments.csv {
        cuts_csv(&cuts).trim_end().to_owned()
    } else {
        cuts_table(asked, &cuts)
    });
    Ok(())
}

/// Reads the rows, draws the charts, writes the parity export, prints the tables.
///
/// `with_data`: whether stdout gets the tables; it belongs to JSON lines otherwise.
pub(super) fn draw(folder: &RunFolder, printer: Printer, with_data: bool) -> Result<(), AppError> {
    let read = read_trials(&folder.trials_csv())?;
    if let Some(torn) = &read.torn_line {
        printer.note(&format!("warning: {torn}"));
    }
    let about = About::of(folder, &read.rows);
    let best = best_measured(&read.rows, about.tier.as_deref());
    if with_data {
        printer.data(&best_tables(
            &best,
            &read.rows,
            about.tier.as_deref().unwrap_or("tier"),
        ));
        let ladders = ladder_tables(&ladders(&read.rows));
        if !ladders.is_empty() {
            printer.data(&format!("\n{ladders}"));
        }
        let crossed = crossed_lines(&read.rows);
        if !crossed.is_empty() {
            printer.data(&format!("\n{crossed}"));
        }
    }
    let info = ChartInfo {
        title: about.title,
        tier: about.tier.clone(),
        axis_titles: about.axis_titles,
    };
    match draw_all(&read.rows, &info, folder.charts()) {
        Ok(_) => printer.note(&format!("charts  {}", folder.charts().display())),
        // A run whose trials were all skipped has nothing to draw; its rows say why.
        Err(error @ ChartError::NoCells { .. }) => printer.note(&format!("no charts: {error}")),
        Err(error) => return Err(AppError::environment(error)),
    }
    if let Some(tier) = &about.tier
        && let Parity::Skipped(why) = write_parity(&read.rows, tier, folder.charts())?
    {
        printer.note(&format!(
            "no tables in the layout of the reference study: {why}"
        ));
    }
    printer.note(&format!("rows    {}", folder.trials_csv().display()));
    Ok(())
}

/// What the manifest says that rows do not; rows from elsewhere have none.
struct About {
    title: String,
    tier: Option<String>,
    axis_titles: indexmap::IndexMap<String, String>,
}

impl About {
    fn of(folder: &RunFolder, rows: &[TrialRow]) -> Self {
        let manifest: Value = fs_err::read_to_string(folder.manifest())
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or(Value::Null);
        let text = |key: &str| manifest.get(key).and_then(Value::as_str).map(str::to_owned);
        let axes: Vec<&String> = rows
            .first()
            .map(|row| row.axes.keys().collect())
            .unwrap_or_default();
        // Without a manifest an axis that is called so is the tier.
        let tier = text("tier").or_else(|| {
            axes.iter()
                .find(|name| name.contains("cpu"))
                .map(|name| (*name).clone())
        });
        let mut axis_titles = indexmap::IndexMap::new();
        if let Some(tier) = tier.as_ref().filter(|tier| tier.contains("cpu")) {
            axis_titles.insert(tier.clone(), "CPU limit [cores]".to_owned());
        }
        Self {
            title: text("title")
                .or_else(|| text("name"))
                .unwrap_or_else(|| folder.id().to_owned()),
            tier,
            axis_titles,
        }
    }
}
