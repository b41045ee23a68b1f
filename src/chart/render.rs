//! A scene as SVG and as PNG: one painter, two back ends of plotters.
//!
//! Both are painted on a finer grid than the canvas, because plotters places
//! shapes on whole pixels: an SVG then has quarter pixels and is scaled by its
//! view box, a PNG is averaged down, which also smooths its edges.

use ab_glyph::{Font, PxScale, ScaleFont};
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontStyle, FontTransform, IntoFont, RGBAColor, ShapeStyle, TextStyle,
};

use super::colour::Colour;
use super::font;
use super::scene::{Anchor, Item, Scene, Shape};

/// Grid lines per pixel of the canvas in both formats.
const FINE: u32 = 4;

/// A PNG has this many pixels per pixel of the canvas: sharp on dense screens and in print.
const PNG_DENSITY: u32 = 2;

/// Above this a canvas is painted less finely: 40 million pixels are 120 MB.
const MOST_FINE_PIXELS: f64 = 40e6;

/// plotters sizes a font by its line, which it takes for 1.24 em, and puts the
/// baseline of top-anchored SVG text 0.76 em below the position.
const LINE_EM: f64 = 1.24;
const SVG_BASELINE_EM: f64 = 0.76;

/// The scene as an SVG file's text.
pub(super) fn svg(scene: &Scene) -> Result<String, String> {
    let (width, height) = (scene.width as u32, scene.height as u32);
    let mut text = String::new();
    {
        let mut backend = SVGBackend::with_string(&mut text, (width * FINE, height * FINE));
        let scale = f64::from(FINE);
        paint(&mut backend, &scene.items, scale, |backend, shape| {
            svg_text(backend, shape, scale)
        })?;
        backend.present().map_err(|error| error.to_string())?;
    }
    // The head is our own: size in pixels of the canvas, the finer grid as view
    // box, round joins, and a title for readers who cannot see the picture.
    let head_end = text
        .find("<svg")
        .and_then(|start| Some(start + text[start..].find('>')? + 1))
        .ok_or_else(|| "the drawing has no head".to_owned())?;
    let head = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {} {}\" role=\"img\" stroke-linejoin=\"round\" stroke-linecap=\"butt\">\n\
         <title>{}</title>",
        width * FINE,
        height * FINE,
        escape(&scene.title)
    );
    text.replace_range(..head_end, &head);
    Ok(text)
}

/// The scene as a PNG file's bytes.
pub(super) fn png(scene: &Scene) -> Result<Vec<u8>, String> {
    let (width, height) = (scene.width as u32, scene.height as u32);
    let area = scene.width * scene.height;
    let fine = (1..=FINE)
        .rev()
        .find(|fine| area * f64::from(fine * fine) <= MOST_FINE_PIXELS)
        .unwrap_or(1);
    let fold = if fine >= FINE { FINE / PNG_DENSITY } else { 1 };
    let size = (width * fine, height * fine);
    let mut pixels = vec![255_u8; size.0 as usize * size.1 as usize * 3];
    {
        let mut backend = BitMapBackend::with_buffer(&mut pixels, size);
        let scale = f64::from(fine);
        // The canvas itself is the first item, and the buffer is white already.
        let items = scene.items.get(1..).unwrap_or_default();
        paint(&mut backend, items, scale, |backend, shape| {
            bitmap_text(backend, shape, scale)
        })?;
        backend.present().map_err(|error| error.to_string())?;
    }
    let (pixels, size) = fold_down(&pixels, size, fold);
    encode(&pixels, size).map_err(|error| error.to_string())
}

/// Averages squares of `fold` x `fold` pixels into one.
fn fold_down(pixels: &[u8], (width, height): (u32, u32), fold: u32) -> (Vec<u8>, (u32, u32)) {
    let out_size = (width / fold, height / fold);
    if fold == 1 {
        return (pixels.to_vec(), out_size);
    }
    let (fold, row_bytes) = (fold as usize, width as usize * 3);
    let out_row = out_size.0 as usize * 3;
    let mut sums = vec![0_u32; out_row];
    let mut out = Vec::with_capacity(out_row * out_size.1 as usize);
    for rows in pixels.chunks_exact(row_bytes * fold) {
        sums.fill(0);
        for row in rows.chunks_exact(row_bytes) {
            for (square, sum) in row.chunks_exact(3 * fold).zip(sums.chunks_exact_mut(3)) {
                for pixel in square.chunks_exact(3) {
                    for (channel, sum) in pixel.iter().zip(sum.iter_mut()) {
                        *sum += u32::from(*channel);
                    }
                }
            }
        }
        let n = (fold * fold) as u32;
        out.extend(
            sums.iter()
                .map(|sum| u8::try_from((sum + n / 2) / n).unwrap_or(u8::MAX)),
        );
    }
    (out, out_size)
}

fn encode(pixels: &[u8], (width, height): (u32, u32)) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Balanced);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

fn paint<DB: DrawingBackend>(
    backend: &mut DB,
    items: &[Item],
    scale: f64,
    mut text: impl FnMut(&mut DB, &Shape) -> Result<(), String>,
) -> Result<(), String> {
    let place = |(x, y): (f64, f64)| ((x * scale).round() as i32, (y * scale).round() as i32);
    for item in items {
        let painted = match &item.shape {
            Shape::Rectangle { at, size, fill } => backend.draw_rect(
                place(*at),
                place((at.0 + size.0, at.1 + size.1)),
                &style(*fill, 0),
                true,
            ),
            Shape::Path {
                points,
                colour,
                width,
            } => {
                let width = (width * scale).round().max(1.0) as u32;
                backend.draw_path(points.iter().copied().map(place), &style(*colour, width))
            }
            Shape::Polygon { points, fill } => {
                backend.fill_polygon(points.iter().copied().map(place), &style(*fill, 0))
            }
            Shape::Circle { at, radius, fill } => backend.draw_circle(
                place(*at),
                (radius * scale).round() as u32,
                &style(*fill, 0),
                true,
            ),
            shape @ Shape::Text { .. } => {
                text(backend, shape)?;
                Ok(())
            }
        };
        painted.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn rgba(colour: Colour) -> RGBAColor {
    let (red, green, blue) = colour.rgb;
    RGBAColor(red, green, blue, colour.opacity)
}

fn style(colour: Colour, stroke_width: u32) -> ShapeStyle {
    ShapeStyle {
        color: rgba(colour),
        filled: stroke_width == 0,
        stroke_width,
    }
}

fn svg_text<DB: DrawingBackend>(backend: &mut DB, shape: &Shape, scale: f64) -> Result<(), String> {
    let Shape::Text {
        at: (x, y),
        text,
        size,
        bold,
        colour,
        anchor,
        upwards,
    } = shape
    else {
        return Ok(());
    };
    let h_pos = match anchor {
        Anchor::Start => HPos::Left,
        Anchor::Middle => HPos::Center,
        Anchor::End => HPos::Right,
    };
    let em = size * scale;
    let rise = SVG_BASELINE_EM * em;
    let (x, y) = (x * scale, y * scale);
    let (x, y) = if *upwards {
        (x - rise, y)
    } else {
        (x, y - rise)
    };
    let weight = if *bold {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    let mut font = (font::FAMILY, em * LINE_EM).into_font().style(weight);
    if *upwards {
        font = font.transform(FontTransform::Rotate270);
    }
    let colour = rgba(*colour);
    let style = TextStyle::from(font)
        .color(&colour)
        .pos(Pos::new(h_pos, VPos::Top));
    backend
        .draw_text(text, &style, (x.round() as i32, y.round() as i32))
        .map_err(|error| error.to_string())
}

fn bitmap_text<DB: DrawingBackend>(
    backend: &mut DB,
    shape: &Shape,
    scale: f64,
) -> Result<(), String> {
    let Shape::Text {
        at: (x, y),
        text,
        size,
        bold,
        colour,
        anchor,
        upwards,
    } = shape
    else {
        return Ok(());
    };
    let face = font::face(*bold);
    let em = size * scale;
    let units = f64::from(face.units_per_em().unwrap_or(2048.0));
    // ab_glyph's scale is the height of the font's line, not of its em.
    let px = PxScale::from((em * f64::from(face.height_unscaled()) / units) as f32);
    let scaled = face.as_scaled(px);
    let width = font::width(text, em, *bold);
    let start = match anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => -width / 2.0,
        Anchor::End => -width,
    };
    let (canvas_width, canvas_height) = backend.get_size();
    let mut pen = start as f32;
    for c in text.chars() {
        let id = face.glyph_id(c);
        let glyph = id.with_scale_and_position(px, ab_glyph::point(pen, 0.0));
        pen += scaled.h_advance(id);
        let Some(outline) = face.outline_glyph(glyph) else {
            continue;
        };
        let corner = outline.px_bounds().min;
        let mut covered = Vec::new();
        outline.draw(|dx, dy, coverage| covered.push((dx, dy, coverage)));
        for (dx, dy, coverage) in covered {
            let (along, down) = (
                corner.x as i32 + dx.cast_signed(),
                corner.y as i32 + dy.cast_signed(),
            );
            let (x, y) = ((x * scale).round() as i32, (y * scale).round() as i32);
            let (x, y) = if *upwards {
                (x + down, y - along)
            } else {
                (x + along, y + down)
            };
            let is_inside =
                x >= 0 && y >= 0 && (x as u32) < canvas_width && (y as u32) < canvas_height;
            if is_inside && coverage > 0.0 {
                let opacity = colour.opacity * f64::from(coverage.min(1.0));
                backend
                    .draw_pixel((x, y), rgba(colour.faded(opacity)).to_backend_color())
                    .map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
