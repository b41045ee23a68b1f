//! Expressions that have no value in some cells, told once each.
//!
//! A hundred thousand cells may fail at the same operator: one message names
//! the first cell and counts the others.

use std::collections::BTreeMap;

use super::cell::CellId;
use crate::problem::{Location, Problem};

/// Failures by place: the message and cell of the first, and how many more.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<Location, (String, CellId, usize)>);

impl Failures {
    /// Notes a failure; message and cell are made for the first one at a place only.
    pub(super) fn add(
        &mut self,
        location: &Location,
        message: impl FnOnce() -> String,
        cell: impl FnOnce() -> CellId,
    ) {
        if let Some((_, _, n_more)) = self.0.get_mut(location) {
            *n_more += 1;
        } else {
            self.0.insert(location.clone(), (message(), cell(), 0));
        }
    }

    /// One problem for each place, in the order of the file.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.0
            .into_iter()
            .map(|(location, (message, cell, n_more))| {
                let more = match n_more {
                    0 => String::new(),
                    n_more => format!(" and {n_more} more"),
                };
                Problem::new(location, format!("{message}, in cell {cell}{more}"))
            })
            .collect()
    }
}
