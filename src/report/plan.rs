//! `plan` as text: what would be run, in which order, for how long.

use super::table::{Align, Table, rate};
use crate::matrix::{
    Arrivals, Beside, Cell, CellLoad, CellPhase, ClonesCost, Order, Plan, State, Sweep,
};
use crate::units::{format_bytes, format_duration};

/// Cells shown in full; larger plans show their ends.
const SHOWN: usize = 100;

/// The plan for people; `services` are those that are started and not started, `cpus` is
/// whose CPUs are whose.
pub fn plan_text(
    plan: &Plan,
    sweep: &Sweep,
    started: &[String],
    not_started: &[String],
    cpus: &[String],
) -> String {
    let mut lines = vec![
        format!("{}: {} cells", sweep.name, plan.cells.len()),
        String::new(),
    ];
    lines.extend(cell_table(plan));
    lines.push(String::new());
    lines.extend(dropped(plan));
    lines.extend(phases(plan));
    lines.push(format!("starts        {}", started.join(", ")));
    if !not_started.is_empty() {
        lines.push(format!("not started   {}", not_started.join(", ")));
    }
    for (index, line) in cpus.iter().enumerate() {
        let label = if index == 0 { "cpus" } else { "" };
        lines.push(format!("{label:<13} {line}"));
    }
    let order = match sweep.trials.order {
        Order::Blocks => format!(
            "{} blocks, each a random order of all cells (seed {})",
            sweep.trials.repeats, sweep.trials.seed
        ),
        Order::Listed => format!("{} times through the table above", sweep.trials.repeats),
    };
    lines.push(format!("order         {order}"));
    lines.push(format!("trials        {}", plan.trials.len()));
    lines.push(format!(
        "time          about {}{}",
        format_duration(plan.estimate.duration),
        beside(plan)
    ));
    lines.extend(state(plan));
    lines.push(format!(
        "disk          about {} of results",
        format_bytes(plan.without_clones().bytes)
    ));
    for warning in &plan.warnings {
        lines.push(format!("warning: {warning}"));
    }
    lines.join("\n")
}

/// What the time of a sweep with golden volumes does not count, or does.
fn beside(plan: &Plan) -> &'static str {
    if plan.state.kind != State::Golden {
        return "";
    }
    match plan.state.clones {
        Some(ClonesCost {
            is_prepared: true,
            duration: Some(_),
            ..
        }) => ", clones included",
        Some(ClonesCost {
            duration: Some(_), ..
        }) => ", clones included, plus preparing once where the source has changed",
        _ => ", plus preparing once and the clones; unknown until then",
    }
}

/// What trials find in their volumes, and what all clones write.
fn state(plan: &Plan) -> Vec<String> {
    let Some(golden) = &plan.state.golden else {
        let what = match plan.state.kind {
            State::Keep => "keep: the named volumes are made once and kept for the whole run",
            State::Fresh | State::Golden => return Vec::new(),
        };
        return vec![format!("state         {what}")];
    };
    let volumes: Vec<&str> = golden
        .volumes
        .iter()
        .map(|name| name.value.as_str())
        .collect();
    let n_clones = plan.trials.len();
    let clones = format!("{n_clones} clone{}", if n_clones == 1 { "" } else { "s" });
    let written = match plan.state.clones {
        Some(cost) => {
            let size = format_bytes(cost.golden_bytes);
            let bytes = match cost.bytes {
                0 => "share its blocks: nothing but what trials write".to_owned(),
                bytes => format!("are {}", format_bytes(bytes)),
            };
            let time = cost.duration.map_or_else(String::new, |time| {
                format!(", {} in all", format_duration(time))
            });
            format!("{clones} of {size} {bytes}{time}")
        }
        None => format!("{clones}, plus preparing once; unknown until then"),
    };
    vec![
        format!(
            "state         golden: {} from {}, cloned for every trial ({})",
            volumes.join(", "),
            golden.from.value,
            golden.clone.as_str()
        ),
        format!("written       {written}"),
    ]
}

fn cell_table(plan: &Plan) -> Vec<String> {
    let mut table = Table::new(&[("cell", Align::Left)]);
    for name in plan.derived_names() {
        table.add_column(name, Align::Right);
    }
    let has_aliases = plan
        .cells
        .iter()
        .any(|cell| cell.aliases().next().is_some());
    if has_aliases {
        table.add_column("also", Align::Left);
    }
    for cell in plan.cells.iter().take(SHOWN) {
        let mut line = vec![cell.id().to_string()];
        line.extend(cell.derived().map(|(_, value)| value.to_string()));
        if has_aliases {
            line.push(aliases(cell));
        }
        table.row(line);
    }
    let mut lines = table.lines();
    if plan.cells.len() > SHOWN {
        lines.push(format!(
            "… and {} more (--json has them all)",
            plan.cells.len() - SHOWN
        ));
    }
    lines
}

fn aliases(cell: &Cell) -> String {
    let levels = |alias: Vec<String>| alias.join(" ");
    cell.aliases()
        .map(|alias| {
            levels(
                alias
                    .into_iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect(),
            )
        })
        .collect::<Vec<_>>()
        .join(", ")
}

fn dropped(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = plan
        .dropped
        .iter()
        .take(SHOWN)
        .map(|dropped| {
            let axes: Vec<String> = dropped
                .axes()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!(
                "dropped       {} by {}",
                axes.join(" "),
                dropped.constraints().collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    if plan.dropped.len() > SHOWN {
        lines.push(format!(
            "dropped       … and {} more",
            plan.dropped.len() - SHOWN
        ));
    }
    lines
}

/// The phases, with the range of their loads over the cells.
fn phases(plan: &Plan) -> Vec<String> {
    let all: Vec<_> = plan.cells.iter().map(|cell| plan.phases(cell)).collect();
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let mut ramp = None;
    for (index, phase) in first.iter().enumerate() {
        let amounts = all.iter().map(|phases| amount(phases[index].model));
        let low = amounts.clone().fold(f64::INFINITY, f64::min);
        let high = amounts.fold(f64::NEG_INFINITY, f64::max);
        let range = if low < high {
            format!("{} to {}", rate(low), rate(high))
        } else {
            rate(low)
        };
        let load = load_words(phase.model, &range);
        // A ramp stands on the line of what it leads to, where that is held.
        let is_led_to = |next: &CellPhase| {
            !next.is_first && next.ramp_from.is_none() && next.model == phase.model
        };
        if phase.ramp_from.is_some() {
            let length = format_duration(phase.duration);
            if first.get(index + 1).is_some_and(is_led_to) {
                ramp = Some(format!(" after a ramp of {length}"));
            } else {
                lines.push(format!(
                    "phase         {}: a ramp of {length} to {load}, not measured",
                    phase.name
                ));
            }
            continue;
        }
        let what = phase.answers.map_or_else(
            || "not measured".to_owned(),
            |answers| format!("answers {}", answers.as_str()),
        );
        let beside: String = phase.beside.iter().map(beside_words).collect();
        let step = phase
            .step
            .map_or_else(String::new, |step| format!(", step {step},"));
        lines.push(format!(
            "phase         {}{step} for {}{}, {load}{beside}, {what}",
            phase.name,
            format_duration(phase.duration),
            ramp.take().unwrap_or_default(),
        ));
    }
    lines
}

/// ` beside 20 requests/s of journey poll`: in no figure of the phase's own load.
fn beside_words(beside: &Beside) -> String {
    let poisson = match beside.arrivals {
        Arrivals::Uniform => "",
        Arrivals::Poisson => " (Poisson arrivals)",
    };
    format!(
        " beside {} requests/s{poisson} of journey {}",
        rate(beside.requests_per_second),
        beside.journey.value
    )
}

fn load_words(model: CellLoad, range: &str) -> String {
    match model {
        CellLoad::Closed { .. } => format!("{} virtual users", whole(range)),
        CellLoad::Open {
            arrivals: Arrivals::Uniform,
            ..
        } => format!("{range} requests/s"),
        CellLoad::Open {
            arrivals: Arrivals::Poisson,
            ..
        } => format!("{range} requests/s (Poisson arrivals)"),
        CellLoad::Script { .. } => "load of the k6 script".to_owned(),
    }
}

fn amount(model: CellLoad) -> f64 {
    match model {
        CellLoad::Closed { users } => f64::from(users),
        CellLoad::Open {
            requests_per_second,
            ..
        } => requests_per_second,
        CellLoad::Script { .. } => 0.0,
    }
}

/// Users are whole: `4.00 to 16.0` reads `4 to 16`.
fn whole(range: &str) -> String {
    range
        .split(' ')
        .map(|word| word.split('.').next().unwrap_or(word))
        .collect::<Vec<_>>()
        .join(" ")
}
