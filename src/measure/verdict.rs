//! Rules that judge one window from its figures alone.
//!
//! A bad service is a result, a bad measurement is not: `suspect` is said of
//! the generator, flags are said of the service. What happened to containers
//! and host is judged elsewhere. Thresholds are constants with their source.
//!
//! `stalled` says that the service stood still in a part of the window, which
//! counts and percentiles of successes hide: users that hang send nothing, so
//! seconds of silence weigh as little as one slow request. It is read from the
//! seconds without a success, and in a closed loop from the users abandoned.
//!
//! What arrives beside the window's own load must hold its rate as well: else the window
//! is `overloaded`, whatever its own load is.
//!
//! `evidence` puts the numbers that a rule fired by into words.

use std::time::Duration;

use super::{Figures, Outcome, WindowSummary};

/// What the window was meant to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// A closed loop, for throughput.
    Closed,
    /// An open loop, for latency.
    Open,
}

/// What is thought of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// The figures stand.
    Valid,
    /// The generator cannot be trusted in this window.
    Suspect,
    /// There is no measurement.
    Failed,
}

/// Why a window is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing succeeded: what was due failed, or nothing was, because every user
    /// was still waiting for an answer from before.
    NoSuccess,
    /// The generator itself was late or had no CPU left.
    GeneratorSaturated,
    /// Recorded time does not add up to the journeys under way.
    LittlesLaw,
}

impl Reason {
    /// The code in rows: `no_success`.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoSuccess => "no_success",
            Self::GeneratorSaturated => "generator_saturated",
            Self::LittlesLaw => "littles_law",
        }
    }
}

/// What a reader of a valid window must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flag {
    /// The service did not carry the rate.
    Overloaded,
    /// More than 1 % of the requests failed.
    Errors,
    /// Too short or too few requests for what it answers.
    TooFew,
    /// A closed loop whose generator used nearly all of its cores, or had to wait for
    /// them: the service may be able to do more.
    GeneratorBound,
    /// The service stood still for whole seconds, or never answered half of the users.
    Stalled,
}

impl Flag {
    /// The code in rows: `too_few`.
    pub fn code(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::Errors => "errors",
            Self::TooFew => "too_few",
            Self::GeneratorBound => "generator_bound",
            Self::Stalled => "stalled",
        }
    }
}

/// The verdict on one window.
///
/// **Shape**: `reasons` is empty exactly when the judgement is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowVerdict {
    /// Valid, suspect or failed.
    pub judgement: Judgement,
    /// Why it is not valid, gravest first.
    pub reasons: Vec<Reason>,
    /// What must be known of it.
    pub flags: Vec<Flag>,
}

/// Shortest window for a throughput. Under 20 s
/// one garbage collection or checkpoint decides the figure.
const THROUGHPUT_MIN_LENGTH: Duration = Duration::from_secs(20);
/// Fewest successes for a throughput: 2,000 give a counting error near 2 %.
const THROUGHPUT_MIN_SUCCESSES: u64 = 2_000;
/// Fewest successes for a p99: 10,000 leave 100 of them in the tail.
const P99_MIN_SUCCESSES: u64 = 10_000;
/// Largest share of failed requests that goes without a flag: the default
/// error rate of a service level in the matrix, 1 %.
const ERRORS_SHARE: f64 = 0.01;
/// Smallest share of due requests that must be sent before the right edge. **Source**: k6's guide to
/// large tests and wrk2 both treat a missed rate as a failed test; 1 % is slack
/// for the edges.
const ACHIEVED_SHARE: f64 = 0.99;
/// Largest share of its cores a generator may use. **Source**: k6's guide to
/// large tests: leave 20 % of the CPU idle, else its own waits are measured.
pub(super) const GENERATOR_CPU_SHARE: f64 = 0.8;
/// Largest share of its time a load thread of a closed loop may be ready and without a CPU.
/// A user's next request is held up at most while its thread waits, so the throughput without
/// a neighbour would be higher by w / (1 - w) at most: 5 %, which Little's law is allowed to be
/// off by. **Source**: the run-queue delay of schedstat, the kernel's `sched-stats` documentation.
const GENERATOR_WAIT_SHARE: f64 = 0.05;
/// Largest p99 of the generator's own lag that is never a fault. Timers alone
/// lag 1.3 ms at p99 on an idle virtual machine. **Units**: milliseconds.
const GENERATOR_LAG_MS: f64 = 1.0;
/// And never a fault below this share of the measured p99; without one, of the window.
pub(super) const GENERATOR_LAG_SHARE: f64 = 0.1;
/// Largest gap between journeys under way and recorded time.
/// **Source**: Little, 1961; 5 % is room for answers that wait to be read.
pub(super) const LITTLES_LAW_GAP: f64 = 0.05;
/// Fewest successes per second in the mean from which a second without any is no
/// chance: at random arrivals one such second is e^-10, 1 in 20,000.
const STALLED_MIN_RPS: f64 = 10.0;
/// So many times the longest break that journeys make by themselves is a stall.
/// Users that began together still send together after one slow round, which
/// doubles the break.
const STALLED_BREAKS: f64 = 2.0;
/// From this share of a closed loop's users abandoned the service stood still at
/// the end: single hung requests are no more than a few.
const STALLED_USERS_SHARE: f64 = 0.5;
/// Below so many recorded requests the gap is noise of single answers.
const LITTLES_LAW_MIN_REQUESTS: u64 = 100;

/// Judges one window.
pub fn judge(summary: &WindowSummary, pacing: Pacing) -> WindowVerdict {
    let mut reasons = Vec::new();
    let nothing_succeeded = summary.total.counts.successes == 0;
    if nothing_succeeded {
        reasons.push(Reason::NoSuccess);
    }
    let is_open = pacing == Pacing::Open;
    let is_saturated = is_open && !saturations(summary).is_empty();
    if is_saturated {
        reasons.push(Reason::GeneratorSaturated);
    }
    if breaks_littles_law(summary) {
        reasons.push(Reason::LittlesLaw);
    }
    let judgement = if nothing_succeeded {
        Judgement::Failed
    } else if reasons.is_empty() {
        Judgement::Valid
    } else {
        Judgement::Suspect
    };
    let mut flags = Vec::new();
    let beside = summary.beside.iter().map(|beside| &beside.requests);
    let mut beside_behind = beside.clone();
    if is_open && !is_saturated && is_overloaded(&summary.total, summary.length)
        || beside_behind.any(|requests| is_overloaded(requests, summary.length))
    {
        flags.push(Flag::Overloaded);
    }
    let counts = &summary.total.counts;
    let mut all = std::iter::once(&summary.total).chain(beside);
    if all.any(|figures| {
        let counts = &figures.counts;
        let n_failed = counts.errors.total() + counts.abandoned;
        n_failed as f64 > ERRORS_SHARE * counts.requests as f64
    }) {
        flags.push(Flag::Errors);
    }
    let has_too_few = match pacing {
        Pacing::Closed => {
            summary.length < THROUGHPUT_MIN_LENGTH || counts.successes < THROUGHPUT_MIN_SUCCESSES
        }
        Pacing::Open => counts.successes < P99_MIN_SUCCESSES,
    };
    if has_too_few {
        flags.push(Flag::TooFew);
    }
    if !is_open && (uses_its_cores_up(summary) || waits_for_cores(summary)) {
        flags.push(Flag::GeneratorBound);
    }
    if !nothing_succeeded && (stands_still(summary) || !is_open && hangs_its_users(summary)) {
        flags.push(Flag::Stalled);
    }
    WindowVerdict {
        judgement,
        reasons,
        flags,
    }
}

/// Whether whole seconds in a row had no success although journeys were under
/// way or due, for longer than journeys pause by themselves.
fn stands_still(summary: &WindowSummary) -> bool {
    let length_s = summary.length.as_secs_f64();
    if summary.arrivals == 0 || (summary.total.counts.successes as f64) < STALLED_MIN_RPS * length_s
    {
        return false;
    }
    // A user sends nothing for at most one journey, thinking included; at a low
    // rate nothing is due from one arrival to the next.
    let own_break_s = (1.0 + summary.in_flight) * length_s / summary.arrivals as f64;
    let silence_s = longest_silence_s(summary) as f64;
    silence_s >= 1.0 && silence_s > STALLED_BREAKS * own_break_s
}

/// The most whole seconds in a row to which no success belongs.
pub(super) fn longest_silence_s(summary: &WindowSummary) -> u64 {
    let is_success = |tag: &str| {
        tag.rsplit_once('|')
            .is_some_and(|(_, outcome)| outcome == Outcome::Success.code())
    };
    let mut seconds: Vec<u64> = summary
        .intervals
        .iter()
        .filter(|interval| is_success(&interval.tag) && !interval.values().is_empty())
        .map(|interval| u64::from(interval.second))
        .collect();
    // A last part of a second is no whole one.
    seconds.push(summary.length.as_secs());
    seconds.sort_unstable();
    let mut next = 0;
    let mut longest = 0;
    for second in seconds {
        longest = longest.max(second.saturating_sub(next));
        next = second + 1;
    }
    longest
}

fn hangs_its_users(summary: &WindowSummary) -> bool {
    let abandoned = summary.total.counts.abandoned as f64;
    abandoned > 0.0 && abandoned >= STALLED_USERS_SHARE * summary.in_flight
}

fn uses_its_cores_up(summary: &WindowSummary) -> bool {
    let available_s = summary.length.as_secs_f64() * summary.threads as f64;
    summary.generator_cpu.as_secs_f64() > GENERATOR_CPU_SHARE * available_s
}

/// Where the kernel does not tell there is nothing to say.
fn waits_for_cores(summary: &WindowSummary) -> bool {
    let own_s = summary.length.as_secs_f64() * summary.threads as f64;
    let waited_s = summary.generator_wait.map(|waited| waited.as_secs_f64());
    waited_s.is_some_and(|waited_s| waited_s > GENERATOR_WAIT_SHARE * own_s)
}

/// What tells that the generator was the bottleneck of an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saturation {
    /// It used its cores up.
    Cpu,
    /// It missed the rate although no arrival had to wait for the service.
    Rate,
    /// It sent late.
    Lag,
    /// It waited for a core, and nothing tells how late its sends were.
    Wait,
}

/// Every sign of a saturated generator that a window shows.
///
/// Arrivals that wait for one of `max_in_flight` journeys to end are the
/// service's doing: neither their lag nor their being unsent counts here.
pub(super) fn saturations(summary: &WindowSummary) -> Vec<Saturation> {
    let misses_rate_by_itself =
        summary.held_back == 0 && misses_rate(&summary.total, summary.length);
    let is_late = summary.generator_lag_ms.p99.is_some_and(|lag_ms| {
        lag_ms > GENERATOR_LAG_MS && lag_ms > GENERATOR_LAG_SHARE * spoiled_by_lag_ms(summary)
    });
    [
        (uses_its_cores_up(summary), Saturation::Cpu),
        (misses_rate_by_itself, Saturation::Rate),
        (is_late, Saturation::Lag),
        (spoils_by_waiting(summary), Saturation::Wait),
    ]
    .into_iter()
    .filter_map(|(is_so, sign)| is_so.then_some(sign))
    .collect()
}

/// Whether a generator that tells of no lag waited for cores so long that what it did is in
/// the latencies: a k6, whose clocks run while its threads are kept waiting.
///
/// The mean of the waits by request stands in for the p99 of the lag, since a mean is seldom
/// above a p99: it takes more to find this than it takes to find a lag.
fn spoils_by_waiting(summary: &WindowSummary) -> bool {
    let wait_ms = wait_per_request_ms(summary);
    summary.generator_lag_ms.p99.is_none()
        && waits_for_cores(summary)
        && wait_ms.is_some_and(|wait_ms| {
            wait_ms > GENERATOR_LAG_MS && wait_ms > GENERATOR_LAG_SHARE * spoiled_by_lag_ms(summary)
        })
}

/// Time the generator waited for cores, by request sent. **Units**: milliseconds.
pub(super) fn wait_per_request_ms(summary: &WindowSummary) -> Option<f64> {
    let requests = summary.total.counts.requests;
    let waited = summary.generator_wait.filter(|_| requests > 0)?;
    Some(waited.as_secs_f64() * 1e3 / requests as f64)
}

/// What the generator's lag would be a part of: the p99 of the successes.
///
/// Without a success no latency is measured that a lag could spoil, and the p99 of
/// everything due is infinite. The one time left to compare with is the length of the
/// window in which no answer came. A smaller lag still counts where it leaves the planned
/// load undone: what it moves beyond the right edge misses the rate.
///
/// **Units**: milliseconds. **Source**: MEASUREMENT.md, 3 (what failed counts as infinite)
/// and 4 (a lag is a fault against the latency that it is in).
pub(super) fn spoiled_by_lag_ms(summary: &WindowSummary) -> f64 {
    let length_ms = summary.length.as_secs_f64() * 1e3;
    summary.total.latency_ms.p99.unwrap_or(length_ms)
}

/// Whether less was sent before the right edge than was due in the window. One
/// request that was on its way over the edge is no miss.
fn misses_rate(figures: &Figures, length: Duration) -> bool {
    let due = figures.counts.due as f64;
    let sent_inside = figures.achieved_rate_rps * length.as_secs_f64();
    due - sent_inside > ((1.0 - ACHIEVED_SHARE) * due).max(1.0) + 1e-6
}

/// Whether a rate was not carried, by the requests that were to make it.
pub(super) fn is_overloaded(figures: &Figures, length: Duration) -> bool {
    let counts = &figures.counts;
    misses_rate(figures, length)
        || counts.unsent > 0
        || counts.abandoned > 0
        || figures.p99_due_ms == Some(f64::INFINITY)
}

/// Both sides count the same journeys over the same stretch of time, errors,
/// pauses and what crosses the edges included, so a healthy window differs only
/// by the moments between an answer and the next send.
fn breaks_littles_law(summary: &WindowSummary) -> bool {
    // With few requests or hardly anything in flight those moments are a large share.
    summary.total.counts.requests >= LITTLES_LAW_MIN_REQUESTS
        && summary.in_flight > 0.0
        && ((summary.in_flight_recorded - summary.in_flight) / summary.in_flight).abs()
            > LITTLES_LAW_GAP
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
