//! Layout: a grid of figures becomes a scene. Pure.
//!
//! **Invariant**: nothing here computes a figure; it places what `series.rs`
//! holds. Sizes are pixels of the canvas.
mod colour_scale;
mod frame;
mod heatmap;
mod lines;
mod marks;
mod plot;
mod scaling;

pub(super) use heatmap::heatmap;
pub(super) use lines::lines;
pub(super) use scaling::scaling;
