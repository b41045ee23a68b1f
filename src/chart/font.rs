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
    cut_out(text, size, bold, room, 1.0)
}

/// Texts cut to `room` so that different ones stay different.
///
/// Long names mostly differ at their end (`-XX:+UseG1GC`, `-XX:+UseZGC`), so that
/// where cutting ends makes two the same, the middle or the beginning goes
/// instead; where nothing helps they are numbered.
pub(super) fn shorten_all(texts: &[String], size: f64, bold: bool, room: f64) -> Vec<String> {
    let are_distinct = |short: &[String]| {
        short
            .iter()
            .enumerate()
            .all(|(index, text)| !short[..index].contains(text))
    };
    let cut = |share: f64, room: f64| -> Vec<String> {
        texts
            .iter()
            .map(|text| cut_out(text, size, bold, room, share))
            .collect()
    };
    let ends = cut(1.0, room);
    if are_distinct(&ends) || !are_distinct(texts) {
        return ends;
    }
    for share in [0.5, 0.0] {
        let short = cut(share, room);
        if are_distinct(&short) {
            return short;
        }
    }
    let number = |index: usize| format!(" #{}", index + 1);
    let widest = width(&number(texts.len()), size, bold);
    cut(1.0, room - widest)
        .iter()
        .enumerate()
        .map(|(index, text)| format!("{text}{}", number(index)))
        .collect()
}

/// The text with an ellipsis for what does not fit; `share` of the room is for its beginning.
fn cut_out(text: &str, size: f64, bold: bool, room: f64, share: f64) -> String {
    if width(text, size, bold) <= room {
        return text.to_owned();
    }
    let left = room - width("…", size, bold);
    let take = |chars: &mut dyn Iterator<Item = char>, room: f64| -> Vec<char> {
        let mut used = 0.0;
        chars
            .take_while(|c| {
                used += width(c.encode_utf8(&mut [0; 4]), size, bold);
                used <= room
            })
            .collect()
    };
    let start: String = take(&mut text.chars(), left * share).into_iter().collect();
    let end: String = take(&mut text.chars().rev(), left * (1.0 - share))
        .into_iter()
        .rev()
        .collect();
    format!("{}…{}", start.trim_end(), end.trim_start())
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
            assert!(('1'..='9').all(|c| (width(&c.to_string(), 12.0, bold) - zero).abs() < 1e-9));
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
    fn shortened_names_that_differ_anywhere_stay_different() {
        let names =
            |texts: &[&str]| -> Vec<String> { texts.iter().map(|t| (*t).to_owned()).collect() };
        for texts in [
            names(&["-XX:+UseTheFirstGC -Xmx1g", "-XX:+UseTheFirstGC -Xmx2g"]),
            names(&["first of many long names", "second of many long names"]),
            names(&[
                "same at both ends, 1 in the middle, same at both ends",
                "same at both ends, 2 in the middle, same at both ends",
            ]),
        ] {
            let short = shorten_all(&texts, 12.0, false, 70.0);
            assert_ne!(short[0], short[1]);
            assert!(
                short.iter().all(|text| width(text, 12.0, false) <= 70.0),
                "{short:?}"
            );
        }
    }

    #[test]
    fn the_font_has_the_signs_that_charts_use() {
        for c in "µ·×–—≤≥±…∞≈−%[]".chars() {
            assert_ne!(face(false).glyph_id(c).0, 0, "{c}");
            assert_ne!(face(true).glyph_id(c).0, 0, "{c}");
        }
    }
}
