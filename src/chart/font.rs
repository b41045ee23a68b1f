//! The embedded font: how wide a text is, and its glyphs.
//!
//! No system font is asked, so that a chart is the same on every machine. In
//! SVG, text stays text; viewers without Roboto take the next of [`FAMILY`],
//! whose widths are close. Licence and origin of the font: `font/README.md`.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef};

/// What SVG text asks for, first choice first.
pub(super) const FAMILY: &str = "Roboto, Helvetica, Arial, sans-serif";

static REGULAR: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    FontRef::try_from_slice(include_bytes!("font/Roboto-Regular.ttf"))
        .expect("the embedded font is a font")
});

static BOLD: LazyLock<FontRef<'static>> = LazyLock::new(|| {
    FontRef::try_from_slice(include_bytes!("font/Roboto-Bold.ttf"))
        .expect("the embedded font is a font")
});

/// One of the two embedded weights.
pub(super) fn face(bold: bool) -> &'static FontRef<'static> {
    if bold { &BOLD } else { &REGULAR }
}

/// How wide a line of text is. **Units**: as `size`, which is that of the em.
pub(super) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let font = face(bold);
    let units = f64::from(font.units_per_em().unwrap_or(2048.0));
    text.chars()
        .map(|c| f64::from(font.h_advance_unscaled(font.glyph_id(c))))
        .sum::<f64>()
        * size
        / units
}

/// The text, cut with an ellipsis where it is wider than `room`.
pub(super) fn shorten(text: &str, size: f64, bold: bool, room: f64) -> String {
    if width(text, size, bold) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = width("…", size, bold);
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]), size, bold);
        if used > room {
            break;
        }
        kept.push(c);
    }
    format!("{}…", kept.trim_end())
}

/// The text in lines no wider than `room`, broken at spaces.
///
/// A single word that is wider is cut with an ellipsis.
pub(super) fn wrap(text: &str, size: f64, bold: bool, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let longer = if line.is_empty() {
            word.to_owned()
        } else {
            format!("{line} {word}")
        };
        if line.is_empty() || width(&longer, size, bold) <= room {
            line = longer;
        } else {
            lines.push(std::mem::replace(&mut line, word.to_owned()));
        }
    }
    lines.push(line);
    lines
        .iter()
        .map(|line| shorten(line, size, bold, room))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_all_as_wide_so_that_columns_line_up() {
        for bold in [false, true] {
            let zero = width("0", 12.0, bold);
            assert!(('1'..='9').all(|c| width(&c.to_string(), 12.0, bold) == zero));
        }
    }

    #[test]
    fn a_shortened_text_fits_and_ends_in_an_ellipsis() {
        let text = "a very long level name with many words";
        let short = shorten(text, 12.0, false, 80.0);
        assert!(
            short.ends_with('…') && width(&short, 12.0, false) <= 80.0,
            "{short}"
        );
        assert_eq!(shorten("short", 12.0, false, 80.0), "short");
        assert!(
            wrap(text, 12.0, false, 80.0)
                .iter()
                .all(|line| width(line, 12.0, false) <= 80.0)
        );
        assert_eq!(wrap(text, 12.0, false, 80.0).join(" "), text);
    }

    #[test]
    fn the_font_has_the_signs_that_charts_use() {
        for c in "µ·×–—≤≥±…∞≈−%[]".chars() {
            assert_ne!(face(false).glyph_id(c).0, 0, "{c}");
            assert_ne!(face(true).glyph_id(c).0, 0, "{c}");
        }
    }
}
