//! The life of one trial, as a pure step function.
//!
//! ```text
//!             Launched          LoadDone            Stopped             TornDown
//!  Launching ─────────▶ Loading ────────▶ Stopping ────────▶ Removing ─────────▶ Done
//!      │                 ▲   │               ▲  │                                 ▲
//!      │    WindowClosed │   │ WindowOpened  │  └─────────────────────────────────┘
//!      │                 │   ▼               │        TornDown
//!      │               Measuring             │
//!      └─────────────────┴───────────────────┘
//!         any Broke, Interrupted, DeadlinePassed
//! ```
//!
//! Trials meet in one place. When the load of one ended well, what the next one
//! needs is created beside its tear-down (`HandOver`), and the next one is started
//! once its containers are gone (`StartNext`). So two stacks never run at once,
//! nothing is created while anything is measured, and a failure is looked into
//! before anything else is begun.
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
    /// Containers are being removed.
    Stopping(Ending),
    /// Nothing of it runs; networks and volumes are being removed.
    Removing(Ending),
    /// Nothing of the trial is left.
    Done(Ending),
}

/// What the shell reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    /// The target answers, the limits are as planned, the trial before is gone.
    Launched,
    /// The left edge of a window passed and its proof held.
    WindowOpened,
    /// The right edge of a window passed and its proof held.
    WindowClosed,
    /// The last phase and its drain are over.
    LoadDone {
        /// Whether every window has a measurement.
        is_good: bool,
    },
    /// Something broke: launch, proof, load, a container's exit, a call to the engine.
    Broke(Reason),
    /// The user asked to stop.
    Interrupted,
    /// The state lasted longer than it ever should.
    DeadlinePassed,
    /// The containers are gone, for certain.
    Stopped,
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
    /// Tear down, and beside that create what the next trial needs; start nothing.
    HandOver,
    /// Go on removing, and let the next trial start what was created for it.
    StartNext,
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
        (State::Loading, S::LoadDone { is_good }) => (
            State::Stopping(Ending::Measured),
            if is_good {
                Action::HandOver
            } else {
                Action::TearDown
            },
        ),
        (State::Measuring, S::LoadDone { .. }) => stop(Reason::new(
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
        (State::Stopping(Ending::Measured), S::Stopped) => {
            (State::Removing(Ending::Measured), Action::StartNext)
        }
        (State::Stopping(ending), S::Stopped) => (State::Removing(ending), Action::Wait),
        // The first ending stands: what happens while stopping explains nothing.
        (State::Stopping(ending) | State::Removing(ending), S::TornDown | S::DeadlinePassed) => {
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
            Signal::LoadDone { is_good: true },
            Signal::LoadDone { is_good: false },
            broke(),
            Signal::Interrupted,
            Signal::DeadlinePassed,
            Signal::Stopped,
            Signal::TornDown,
        ]
    }

    fn all_states() -> Vec<State> {
        vec![
            State::Launching,
            State::Loading,
            State::Measuring,
            State::Stopping(Ending::Measured),
            State::Stopping(Ending::Failed(Reason::new("exited", ""))),
            State::Removing(Ending::Measured),
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
            State::Removing(Ending::Measured) => "removing".to_owned(),
            State::Removing(Ending::Failed(reason)) => format!("removing({})", reason.code),
            State::Done(_) => "done".to_owned(),
        };
        let mut table = String::new();
        for state in all_states() {
            for signal in all_signals() {
                let label = match &signal {
                    Signal::Broke(_) => "Broke".to_owned(),
                    Signal::LoadDone { is_good: true } => "LoadDone".to_owned(),
                    Signal::LoadDone { is_good: false } => "LoadDone, bad".to_owned(),
                    other => format!("{other:?}"),
                };
                let (next, action) = step(state.clone(), signal);
                if next != state || action != Action::Wait {
                    let _ = writeln!(
                        table,
                        "{:<16} {label:<15} -> {:<22} {action:?}",
                        name(&state),
                        name(&next)
                    );
                }
            }
        }
        insta::assert_snapshot!(table, @"
        launching        Launched        -> loading                StartLoad
        launching        Broke           -> stopping(exited)       TearDown
        launching        Interrupted     -> stopping(interrupted)  TearDown
        launching        DeadlinePassed  -> stopping(not_ready)    TearDown
        loading          WindowOpened    -> measuring              Wait
        loading          LoadDone        -> stopping               HandOver
        loading          LoadDone, bad   -> stopping               TearDown
        loading          Broke           -> stopping(exited)       TearDown
        loading          Interrupted     -> stopping(interrupted)  TearDown
        loading          DeadlinePassed  -> stopping(load_failed)  TearDown
        measuring        WindowClosed    -> loading                Wait
        measuring        LoadDone        -> stopping(load_failed)  TearDown
        measuring        LoadDone, bad   -> stopping(load_failed)  TearDown
        measuring        Broke           -> stopping(exited)       TearDown
        measuring        Interrupted     -> stopping(interrupted)  TearDown
        measuring        DeadlinePassed  -> stopping(load_failed)  TearDown
        stopping         DeadlinePassed  -> done                   Finish
        stopping         Stopped         -> removing               StartNext
        stopping         TornDown        -> done                   Finish
        stopping(exited) DeadlinePassed  -> done                   Finish
        stopping(exited) Stopped         -> removing(exited)       Wait
        stopping(exited) TornDown        -> done                   Finish
        removing         DeadlinePassed  -> done                   Finish
        removing         TornDown        -> done                   Finish
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
                        matches!(state, State::Stopping(_) | State::Removing(_)),
                        "{state:?} ended without stopping"
                    );
                }
                if matches!(after, State::Stopping(_)) && after != state {
                    assert!(matches!(action, Action::TearDown | Action::HandOver));
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
