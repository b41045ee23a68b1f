//! Marks: a shape and a colour for every line, so that meaning never rests on colour alone.

use crate::chart::colour::{Colour, N_CATEGORIES, WHITE, category};
use crate::chart::scene::{Part, Scene, Shape};

const N_SHAPES: usize = 8;

/// Colour and shape of one line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mark {
    pub(super) colour: Colour,
    shape: usize,
    /// A second turn through the colours is dashed.
    pub(super) is_dashed: bool,
}

impl Mark {
    /// The mark of a line; 56 lines have different ones.
    pub(super) fn of(line: usize) -> Self {
        Self {
            colour: category(line),
            shape: line % N_SHAPES,
            is_dashed: (line / N_CATEGORIES) % 2 == 1,
        }
    }

    /// The mark of a mean: with a white rim, so that it stands out from its line.
    pub(super) fn draw(self, scene: &mut Scene, part: Part, at: (f64, f64), radius: f64) {
        self.shape(scene, Part::Ground, at, radius + 1.6, WHITE);
        self.shape(scene, part, at, radius, self.colour);
    }

    /// The small mark of one repeat.
    pub(super) fn draw_repeat(self, scene: &mut Scene, at: (f64, f64)) {
        self.shape(scene, Part::Repeat, at, 2.6, self.colour.faded(0.5));
    }

    fn shape(self, scene: &mut Scene, part: Part, (x, y): (f64, f64), r: f64, fill: Colour) {
        let at = |points: &[(f64, f64)]| Shape::Polygon {
            points: points
                .iter()
                .map(|(dx, dy)| (x + dx * r, y + dy * r))
                .collect(),
            fill,
        };
        // Sizes are balanced so that all shapes look as large as the circle.
        let shape = match self.shape {
            0 => Shape::Circle {
                at: (x, y),
                radius: r,
                fill,
            },
            1 => at(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => at(&[(0.0, -1.2), (1.15, 0.85), (-1.15, 0.85)]),
            3 => at(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
            4 => at(&[(0.0, 1.2), (1.15, -0.85), (-1.15, -0.85)]),
            5 => at(&plus(1.25, 0.42, 0.0)),
            6 => at(&plus(1.25, 0.42, std::f64::consts::FRAC_PI_4)),
            _ => at(&star()),
        };
        scene.add(part, shape);
    }
}

/// A plus sign of that arm length and half stroke width, turned.
fn plus(arm: f64, half: f64, turn: f64) -> Vec<(f64, f64)> {
    let corners = [
        (-half, -arm),
        (half, -arm),
        (half, -half),
        (arm, -half),
        (arm, half),
        (half, half),
        (half, arm),
        (-half, arm),
        (-half, half),
        (-arm, half),
        (-arm, -half),
        (-half, -half),
    ];
    let (sin, cos) = turn.sin_cos();
    corners
        .iter()
        .map(|(x, y)| (x * cos - y * sin, x * sin + y * cos))
        .collect()
}

fn star() -> Vec<(f64, f64)> {
    (0..10)
        .map(|k| {
            let radius = if k % 2 == 0 { 1.4 } else { 0.6 };
            let angle = std::f64::consts::PI * (f64::from(k) / 5.0 - 0.5);
            (radius * angle.cos(), radius * angle.sin())
        })
        .collect()
}

/// A cell without a valid measurement: a thin cross.
pub(super) fn cross(scene: &mut Scene, (x, y): (f64, f64), colour: Colour) {
    let corners = plus(4.8, 0.85, std::f64::consts::FRAC_PI_4);
    scene.add(
        Part::Missing,
        Shape::Polygon {
            points: corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect(),
            fill: colour,
        },
    );
}

/// An infinite percentile: an arrow that leaves at the top.
pub(super) fn arrow_up(scene: &mut Scene, (x, y): (f64, f64), colour: Colour) {
    let points = [
        (0.0, -6.0),
        (4.6, -0.6),
        (1.4, -0.6),
        (1.4, 6.0),
        (-1.4, 6.0),
        (-1.4, -0.6),
        (-4.6, -0.6),
    ];
    scene.add(
        Part::Infinite,
        Shape::Polygon {
            points: points.iter().map(|(dx, dy)| (x + dx, y + dy)).collect(),
            fill: colour,
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_lines_have_twenty_different_marks() {
        let marks: Vec<Mark> = (0..20).map(Mark::of).collect();
        for (index, mark) in marks.iter().enumerate() {
            assert!(!marks[..index].contains(mark), "{index}");
        }
    }
}
