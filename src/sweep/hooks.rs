//! Commands in containers before a phase begins.
//!
//! The phase is held meanwhile. The load of the phase before goes on and is not recorded,
//! as between any two phases, so that what was warm stays warm; before the first
//! phase there is none.

use std::time::Duration;

use futures_util::future::join_all;

use super::shell::Trial;
use super::{Hook, Job, Reason};
use crate::engine::{ContainerId, Engine, Launched};
use crate::problem::chain;
use crate::units::format_duration;

/// What of a command's output a reason carries. **Units**: characters.
const SHOWN_CHARS: usize = 300;

/// Longest time all hooks of a trial may take together; the containers of one are side by side.
pub(super) fn hooks_limit(job: &Job) -> Duration {
    let hooks = job.phases.iter().flat_map(|phase| &phase.hooks);
    hooks.map(|hook| hook.timeout).sum()
}

impl<E: Engine> Trial<'_, '_, E> {
    /// Runs the hooks of a phase, one after the other; what they wrote is kept.
    ///
    /// **Errors**: `hook_failed`: a command that ends badly, too late, or cannot be run.
    pub(super) async fn run_hooks(
        &mut self,
        phase: usize,
        launched: &Launched,
    ) -> Result<(), Reason> {
        let job = self.job;
        let name = &job.phases[phase].plan.name;
        for (index, hook) in job.phases[phase].hooks.iter().enumerate() {
            let outcome = run_hook(&**self.shared.engine, hook, launched).await;
            let text = match &outcome {
                Ok((_, output)) => output.clone(),
                Err(words) => words.clone(),
            };
            let log = format!("hook-{}-{name}-{}", index + 1, hook.service);
            self.hook_logs.push((log, text));
            let why = match outcome {
                Ok((0, _)) => continue,
                Ok((code, output)) => {
                    format!("ended with code {code}; it last wrote: {}", tail(&output))
                }
                Err(words) => words,
            };
            let words = format!(
                "the hook before `{name}`, `{}` in service `{}`, {why}",
                hook.exec.join(" "),
                hook.service
            );
            return Err(Reason::new("hook_failed", words));
        }
        Ok(())
    }
}

/// Exit code and output; an error in words that follow 'the hook'.
async fn run_hook<E: Engine>(
    engine: &E,
    hook: &Hook,
    launched: &Launched,
) -> Result<(i64, String), String> {
    let ids = launched
        .containers
        .get(&hook.service)
        .ok_or_else(|| "cannot be run: that service was not launched".to_owned())?;
    // In every container of the service side by side: none has its load without the others.
    let ended = join_all(ids.iter().map(|id| run_in(engine, id, hook))).await;
    let mut worst = 0;
    let mut all = String::new();
    for one in ended {
        let (code, output) = one?;
        all.push_str(&output);
        worst = if worst == 0 { code } else { worst };
    }
    Ok((worst, all))
}

async fn run_in<E: Engine>(
    engine: &E,
    id: &ContainerId,
    hook: &Hook,
) -> Result<(i64, String), String> {
    match engine.exec(id, &hook.exec, hook.timeout).await {
        Ok(ended) => Ok(ended),
        Err(error) if error.kind == crate::engine::EngineErrorKind::Timeout => Err(format!(
            "did not end within {}",
            format_duration(hook.timeout)
        )),
        Err(error) => Err(format!("cannot be run: {}", chain(&error))),
    }
}

/// The end of a text on one line.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        return "nothing".to_owned();
    }
    let joined = lines.join(" | ");
    let n_chars = joined.chars().count();
    joined
        .chars()
        .skip(n_chars.saturating_sub(SHOWN_CHARS))
        .collect()
}
