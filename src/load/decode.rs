//! Answers that came compressed, as what they are.
//!
//! Done for steps alone that look at a body, and for whoever shows one. Pure.
//!
//! **Source**: RFC 9110, sections 8.4 and 8.4.1: codings, the last applied one last;
//! `deflate` is the format of zlib, and servers that send the bare stream are understood too.
//! **Invariant**: what comes out is bounded, however well it was compressed.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::answer::{Answer, EXCERPT_BYTES, MOST_BODY_BYTES};

/// More codings than this, one over the other, nobody means.
const MOST_CODINGS: usize = 4;

/// The body of an answer, decoded where it has to be.
///
/// **Errors**: what cannot be decoded or is too long, in words.
pub(super) fn body_of(answer: &Answer) -> Result<Cow<'_, [u8]>, String> {
    if !answer.is_encoded() || answer.body().is_empty() {
        return Ok(Cow::Borrowed(answer.body()));
    }
    let mut body = Cow::Borrowed(answer.body());
    for coding in codings_of(answer)?.into_iter().rev() {
        let decoded = coding.decode(&body, MOST_BODY_BYTES)?;
        body = Cow::Owned(decoded);
    }
    Ok(body)
}

/// The beginning of a body for people, be there only a beginning of it.
pub(super) fn beginning_of(answer: &Answer) -> Cow<'_, [u8]> {
    let one = answer.is_encoded().then(|| codings_of(answer));
    let Some(Ok([coding])) = one.as_ref().map(|codings| codings.as_deref()) else {
        return Cow::Borrowed(answer.body());
    };
    let mut decoded = vec![0; EXCERPT_BYTES];
    let mut n = 0;
    let mut reader = coding.reader(answer.body());
    // It ends with an error where the rest was not kept.
    while let Ok(more @ 1..) = reader.read(&mut decoded[n..]) {
        n += more;
    }
    decoded.truncate(n);
    Cow::Owned(decoded)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// `most`: bytes that may come out.
    fn decode(self, body: &[u8], most: usize) -> Result<Vec<u8>, String> {
        let mut decoded = Vec::new();
        let mut reader = self.reader(body).take(most as u64 + 1);
        reader
            .read_to_end(&mut decoded)
            .map_err(|error| format!("the body is not {}: {error}", self.name()))?;
        if decoded.len() > most {
            return Err(format!(
                "the answer is longer than {most} bytes when it is decoded"
            ));
        }
        Ok(decoded)
    }

    fn reader<'b>(self, bytes: &'b [u8]) -> Box<dyn Read + 'b> {
        match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(bytes)),
            Self::Deflate if is_zlib(bytes) => Box::new(ZlibDecoder::new(bytes)),
            Self::Deflate => Box::new(DeflateDecoder::new(bytes)),
        }
    }
}

/// **Source**: RFC 1950, section 2.2: the method is 8, and the first two bytes are a
/// multiple of 31.
fn is_zlib(bytes: &[u8]) -> bool {
    matches!(bytes, [first, second, ..]
        if first & 15 == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0)
}

/// The codings of a body in the order in which they were applied.
fn codings_of(answer: &Answer) -> Result<Vec<Coding>, String> {
    let mut codings = Vec::new();
    let values = answer.headers_named("content-encoding");
    for name in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        let name = name.trim_ascii().to_ascii_lowercase();
        match name.as_slice() {
            b"" | b"identity" => {}
            b"gzip" | b"x-gzip" => codings.push(Coding::Gzip),
            b"deflate" => codings.push(Coding::Deflate),
            other => {
                let name = String::from_utf8_lossy(other).escape_debug().to_string();
                return Err(format!(
                    "the body is encoded as `{name}`, which is not understood (known: gzip, deflate)"
                ));
            }
        }
    }
    if codings.len() > MOST_CODINGS {
        return Err(format!(
            "the body is encoded more than {MOST_CODINGS} times"
        ));
    }
    Ok(codings)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::read::{GzEncoder, ZlibEncoder};

    use super::*;

    #[test]
    fn what_swells_when_it_is_decoded_is_an_error() {
        let (mut gzip, mut zlib) = (Vec::new(), Vec::new());
        let long = vec![b' '; 100_000];
        let level = Compression::fast();
        GzEncoder::new(&long[..], level)
            .read_to_end(&mut gzip)
            .unwrap();
        ZlibEncoder::new(&long[..], level)
            .read_to_end(&mut zlib)
            .unwrap();
        for (coding, body) in [(Coding::Gzip, gzip), (Coding::Deflate, zlib)] {
            assert!(body.len() < 1_000);
            assert_eq!(coding.decode(&body, 100_000).unwrap(), long);
            assert_eq!(
                coding.decode(&body, 99_999).unwrap_err(),
                "the answer is longer than 99999 bytes when it is decoded"
            );
        }
    }
}
