//! Shapes with a name: what the profiles of a phase become.
//!
//! A profile is a list of stages that somebody could have written, each a share of one
//! load. Matrix files and the command line read the same ones. Pure.

use std::time::Duration;

use super::sweep::{PhaseLoad, Stage};

/// A shape of load with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Does it work at all: a twentieth of the load, briefly.
    Smoke,
    /// The load of an ordinary day.
    Load,
    /// Up to twice the load in four steps.
    Stress,
    /// A sudden crowd of five times the load, and whether the service recovers.
    Spike,
    /// The load for an hour: leaks, logs, caches that fill.
    Soak,
    /// A quarter of the load more with each step, up to five times the load: until a
    /// threshold that ends the load is crossed.
    Breakpoint,
}

/// One stage of a profile.
#[derive(Clone, Copy)]
struct Shape {
    /// Of the load that is named.
    share: f64,
    ramp_s: u64,
    hold_s: u64,
}

const fn shape(share: f64, ramp_s: u64, hold_s: u64) -> Shape {
    Shape {
        share,
        ramp_s,
        hold_s,
    }
}

const SMOKE: [Shape; 1] = [shape(0.05, 0, 30)];
const LOAD: [Shape; 1] = [shape(1.0, 30, 300)];
const STRESS: [Shape; 4] = [
    shape(0.5, 30, 120),
    shape(1.0, 30, 120),
    shape(1.5, 30, 120),
    shape(2.0, 30, 120),
];
const SPIKE: [Shape; 3] = [shape(1.0, 30, 120), shape(5.0, 5, 60), shape(1.0, 5, 120)];
const SOAK: [Shape; 1] = [shape(1.0, 60, 3_600)];
const BREAKPOINT: [Shape; 20] = {
    let mut steps = [shape(0.0, 10, 30); 20];
    let mut index = 0;
    while index < steps.len() {
        steps[index].share = 0.25 * (index as f64 + 1.0);
        index += 1;
    }
    steps
};

impl Profile {
    /// All of them, as files and flags name them.
    pub const ALL: [(&str, Self); 6] = [
        ("smoke", Self::Smoke),
        ("load", Self::Load),
        ("stress", Self::Stress),
        ("spike", Self::Spike),
        ("soak", Self::Soak),
        ("breakpoint", Self::Breakpoint),
    ];

    /// The stages it becomes; `ramp` and `hold` set other lengths for all of them.
    pub fn stages(
        self,
        load: &PhaseLoad,
        ramp: Option<Duration>,
        hold: Option<Duration>,
    ) -> Vec<Stage> {
        let shapes: &[Shape] = match self {
            Self::Smoke => &SMOKE,
            Self::Load => &LOAD,
            Self::Stress => &STRESS,
            Self::Spike => &SPIKE,
            Self::Soak => &SOAK,
            Self::Breakpoint => &BREAKPOINT,
        };
        let stage = |shape: &Shape| Stage {
            load: load.clone(),
            share: shape.share,
            ramp: ramp.unwrap_or(Duration::from_secs(shape.ramp_s)),
            hold: hold.unwrap_or(Duration::from_secs(shape.hold_s)),
        };
        shapes.iter().map(stage).collect()
    }
}
