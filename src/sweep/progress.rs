//! How long the rest of a sweep will take. Pure arithmetic.

use std::time::Duration;

use super::{Job, Settings};

/// Expected rest of the sweep, corrected by the dead times measured so far.
#[derive(Debug)]
pub(super) struct Progress {
    /// Load of the trials that have not begun.
    load_ahead: Duration,
    trials_ahead: u32,
    assumed_dead_time: Duration,
    measured_dead_time: Duration,
    n_measured: u32,
}

impl Progress {
    /// The whole sweep ahead.
    pub(super) fn new(jobs: &[Job], settings: &Settings) -> Self {
        let run: Vec<&Job> = jobs.iter().filter(|job| job.skip.is_none()).collect();
        Self {
            load_ahead: run.iter().map(|job| load_of(job)).sum(),
            trials_ahead: u32::try_from(run.len()).unwrap_or(u32::MAX),
            assumed_dead_time: settings.assumed_dead_time,
            measured_dead_time: Duration::ZERO,
            n_measured: 0,
        }
    }

    /// A trial begins: it is no longer ahead.
    pub(super) fn begin(&mut self, job: &Job) {
        self.load_ahead = self.load_ahead.saturating_sub(load_of(job));
        self.trials_ahead = self.trials_ahead.saturating_sub(1);
    }

    /// A trial ended; its dead time improves the estimate.
    pub(super) fn end(&mut self, dead_time: Option<Duration>) {
        if let Some(time) = dead_time {
            self.measured_dead_time += time;
            self.n_measured += 1;
        }
    }

    /// Expected time for what is ahead plus the given rest of this trial. **Units**: seconds.
    pub(super) fn left_s(&self, rest_of_trial: Duration) -> f64 {
        (self.load_ahead + self.dead_time() * self.trials_ahead + rest_of_trial).as_secs_f64()
    }

    /// Expected launch and tear-down of one trial, what overlaps counted once.
    pub(super) fn dead_time(&self) -> Duration {
        if self.n_measured == 0 {
            self.assumed_dead_time
        } else {
            self.measured_dead_time / self.n_measured
        }
    }
}

/// Nominal length of a trial's load.
pub(super) fn load_of(job: &Job) -> Duration {
    job.phases.iter().map(|phase| phase.plan.duration).sum()
}
