//! Colours that colour-blind readers can tell apart.
//!
//! **Source**: categories are Okabe and Ito's palette (2008) without its yellow,
//! which vanishes on white, dark ones first; scales are samples of matplotlib's
//! viridis and cividis.

/// A colour with its opacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Colour {
    /// Red, green and blue.
    pub rgb: (u8, u8, u8),
    /// From 0 (unseen) to 1.
    pub opacity: f64,
}

impl Colour {
    pub(super) const fn of(red: u8, green: u8, blue: u8) -> Self {
        Self {
            rgb: (red, green, blue),
            opacity: 1.0,
        }
    }

    pub(super) const fn faded(self, opacity: f64) -> Self {
        Self {
            rgb: self.rgb,
            opacity,
        }
    }

    /// Relative luminance, from 0 (black) to 1. **Source**: WCAG 2.1.
    pub(super) fn luminance(self) -> f64 {
        let linear = |channel: u8| {
            let c = f64::from(channel) / 255.0;
            if c <= 0.040_45 {
                c / 12.92
            } else {
                ((c + 0.055) / 1.055).powf(2.4)
            }
        };
        let (red, green, blue) = self.rgb;
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    }

    /// Black or white, whichever has more contrast on this ground.
    pub(super) fn text_on(self) -> Self {
        // The crossing point of both contrast ratios: (1.05 / (L + 0.05)) = ((L + 0.05) / 0.05).
        if self.luminance() > 0.179 { INK } else { WHITE }
    }
}

pub(super) const WHITE: Colour = Colour::of(255, 255, 255);
pub(super) const INK: Colour = Colour::of(26, 26, 26);
pub(super) const MUTED: Colour = Colour::of(89, 89, 89);
pub(super) const AXIS: Colour = Colour::of(110, 110, 110);
pub(super) const GRID_LINE: Colour = Colour::of(228, 228, 228);
pub(super) const STRIP: Colour = Colour::of(245, 245, 245);
pub(super) const NO_VALUE: Colour = Colour::of(235, 235, 235);
pub(super) const HATCH: Colour = Colour::of(205, 205, 205);

const CATEGORIES: [Colour; 7] = [
    Colour::of(0, 114, 178),
    Colour::of(213, 94, 0),
    Colour::of(0, 158, 115),
    Colour::of(204, 121, 167),
    Colour::of(26, 26, 26),
    Colour::of(230, 159, 0),
    Colour::of(86, 180, 233),
];

/// The colour of a category; they come again after seven, with another mark.
pub(super) fn category(index: usize) -> Colour {
    CATEGORIES[index % CATEGORIES.len()]
}

/// How many categories have a colour of their own.
pub(super) const N_CATEGORIES: usize = CATEGORIES.len();

const VIRIDIS: [(u8, u8, u8); 9] = [
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
];

const CIVIDIS: [(u8, u8, u8); 9] = [
    (0, 34, 78),
    (26, 56, 111),
    (64, 77, 108),
    (95, 98, 110),
    (124, 123, 120),
    (157, 149, 118),
    (190, 176, 108),
    (225, 204, 92),
    (254, 232, 56),
];

/// A scale from dark (0) to bright (1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ramp {
    Viridis,
    Cividis,
}

impl Ramp {
    /// The colour at a share of the scale; outside it, the end's.
    pub(super) fn at(self, share: f64) -> Colour {
        let stops = match self {
            Self::Viridis => &VIRIDIS,
            Self::Cividis => &CIVIDIS,
        };
        let place = share.clamp(0.0, 1.0) * (stops.len() - 1) as f64;
        let low = (place.floor() as usize).min(stops.len() - 2);
        let part = place - low as f64;
        let mix =
            |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as u8;
        let (a, b) = (stops[low], stops[low + 1]);
        Colour::of(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_on_every_colour_of_a_scale_can_be_read() {
        for ramp in [Ramp::Viridis, Ramp::Cividis] {
            for step in 0..=100 {
                let ground = ramp.at(f64::from(step) / 100.0);
                let text = ground.text_on().luminance() + 0.05;
                let ground = ground.luminance() + 0.05;
                let contrast = if text > ground {
                    text / ground
                } else {
                    ground / text
                };
                assert!(contrast >= 3.8, "{ramp:?} at {step} %: {contrast}");
            }
        }
    }

    #[test]
    fn scales_go_from_dark_to_bright_without_a_turn() {
        for ramp in [Ramp::Viridis, Ramp::Cividis] {
            let shades: Vec<f64> = (0..=50)
                .map(|k| ramp.at(f64::from(k) / 50.0).luminance())
                .collect();
            assert!(shades.windows(2).all(|pair| pair[0] < pair[1]), "{ramp:?}");
        }
    }
}
