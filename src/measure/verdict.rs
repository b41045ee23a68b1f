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

use std::time::Duration;

use super::{Outcome, WindowSummary};

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
    /// A closed loop whose generator used nearly all of its cores: the service
    /// may be able to do more.
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
const GENERATOR_CPU_SHARE: f64 = 0.8;
/// Largest p99 of the generator's own lag that is never a fault. Timers alone
/// lag 1.3 ms at p99 on an idle virtual machine. **Units**: milliseconds.
const GENERATOR_LAG_MS: f64 = 1.0;
/// And never a fault below this share of the measured p99.
const GENERATOR_LAG_SHARE: f64 = 0.1;
/// Largest gap between journeys under way and recorded time.
/// **Source**: Little, 1961; 5 % is room for answers that wait to be read.
const LITTLES_LAW_GAP: f64 = 0.05;
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
    let is_saturated = is_open && is_generator_saturated(summary);
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
    if is_open && !is_saturated && is_overloaded(summary) {
        flags.push(Flag::Overloaded);
    }
    let counts = &summary.total.counts;
    let n_failed = counts.errors.total() + counts.abandoned;
    if n_failed as f64 > ERRORS_SHARE * counts.requests as f64 {
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
    if !is_open && uses_its_cores_up(summary) {
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
fn longest_silence_s(summary: &WindowSummary) -> u64 {
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

/// Arrivals that wait for one of `max_in_flight` journeys to end are the
/// service's doing: neither their lag nor their being unsent counts here.
fn is_generator_saturated(summary: &WindowSummary) -> bool {
    let counts = &summary.total.counts;
    let misses_rate_by_itself =
        summary.held_back == 0 && counts.successes > 0 && misses_rate(summary);
    let latency_p99_ms = summary.total.latency_ms.p99.unwrap_or(0.0);
    let is_late = summary.generator_lag_ms.p99.is_some_and(|lag_ms| {
        lag_ms > GENERATOR_LAG_MS && lag_ms > GENERATOR_LAG_SHARE * latency_p99_ms
    });
    uses_its_cores_up(summary) || misses_rate_by_itself || is_late
}

/// Whether less was sent before the right edge than was due in the window. One
/// request that was on its way over the edge is no miss.
fn misses_rate(summary: &WindowSummary) -> bool {
    let due = summary.total.counts.due as f64;
    let sent_inside = summary.total.achieved_rate_rps * summary.length.as_secs_f64();
    due - sent_inside > ((1.0 - ACHIEVED_SHARE) * due).max(1.0) + 1e-6
}

fn is_overloaded(summary: &WindowSummary) -> bool {
    let counts = &summary.total.counts;
    misses_rate(summary)
        || counts.unsent > 0
        || counts.abandoned > 0
        || summary.total.p99_due_ms == Some(f64::INFINITY)
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
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::measure::{Figures, Interval, LatencyFigures};

    const OPEN: Pacing = Pacing::Open;

    /// A window with nothing wrong: 30 s, 15,000 requests, 20 % of one core.
    fn healthy() -> WindowSummary {
        let mut total = Figures::default();
        total.counts.due = 15_000;
        total.counts.requests = 15_000;
        total.counts.successes = 15_000;
        total.latency_ms.p99 = Some(5.0);
        total.p99_due_ms = Some(5.0);
        total.throughput_rps = 500.0;
        total.achieved_rate_rps = 500.0;
        WindowSummary {
            started: Instant::now(),
            length: Duration::from_secs(30),
            total,
            operations: Vec::new(),
            journeys: Figures::default(),
            arrivals: 15_000,
            not_attempted: 0,
            generator_cpu: Duration::from_secs(6),
            threads: 1,
            generator_lag_ms: LatencyFigures {
                p99: Some(0.3),
                ..LatencyFigures::default()
            },
            held_back: 0,
            outside: 0,
            in_flight: 8.0,
            in_flight_recorded: 7.9,
            intervals: successes_in(0..30),
            failures: Vec::new(),
        }
    }

    fn successes_in(seconds: impl IntoIterator<Item = u32>) -> Vec<Interval> {
        seconds
            .into_iter()
            .map(|second| Interval::new(second, "read|success".to_owned(), vec![(2_000_000, 500)]))
            .collect()
    }

    fn verdict(pacing: Pacing, change: impl FnOnce(&mut WindowSummary)) -> WindowVerdict {
        let mut summary = healthy();
        change(&mut summary);
        judge(&summary, pacing)
    }

    fn valid(flags: &[Flag]) -> WindowVerdict {
        WindowVerdict {
            judgement: Judgement::Valid,
            reasons: Vec::new(),
            flags: flags.to_vec(),
        }
    }

    #[test]
    fn a_healthy_window_is_valid_without_flags() {
        assert_eq!(verdict(OPEN, |_| {}), valid(&[]));
        assert_eq!(verdict(Pacing::Closed, |_| {}), valid(&[]));
    }

    #[test]
    fn nothing_succeeded_is_failed() {
        let verdict = verdict(Pacing::Closed, |summary| {
            summary.total.counts.successes = 0;
            summary.total.counts.errors.status = 15_000;
        });
        assert_eq!(verdict.judgement, Judgement::Failed);
        assert_eq!(verdict.reasons, [Reason::NoSuccess]);
        assert_eq!(verdict.reasons[0].code(), "no_success");
    }

    #[test]
    fn a_service_that_misses_the_rate_is_overloaded_and_valid() {
        let overloaded = valid(&[Flag::Overloaded]);
        assert_eq!(
            verdict(OPEN, |summary| {
                summary.total.counts.due = 16_000;
                summary.total.counts.unsent = 1_000;
                summary.held_back = 3_000;
            }),
            overloaded
        );
        assert_eq!(
            verdict(OPEN, |summary| summary.total.p99_due_ms =
                Some(f64::INFINITY)),
            overloaded
        );
        assert_eq!(
            verdict(OPEN, |summary| {
                summary.total.counts.requests += 1;
                summary.total.counts.due += 1;
                summary.total.counts.abandoned = 1;
            }),
            overloaded
        );
    }

    #[test]
    fn a_rate_that_is_made_up_for_during_the_drain_is_missed_all_the_same() {
        let behind = |summary: &mut WindowSummary| {
            // All 15,000 left, 1,500 of them after the right edge.
            summary.total.achieved_rate_rps = 450.0;
            summary.held_back = 9_000;
        };
        assert_eq!(verdict(OPEN, behind), valid(&[Flag::Overloaded]));
        let by_itself = verdict(OPEN, |summary| {
            behind(summary);
            summary.held_back = 0;
        });
        assert_eq!(by_itself.reasons, [Reason::GeneratorSaturated]);
        // 1 % is slack for the edge.
        let at_the_edge = verdict(OPEN, |summary| summary.total.achieved_rate_rps = 495.0);
        assert_eq!(at_the_edge, valid(&[]));
    }

    #[test]
    fn a_generator_that_misses_the_rate_by_itself_is_suspect() {
        let verdict = verdict(OPEN, |summary| {
            summary.total.counts.due = 16_000;
            summary.total.counts.unsent = 1_000;
        });
        assert_eq!(verdict.judgement, Judgement::Suspect);
        assert_eq!(verdict.reasons, [Reason::GeneratorSaturated]);
        assert_eq!(verdict.flags, [], "the service is not blamed for it");
    }

    #[test]
    fn a_busy_generator_is_suspect_in_an_open_loop_and_bound_in_a_closed_one() {
        let busy = |summary: &mut WindowSummary| summary.generator_cpu = Duration::from_secs(25);
        assert_eq!(verdict(OPEN, busy).reasons, [Reason::GeneratorSaturated]);
        assert_eq!(
            verdict(Pacing::Closed, busy),
            valid(&[Flag::GeneratorBound])
        );
        assert_eq!(
            verdict(OPEN, |summary| {
                busy(summary);
                summary.threads = 2;
            }),
            valid(&[])
        );
    }

    #[test]
    fn a_late_generator_is_suspect_only_where_it_matters() {
        let lag = |lag_ms: f64, p99_ms: f64| {
            verdict(OPEN, |summary| {
                summary.generator_lag_ms.p99 = Some(lag_ms);
                summary.total.latency_ms.p99 = Some(p99_ms);
            })
            .judgement
        };
        assert_eq!(lag(1.5, 5.0), Judgement::Suspect);
        assert_eq!(lag(1.5, 50.0), Judgement::Valid);
        assert_eq!(lag(0.9, 1.0), Judgement::Valid);
    }

    #[test]
    fn time_that_does_not_add_up_is_suspect() {
        for recorded in [7.5, 8.5] {
            let verdict = verdict(Pacing::Closed, |summary| {
                summary.in_flight_recorded = recorded;
            });
            assert_eq!(verdict.reasons, [Reason::LittlesLaw], "{recorded}");
        }
    }

    #[test]
    fn a_service_that_stands_still_in_the_window_is_flagged() {
        let stalled = valid(&[Flag::Stalled]);
        for pacing in [Pacing::Closed, OPEN] {
            for silent in [4..5, 0..2, 29..30] {
                let verdict = verdict(pacing, |summary| {
                    summary.intervals = successes_in((0..30).filter(|s| !silent.contains(s)));
                    let answer = vec![(2_000_000, 9)];
                    let other = Interval::new(silent.start, "read|error.status".into(), answer);
                    summary.intervals.push(other);
                });
                assert_eq!(verdict, stalled, "{pacing:?} {silent:?}");
            }
        }
        // Frozen for the last 4 of 5 s: 4 abandoned of 153,315 went without a flag.
        let frozen = verdict(Pacing::Closed, |summary| {
            summary.length = Duration::from_secs(5);
            summary.generator_cpu = Duration::from_secs(1);
            summary.arrivals = 153_315;
            let counts = &mut summary.total.counts;
            (counts.due, counts.requests) = (153_315, 153_315);
            (counts.successes, counts.abandoned) = (153_311, 4);
            summary.intervals = successes_in(0..2);
            (summary.in_flight, summary.in_flight_recorded) = (4.0, 4.0);
        });
        assert_eq!(frozen, valid(&[Flag::TooFew, Flag::Stalled]));
    }

    #[test]
    fn breaks_that_journeys_make_by_themselves_are_no_stall() {
        // 300 users that began together and think 15 s send every 15 s alone.
        let bursts = verdict(Pacing::Closed, |summary| {
            summary.arrivals = 600;
            (summary.in_flight, summary.in_flight_recorded) = (300.0, 300.0);
            summary.intervals = successes_in([0, 15]);
        });
        assert_eq!(bursts, valid(&[]));
        // One journey of 36 requests every 4 s.
        let rare = verdict(OPEN, |summary| {
            summary.arrivals = 8;
            (summary.in_flight, summary.in_flight_recorded) = (0.1, 0.1);
            summary.intervals = successes_in((0..30).step_by(4));
        });
        assert_eq!(rare, valid(&[]));
        // The rest after the last whole second is none.
        let part = verdict(Pacing::Closed, |summary| {
            summary.length = Duration::from_millis(30_900);
        });
        assert_eq!(part, valid(&[]));
    }

    #[test]
    fn half_of_the_users_abandoned_is_a_stall_in_a_closed_loop() {
        let abandoned = |n: u64| {
            verdict(Pacing::Closed, |summary| {
                summary.total.counts.abandoned = n;
                summary.total.counts.successes -= n;
            })
        };
        assert_eq!(abandoned(3), valid(&[]));
        assert_eq!(abandoned(4), valid(&[Flag::Stalled]));
    }

    #[test]
    fn short_windows_are_flagged_by_what_they_answer() {
        let too_few = valid(&[Flag::TooFew]);
        assert_eq!(
            verdict(Pacing::Closed, |summary| {
                summary.length = Duration::from_secs(19);
                summary.generator_cpu = Duration::ZERO;
            }),
            too_few
        );
        let fewer = |n: u64| {
            move |summary: &mut WindowSummary| {
                let counts = &mut summary.total.counts;
                (counts.due, counts.requests, counts.successes) = (n, n, n);
            }
        };
        assert_eq!(verdict(Pacing::Closed, fewer(1_999)), too_few);
        assert_eq!(verdict(Pacing::Closed, fewer(2_000)), valid(&[]));
        assert_eq!(verdict(OPEN, fewer(9_999)), too_few);
        assert_eq!(verdict(OPEN, fewer(10_000)), valid(&[]));
    }

    #[test]
    fn more_than_one_percent_of_failures_is_flagged() {
        let with_errors = |n: u64| {
            verdict(Pacing::Closed, |summary| {
                summary.total.counts.errors.reset = n;
                summary.total.counts.successes -= n;
            })
        };
        assert_eq!(with_errors(150), valid(&[]));
        assert_eq!(with_errors(151), valid(&[Flag::Errors]));
    }
}
