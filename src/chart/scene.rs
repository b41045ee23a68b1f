//! A picture as a list of shapes, before any file format.
//!
//! Layout makes it, `render.rs` turns it into SVG and PNG, and tests read it:
//! how many marks, which labels, whether texts overlap or leave the canvas.
//!
//! **Units**: pixels of the canvas, y downwards; fractions are allowed.

use super::colour::{Colour, INK, WHITE};

/// What a shape is in the chart; for tests and for whoever reads a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Background and frames.
    Ground,
    /// Grid lines and axes.
    Axis,
    /// A line through means, or a reference line.
    Line,
    /// The mean of a cell.
    Mean,
    /// One repeat.
    Repeat,
    /// From the smallest to the largest repeat.
    Whisker,
    /// A cell without a valid measurement.
    Missing,
    /// An infinite percentile.
    Infinite,
    /// A cell of a heat map.
    Cell,
    /// The outline of a tier's best cell.
    Best,
    /// The colour bar.
    Bar,
    /// Part of the legend.
    Legend,
    /// Any text.
    Text,
}

/// Which point of a text its position is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Left end of the baseline.
    Start,
    /// Middle of the baseline.
    Middle,
    /// Right end of the baseline.
    End,
}

/// One thing to draw.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A filled rectangle.
    Rectangle {
        /// Upper left corner.
        at: (f64, f64),
        /// Width and height.
        size: (f64, f64),
        /// Fill.
        fill: Colour,
    },
    /// A line through points.
    Path {
        /// Two or more.
        points: Vec<(f64, f64)>,
        /// Stroke.
        colour: Colour,
        /// Stroke width.
        width: f64,
    },
    /// A filled polygon.
    Polygon {
        /// Three or more corners.
        points: Vec<(f64, f64)>,
        /// Fill.
        fill: Colour,
    },
    /// A filled circle.
    Circle {
        /// Centre.
        at: (f64, f64),
        /// Radius.
        radius: f64,
        /// Fill.
        fill: Colour,
    },
    /// One line of text.
    Text {
        /// The anchor's place on the baseline.
        at: (f64, f64),
        /// The text, without control characters.
        text: String,
        /// Size of the em.
        size: f64,
        /// Bold or regular.
        bold: bool,
        /// Colour.
        colour: Colour,
        /// Which point `at` is.
        anchor: Anchor,
        /// Whether it runs upwards instead of to the right.
        upwards: bool,
    },
}

/// A shape and what it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// What it is.
    pub part: Part,
    /// How it looks.
    pub shape: Shape,
}

/// How a text is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) colour: Colour,
    pub(super) anchor: Anchor,
    pub(super) upwards: bool,
}

impl Type {
    pub(super) const fn new(size: f64) -> Self {
        Self {
            size,
            bold: false,
            colour: INK,
            anchor: Anchor::Start,
            upwards: false,
        }
    }
    pub(super) const fn bold(mut self) -> Self {
        self.bold = true;
        self
    }
    pub(super) const fn colour(mut self, colour: Colour) -> Self {
        self.colour = colour;
        self
    }
    pub(super) const fn anchor(mut self, anchor: Anchor) -> Self {
        self.anchor = anchor;
        self
    }
    pub(super) const fn upwards(mut self) -> Self {
        self.upwards = true;
        self
    }
}

/// A whole picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// Canvas width.
    pub width: f64,
    /// Canvas height.
    pub height: f64,
    /// What it is, for readers who cannot see it.
    pub title: String,
    /// Shapes in drawing order.
    pub items: Vec<Item>,
}

impl Scene {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let mut scene = Self {
            width: width.ceil(),
            height: height.ceil(),
            title: title.to_owned(),
            items: Vec::new(),
        };
        let size = (scene.width, scene.height);
        scene.rectangle(Part::Ground, (0.0, 0.0), size, WHITE);
        scene
    }

    pub(super) fn rectangle(&mut self, part: Part, at: (f64, f64), size: (f64, f64), fill: Colour) {
        self.add(part, Shape::Rectangle { at, size, fill });
    }

    pub(super) fn path(&mut self, part: Part, points: Vec<(f64, f64)>, colour: Colour, width: f64) {
        self.add(
            part,
            Shape::Path {
                points,
                colour,
                width,
            },
        );
    }

    /// A line of dashes; the last may be short.
    pub(super) fn dashes(
        &mut self,
        part: Part,
        (from, to): ((f64, f64), (f64, f64)),
        (dash, gap): (f64, f64),
        colour: Colour,
        width: f64,
    ) {
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let at = |run: f64| {
            let share = (run / length).min(1.0);
            (
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            )
        };
        let mut run = 0.0;
        while run < length {
            self.path(part, vec![at(run), at(run + dash)], colour, width);
            run += dash + gap;
        }
    }

    /// The outline of a rectangle, inside its edges.
    pub(super) fn outline(
        &mut self,
        part: Part,
        (x, y): (f64, f64),
        (w, h): (f64, f64),
        colour: Colour,
        width: f64,
    ) {
        for (at, size) in [
            ((x, y), (w, width)),
            ((x, y + h - width), (w, width)),
            ((x, y + width), (width, h - 2.0 * width)),
            ((x + w - width, y + width), (width, h - 2.0 * width)),
        ] {
            self.rectangle(part, at, size, colour);
        }
    }

    pub(super) fn text(&mut self, at: (f64, f64), text: &str, style: Type) {
        if text.is_empty() {
            return;
        }
        // Control characters have no glyph and no place in XML.
        let text = text.replace(|c: char| c.is_control(), " ");
        self.add(
            Part::Text,
            Shape::Text {
                at,
                text,
                size: style.size,
                bold: style.bold,
                colour: style.colour,
                anchor: style.anchor,
                upwards: style.upwards,
            },
        );
    }

    pub(super) fn add(&mut self, part: Part, shape: Shape) {
        self.items.push(Item { part, shape });
    }

    /// How many shapes are that part.
    pub fn count(&self, part: Part) -> usize {
        self.items.iter().filter(|item| item.part == part).count()
    }

    /// Every text in drawing order.
    pub fn texts(&self) -> Vec<&str> {
        self.items
            .iter()
            .filter_map(|item| match &item.shape {
                Shape::Text { text, .. } => Some(text.as_str()),
                Shape::Rectangle { .. }
                | Shape::Path { .. }
                | Shape::Polygon { .. }
                | Shape::Circle { .. } => None,
            })
            .collect()
    }
}
