//! Charts from rows that were read back from the disk.
//!
//! **Invariant**: same rows, same bytes. No clock, no system font, no live
//! state; a cell without a valid measurement is a visible gap with its reason,
//! and every figure drawn is one that the rows hold or the mean of such.
//!
//! Read on: `series.rs` (what is drawn, pure), `scene.rs` (a picture as a list of
//! shapes), `draw/` (layout of each chart), `render.rs` (the shapes as SVG and PNG).
mod colour;
mod draw;
mod font;
mod render;
mod scene;
mod series;
mod ticks;

use std::io;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

pub use colour::Colour;
pub use scene::{Anchor, Item, Part, Scene, Shape};
pub use series::{Grid, GridAxis, Panel};

use crate::results::{Measure, TrialRow};

/// What the rows do not say about themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChartInfo {
    /// Name of the run, the first thing every title says.
    pub title: String,
    /// The axis or derived value that groups charts; `None` draws all rows as one group.
    pub tier: Option<String>,
    /// Titles of axes, with units, where the axis' own name is not enough.
    pub axis_titles: IndexMap<String, String>,
}

/// Why charts could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    /// There is no row of a cell to draw.
    #[error("draw charts: there is no row of a cell among {n_rows} rows")]
    NoCells {
        /// Rows that were given.
        n_rows: usize,
    },
    /// The drawing library said no.
    #[error("render `{}`: {message}", path.display())]
    Render {
        /// The chart.
        path: PathBuf,
        /// What it said; its error borrows the picture and cannot be kept.
        message: String,
    },
    /// The file system said no.
    #[error("write chart `{}`", path.display())]
    Write {
        /// The chart.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A chart and the name of its files, without ending.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedScene {
    /// Such as `tier-2-p99`.
    pub name: String,
    /// The picture.
    pub scene: Scene,
}

/// Lays out every chart of the rows. Pure.
///
/// **Shape**: per tier `tier-<level>-throughput` and `tier-<level>-p99`, then
/// `heatmap-throughput`, `heatmap-p99` and `scaling`.
///
/// **Errors**: [`ChartError::NoCells`].
pub fn scenes(rows: &[TrialRow], info: &ChartInfo) -> Result<Vec<NamedScene>, ChartError> {
    let throughput = Grid::of(rows, Measure::Throughput, info);
    let p99 = Grid::of(rows, Measure::P99, info);
    if throughput.is_empty() {
        return Err(ChartError::NoCells { n_rows: rows.len() });
    }
    let mut out = Vec::new();
    for (tier, slug) in throughput.tier_slugs().into_iter().enumerate() {
        for (grid, measure) in [(&throughput, "throughput"), (&p99, "p99")] {
            out.push(NamedScene {
                name: format!("{slug}-{measure}"),
                scene: draw::lines(grid, info, tier),
            });
        }
    }
    for (grid, measure) in [(&throughput, "throughput"), (&p99, "p99")] {
        out.push(NamedScene {
            name: format!("heatmap-{measure}"),
            scene: draw::heatmap(grid, info),
        });
    }
    out.push(NamedScene {
        name: "scaling".to_owned(),
        scene: draw::scaling(&throughput, info),
    });
    Ok(out)
}

/// Draws every chart into a folder, each as SVG and as PNG; returns the files written.
///
/// The folder is made where it is missing; files of the same names are replaced.
///
/// **Errors**: [`ChartError`].
pub fn draw_all(
    rows: &[TrialRow],
    info: &ChartInfo,
    folder: &Path,
) -> Result<Vec<PathBuf>, ChartError> {
    let scenes = scenes(rows, info)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ChartError::Write { path, source }
    };
    fs_err::create_dir_all(folder).map_err(failed(folder))?;
    let mut written = Vec::new();
    for NamedScene { name, scene } in scenes {
        let path = folder.join(format!("{name}.svg"));
        let svg = render::svg(&scene).map_err(|message| ChartError::Render {
            path: path.clone(),
            message,
        })?;
        fs_err::write(&path, svg).map_err(failed(&path))?;
        written.push(path);
        let path = folder.join(format!("{name}.png"));
        let png = render::png(&scene).map_err(|message| ChartError::Render {
            path: path.clone(),
            message,
        })?;
        fs_err::write(&path, png).map_err(failed(&path))?;
        written.push(path);
    }
    Ok(written)
}

#[cfg(test)]
mod gallery;
#[cfg(test)]
mod tests;
