//! Random and counted numbers of one load thread, lent out from request to request.
//!
//! A thread draws from the seed and its index, and takes every T-th number of the counter:
//! no number comes twice in a load. The same seed gives the same values in the same order;
//! which user gets which depends on who asks first, and so on the service. What must not
//! depend on that (which journey, which row of a file) is drawn by `mix` instead.

use std::cell::RefCell;

use serde_json::Value;

use super::data::Rows;
use super::template::{Counter, Dynamic};

/// What a thread, or somebody who sends without one, draws numbers from.
#[derive(Debug)]
pub(super) struct Numbers {
    random: RefCell<fastrand::Rng>,
    counter: RefCell<Counter>,
}

/// For whom something is filled in.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForWhom<'a> {
    /// The virtual user's number.
    pub(super) user: u32,
    /// Its rows of data files.
    pub(super) rows: Rows<'a>,
}

impl Numbers {
    pub(super) fn new(random: fastrand::Rng, counter: Counter) -> Self {
        Self {
            random: RefCell::new(random),
            counter: RefCell::new(counter),
        }
    }

    /// Lends out what changes from request to request.
    pub(super) fn lend<T>(
        &self,
        captures: &[Option<Value>],
        whom: ForWhom<'_>,
        use_it: impl FnOnce(&mut Dynamic<'_>) -> T,
    ) -> T {
        use_it(&mut Dynamic {
            captures,
            random: &mut self.random.borrow_mut(),
            counter: &mut self.counter.borrow_mut(),
            user: whom.user,
            rows: whom.rows,
        })
    }
}
