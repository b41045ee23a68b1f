//! The life of one trial, as a pure step function.
//!
//! ```text
//!              Launched          WindowOpened          LoadDone
//!  Launching ──────────▶ Loading ◀───────────▶ Measuring ───────▶ Stopping ──▶ Done
//!      │                    │     WindowClosed     │                 ▲
//!      └────────────────────┴──────────────────────┴─────────────────┘
//!        any Failed, Exited, LimitsBroken, Interrupted, DeadlinePassed
//! ```
//!
//! **Invariant**: nothing here does anything. `step` takes a state and a signal
//! and says the next state and what the shell must do; the shell
//! (`shell.rs`) performs it and comes back with the next signal. Every path
//! out of `Launching` goes through `Stopping`, so every launch is torn down.

/// Why a trial has no measurement: a stable code and the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Machine-readable, as `exited` or `not_ready`.
    pub code: &'static str,
    /// What failed, where, what was seen last.
    pub words: String,
}

impl Reason {
    /// A reason from its code and words.
    pub fn new(code: &'static str, words: impl Into<String>) -> Self {
        Self {
            code,
            words: words.into(),
        }
    }
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Every window was held to its end.
    Measured,
    /// It broke; windows not closed by then have no measurement.
    Failed(Reason),
}

/// Where a trial stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The stack is being started and proven.
    Launching,
    /// Load runs, nothing is measured: warm-up, drain, or between windows.
    Loading,
    /// A window is open.
    Measuring,
    /// Containers, networks and volumes are being removed.
    Stopping(Ending),
    /// Nothing of the trial is left.
    Done(Ending),
}

/// What the shell reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// The target answers and the limits are as planned.
    Launched,
    /// The left edge of a window passed and its proof held.
    WindowOpened,
    /// The right edge of a window passed and its proof held.
    WindowClosed,
    /// The last phase and its drain are over.
    LoadDone,
    /// Something broke: launch, proof, load, a container's exit, a call to the engine.
    Broke(Reason),
    /// The user asked to stop.
    Interrupted,
    /// The state lasted longer than it ever should.
    DeadlinePassed,
    /// Tear-down ended; what could not be removed has been reported.
    TornDown,
}

/// What the shell must do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start the load plan.
    StartLoad,
    /// Nothing; wait for the next signal.
    Wait,
    /// End the load if it runs, keep logs if the ending asks for it, remove everything.
    TearDown,
    /// Write the trial's rows.
    Finish,
}

/// One step. Signals that cannot happen in a state change nothing.
pub fn step(state: State, signal: Signal) -> (State, Action) {
    use Signal as S;
    match (state, signal) {
        (State::Launching, S::Launched) => (State::Loading, Action::StartLoad),
        (State::Loading, S::WindowOpened) => (State::Measuring, Action::Wait),
        (State::Measuring, S::WindowClosed) => (State::Loading, Action::Wait),
        (State::Loading, S::LoadDone) => (State::Stopping(Ending::Measured), Action::TearDown),
        (State::Measuring, S::LoadDone) => stop(Reason::new(
            "load_failed",
            "the load ended while a window was open",
        )),
        (State::Launching | State::Loading | State::Measuring, S::Broke(reason)) => stop(reason),
        (State::Launching | State::Loading | State::Measuring, S::Interrupted) => {
            stop(Reason::new("interrupted", "the sweep was interrupted"))
        }
        (State::Launching, S::DeadlinePassed) => stop(Reason::new(
            "not_ready",
            "launching took longer than its deadline",
        )),
        (State::Loading | State::Measuring, S::DeadlinePassed) => stop(Reason::new(
            "load_failed",
            "the load generator did not end its phases in time",
        )),
        // The first ending stands: what happens while stopping explains nothing.
        (State::Stopping(ending), S::TornDown | S::DeadlinePassed) => {
            (State::Done(ending), Action::Finish)
        }
        (state, _) => (state, Action::Wait),
    }
}

fn stop(reason: Reason) -> (State, Action) {
    (State::Stopping(Ending::Failed(reason)), Action::TearDown)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn broke() -> Signal {
        Signal::Broke(Reason::new("exited", "app exited with code 137"))
    }

    fn all_signals() -> Vec<Signal> {
        vec![
            Signal::Launched,
            Signal::WindowOpened,
            Signal::WindowClosed,
            Signal::LoadDone,
            broke(),
            Signal::Interrupted,
            Signal::DeadlinePassed,
            Signal::TornDown,
        ]
    }

    fn all_states() -> Vec<State> {
        vec![
            State::Launching,
            State::Loading,
            State::Measuring,
            State::Stopping(Ending::Measured),
            State::Done(Ending::Measured),
        ]
    }

    /// Each pair, as letters: state before, signal, state after, action.
    #[test]
    fn every_pair_of_state_and_signal_is_decided() {
        let name = |state: &State| match state {
            State::Launching => "launching".to_owned(),
            State::Loading => "loading".to_owned(),
            State::Measuring => "measuring".to_owned(),
            State::Stopping(Ending::Measured) => "stopping".to_owned(),
            State::Stopping(Ending::Failed(reason)) => format!("stopping({})", reason.code),
            State::Done(_) => "done".to_owned(),
        };
        let mut table = String::new();
        for state in all_states() {
            for signal in all_signals() {
                let label = match &signal {
                    Signal::Broke(_) => "Broke".to_owned(),
                    other => format!("{other:?}"),
                };
                let (next, action) = step(state.clone(), signal);
                if next != state || action != Action::Wait {
                    let _ = writeln!(
                        table,
                        "{:<10} {label:<15} -> {:<22} {action:?}",
                        name(&state),
                        name(&next)
                    );
                }
            }
        }
        insta::assert_snapshot!(table, @"
        launching  Launched        -> loading                StartLoad
        launching  Broke           -> stopping(exited)       TearDown
        launching  Interrupted     -> stopping(interrupted)  TearDown
        launching  DeadlinePassed  -> stopping(not_ready)    TearDown
        loading    WindowOpened    -> measuring              Wait
        loading    LoadDone        -> stopping               TearDown
        loading    Broke           -> stopping(exited)       TearDown
        loading    Interrupted     -> stopping(interrupted)  TearDown
        loading    DeadlinePassed  -> stopping(load_failed)  TearDown
        measuring  WindowClosed    -> loading                Wait
        measuring  LoadDone        -> stopping(load_failed)  TearDown
        measuring  Broke           -> stopping(exited)       TearDown
        measuring  Interrupted     -> stopping(interrupted)  TearDown
        measuring  DeadlinePassed  -> stopping(load_failed)  TearDown
        stopping   DeadlinePassed  -> done                   Finish
        stopping   TornDown        -> done                   Finish
        ");
    }

    #[test]
    fn nothing_but_tear_down_leads_from_launching_to_done() {
        let mut reached = vec![State::Launching];
        let mut next = 0;
        while next < reached.len() {
            let state = reached[next].clone();
            next += 1;
            for signal in all_signals() {
                let (after, action) = step(state.clone(), signal);
                if matches!(after, State::Done(_)) && !matches!(state, State::Done(_)) {
                    assert!(
                        matches!(state, State::Stopping(_)),
                        "{state:?} ended without stopping"
                    );
                }
                if matches!(after, State::Stopping(_)) && after != state {
                    assert_eq!(action, Action::TearDown);
                }
                if !reached.contains(&after) {
                    reached.push(after);
                }
            }
        }
    }

    #[test]
    fn the_first_ending_stands() {
        let (state, _) = step(State::Measuring, broke());
        let (state, _) = step(state, Signal::Interrupted);
        let (state, action) = step(state, Signal::TornDown);
        assert_eq!(action, Action::Finish);
        assert!(matches!(state, State::Done(Ending::Failed(reason)) if reason.code == "exited"));
    }
}
