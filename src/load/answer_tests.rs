use std::io::Read as _;

use proptest::prelude::*;

use super::*;
use crate::load::cookies::CookieJar;
use crate::load::decode;
use crate::load::retry_after::retry_after;

/// What comes of bytes that arrive in these pieces and are followed by the end.
fn read(pieces: &[&[u8]], keep: Keep, answers_head: bool) -> Result<(Answer, bool), ClientError> {
    let mut reader = AnswerReader::default();
    reader.begin(keep, answers_head);
    for piece in pieces {
        reader.feed(piece)?;
    }
    if !reader.is_done() {
        reader.end()?;
    }
    assert!(reader.is_done());
    let is_reusable = reader.is_reusable();
    Ok((std::mem::take(&mut reader.answer), is_reusable))
}

fn whole(text: &str) -> (u16, String, bool) {
    let (answer, is_reusable) = read(&[text.as_bytes()], Keep::All, false).unwrap();
    let body = String::from_utf8(answer.body().to_vec()).unwrap();
    (answer.status(), body, is_reusable)
}

fn error_of(text: &str) -> (ErrorClass, String) {
    let error = read(&[text.as_bytes()], Keep::All, false).unwrap_err();
    (error.class, error.message)
}

#[test]
fn a_body_ends_where_its_framing_says() {
    let cases = [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            200,
            "ok",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length:  2 , 2\r\n\r\nok",
            200,
            "ok",
            true,
        ),
        ("HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, "", true),
        ("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true),
        // A length where there can be no body says what GET would have had.
        (
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
            304,
            "",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=\"y\"\r\nde\r\n0\r\n\r\n",
            200,
            "abcde",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\nA \r\n0123456789\r\n000\r\nx: y\r\n\r\n",
            200,
            "0123456789",
            true,
        ),
        // The coding goes before the length.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            200,
            "a",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\nto the end",
            200,
            "to the end",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nto the end",
            200,
            "to the end",
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 1\r\n\r\na",
            200,
            "a",
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na",
            200,
            "a",
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nconnection: x, keep-alive\r\ncontent-length: 1\r\n\r\na",
            200,
            "a",
            true,
        ),
        // What comes behind the end belongs to nobody, and the connection is no longer trusted.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokay",
            200,
            "ok",
            false,
        ),
        ("HTTP/1.1 204 X\r\n\r\nbody", 204, "", false),
        // Interim answers come before the one that counts.
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 1\r\n\r\na",
            201,
            "a",
            true,
        ),
        ("HTTP/1.1 200 OK\ncontent-length: 2\n\nok", 200, "ok", true),
    ];
    for (text, status, body, is_reusable) in cases {
        assert_eq!(
            whole(text),
            (status, body.to_owned(), is_reusable),
            "{text}"
        );
    }
    let to_head = read(
        &[b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n"],
        Keep::All,
        true,
    );
    assert!(to_head.unwrap().1);
}

#[test]
fn what_is_no_whole_answer_says_so_with_its_class() {
    use ErrorClass::{Protocol, Reset};
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let cases = [
        (String::new(), Reset, "closed before an answer came"),
        (
            "HTTP/1.1 200 O".into(),
            Reset,
            "closed in the middle of the answer's head",
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\n".into(),
            Reset,
            "closed in the middle of the answer's head",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok".into(),
            Reset,
            "closed 3 bytes before the end of the body",
        ),
        (
            format!("{chunked}5\r\nab"),
            Reset,
            "closed before the last chunk of the body",
        ),
        (
            format!("{chunked}0\r\n"),
            Reset,
            "closed before the last chunk of the body",
        ),
        (
            "SSH-2.0-OpenSSH\r\n".into(),
            Protocol,
            "the answer is not HTTP/1.1 (invalid HTTP version): SSH-2.0-OpenSSH",
        ),
        (
            "HTTP/2.0 200 OK\r\n\r\n".into(),
            Protocol,
            "the answer is not HTTP/1.1 (invalid HTTP version): HTTP/2.0 200 OK",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\n\r\n".into(),
            Protocol,
            "the answer switches protocols (status 101)",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".into(),
            Protocol,
            "the answer's length is no number: \"-1\"",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\n".into(),
            Protocol,
            "the answer's length is no number: \"18446744073709551616\"",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n".into(),
            Protocol,
            "the answer's length is no number: \"1, 2\"",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".into(),
            Protocol,
            "the answer has two lengths",
        ),
        (
            format!("{chunked}g\r\n"),
            Protocol,
            "'g' in the size of a chunk",
        ),
        (
            format!("{chunked}\r\n"),
            Protocol,
            "'\\r' in the size of a chunk",
        ),
        (
            format!("{chunked}1x\r\n"),
            Protocol,
            "'x' in the size of a chunk",
        ),
        (
            format!("{chunked}1\r\nab"),
            Protocol,
            "a chunk is longer than its size says",
        ),
        (
            format!("{chunked}11111111111111111\r\n"),
            Protocol,
            "a chunk is longer than anything can be",
        ),
    ];
    for (text, class, message) in cases {
        assert_eq!(error_of(&text), (class, message.to_owned()), "{text}");
    }
}

#[test]
fn nothing_grows_without_bounds() {
    let endless = |begin: &str, more: &str| {
        let mut reader = AnswerReader::default();
        reader.begin(Keep::All, false);
        reader.feed(begin.as_bytes()).unwrap();
        // More than any limit below would let through.
        let n = (MOST_BODY_BYTES + MOST_HEAD_BYTES) / more.len() + 1;
        (0..n)
            .find_map(|_| reader.feed(more.as_bytes()).err())
            .map(|error| error.message)
    };
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        endless("HTTP/1.1 200 OK\r\nx: ", &"y".repeat(9_999)),
        text("the head of the answer is longer than 262144 bytes")
    );
    assert_eq!(
        endless("HTTP/1.1 200 OK\r\n", "x: y\r\n"),
        text("the answer has more than 128 headers")
    );
    assert_eq!(
        endless("", "HTTP/1.1 100 Continue\r\n\r\n"),
        text("more than 32 interim answers")
    );
    assert_eq!(
        endless(&format!("{chunked}1;"), &"x".repeat(9_999)),
        text("more than 262144 bytes beside the chunks of a body")
    );
    assert_eq!(
        endless(&format!("{chunked}0\r\n"), "x: y\r\n"),
        text("more than 262144 bytes beside the chunks of a body")
    );
    assert_eq!(
        endless("HTTP/1.1 200 OK\r\n\r\n", &"x".repeat(99_999)),
        text("the answer is longer than 67108864 bytes")
    );
    let long = format!(
        "HTTP/1.1 200 OK\r\nx: {}\r\n\r\n",
        "y".repeat(MOST_HEAD_BYTES)
    );
    for n in [1_000, 1 << 14, 1 << 16, long.len()] {
        let pieces: Vec<&[u8]> = long.as_bytes().chunks(n).collect();
        let error = read(&pieces, Keep::Excerpt, false).unwrap_err();
        assert_eq!(error.class, ErrorClass::Protocol, "in pieces of {n}");
    }
    // A body of very many small chunks is a body.
    let mut reader = AnswerReader::default();
    reader.begin(Keep::Excerpt, false);
    reader.feed(chunked.as_bytes()).unwrap();
    for _ in 0..300_000 {
        reader.feed(b"1\r\na\r\n").unwrap();
    }
    reader.feed(b"0\r\n\r\n").unwrap();
    assert_eq!(
        (reader.is_done(), reader.answer().body().len()),
        (true, EXCERPT_BYTES)
    );
}

#[test]
fn headers_are_found_whatever_their_case_and_the_first_counts() {
    let text = "HTTP/1.1 429 Too Many: really\r\nRetry-After: 7\r\nETag:W/\"1\"\r\nx:\r\netag: second\r\ncontent-length: 0\r\n\r\n";
    let (answer, _) = read(&[text.as_bytes()], Keep::Excerpt, false).unwrap();
    assert_eq!(answer.header("retry-after"), Some(&b"7"[..]));
    assert_eq!(answer.header("etag"), Some(&b"W/\"1\""[..]));
    assert_eq!(answer.header("x"), Some(&b""[..]));
    assert_eq!(answer.header("HTTP/1.1 429 Too Many"), None);
    assert_eq!(answer.headers().count(), 5);
}

#[test]
fn a_reader_forgets_the_answer_before() {
    let mut reader = AnswerReader::default();
    reader.begin(Keep::All, false);
    reader
        .feed(b"HTTP/1.0 500 X\r\nlong: header\r\ncontent-length: 5\r\n\r\nfirst")
        .unwrap();
    assert!(reader.is_done() && !reader.is_reusable());
    reader.begin(Keep::All, false);
    assert!(reader.is_untouched());
    reader
        .feed(b"HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\nok")
        .unwrap();
    let answer = reader.answer();
    assert_eq!((answer.status(), answer.body()), (200, &b"ok"[..]));
    assert_eq!(answer.header("long"), None);
    assert!(reader.is_reusable());
}

/// Answers that are whole, of every framing, and where the next one would begin.
fn some_answer() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let body = proptest::collection::vec(any::<u8>(), 0..600);
    (body, 0..3_u8, proptest::collection::vec(1..200_usize, 1..8)).prop_map(
        |(body, framing, sizes)| {
            let mut bytes = Vec::new();
            match framing {
                0 => {
                    bytes.extend_from_slice(b"HTTP/1.1 302 OK\r\nContent-Encoding: gzip, deflate\r\n");
                    bytes.extend_from_slice(b"set-cookie: a=b; path=/; max-age=1\r\nlocation: ../x?y\r\n");
                    bytes.extend_from_slice(b"retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: 1\r\n");
                    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
                    bytes.extend_from_slice(&body);
                }
                1 => {
                    bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                    let mut left = &body[..];
                    for size in sizes.iter().cycle() {
                        let (chunk, rest) = left.split_at((*size).min(left.len()));
                        if chunk.is_empty() {
                            break;
                        }
                        bytes.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                        bytes.extend_from_slice(chunk);
                        bytes.extend_from_slice(b"\r\n");
                        left = rest;
                    }
                    bytes.extend_from_slice(b"0\r\ntrailer: t\r\n\r\n");
                }
                _ => {
                    bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
                    bytes.extend_from_slice(&body);
                }
            }
            (bytes, body)
        },
    )
}

/// The bytes in pieces that end at these places.
fn cut<'b>(bytes: &'b [u8], places: &[usize]) -> Vec<&'b [u8]> {
    let mut places: Vec<usize> = places
        .iter()
        .map(|place| place % (bytes.len() + 1))
        .collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places
        .windows(2)
        .map(|pair| &bytes[pair[0]..pair[1]])
        .collect()
}

/// A body as one of the codings has it.
fn compressed(body: &[u8], coding: &str) -> Vec<u8> {
    let level = flate2::Compression::fast();
    let mut out = Vec::new();
    let read = match coding {
        "gzip" => flate2::read::GzEncoder::new(body, level).read_to_end(&mut out),
        _ => flate2::read::ZlibEncoder::new(body, level).read_to_end(&mut out),
    };
    read.unwrap();
    out
}

proptest! {
    #[test]
    fn what_was_compressed_is_what_it_was(
        body in proptest::collection::vec(any::<u8>(), 0..600),
        coding in proptest::sample::select(vec!["gzip", "deflate"]),
    ) {
        let sent = compressed(&body, coding);
        let head = format!("HTTP/1.1 200 X\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n", sent.len());
        let (answer, _) = read(&[head.as_bytes(), &sent], Keep::All, false).unwrap();
        prop_assert_eq!(&*decode::body_of(&answer).unwrap(), &body[..]);
        prop_assert_eq!(&*decode::beginning_of(&answer), &body[..body.len().min(EXCERPT_BYTES)]);
    }
}

/// As many as the environment says (`cargo xtask prove fuzz-answers`), or enough for every day.
fn cases() -> ProptestConfig {
    match std::env::var("PROPTEST_CASES") {
        Ok(_) => ProptestConfig::default(),
        Err(_) => ProptestConfig::with_cases(2_000),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn an_answer_is_the_same_however_it_is_cut(
        (bytes, body) in some_answer(),
        places in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        let (answer, _) = read(&cut(&bytes, &places), Keep::All, false).unwrap();
        prop_assert_eq!(answer.body(), &body[..]);
        let one_by_one: Vec<&[u8]> = bytes.chunks(1).collect();
        let (again, _) = read(&one_by_one, Keep::All, false).unwrap();
        prop_assert_eq!((again.status, again.body, again.head), (answer.status, answer.body, answer.head));
    }

    /// Mutated answers and noise: an answer or a mistake, never a panic, never anything else
    /// when the same bytes come in other pieces.
    #[test]
    fn whatever_comes_is_an_answer_or_a_mistake(
        (mut bytes, _) in some_answer(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>(), 0..3_u8), 0..6),
        places in proptest::collection::vec(any::<usize>(), 0..12),
        is_noise in proptest::bool::weighted(0.1),
        noise in proptest::collection::vec(any::<u8>(), 0..100),
        answers_head in any::<bool>(),
    ) {
        if is_noise {
            bytes = noise;
        }
        for (place, byte, what) in changes {
            let place = place % (bytes.len() + 1);
            match what {
                0 if place < bytes.len() => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => bytes.truncate(place.max(1)),
            }
        }
        // Whoever looks closer at what came is as safe, and what comes out is bounded.
        if let Ok((answer, _)) = read(&[&bytes], Keep::All, answers_head) {
            let decoded = decode::body_of(&answer).map_or(0, |body| body.len());
            prop_assert!(decoded <= MOST_BODY_BYTES);
            prop_assert!(decode::beginning_of(&answer).len() <= answer.body().len().max(EXCERPT_BYTES));
            let _ = retry_after(&answer);
            let (mut jar, now) = (CookieJar::default(), std::time::Instant::now());
            jar.take(&answer, b"/a/b", now);
            jar.push_line(b"/a/b", now, &mut Vec::new());
        }
        let summed = |result: Result<(Answer, bool), ClientError>| {
            result
                .map(|(answer, is_reusable)| (answer.status, answer.head, answer.body, is_reusable))
                .map_err(|error| error.class)
        };
        let at_once = summed(read(&[&bytes], Keep::All, answers_head));
        let in_pieces = summed(read(&cut(&bytes, &places), Keep::All, answers_head));
        prop_assert_eq!(at_once, in_pieces);
    }
}

#[test]
fn a_head_that_came_before_is_understood_as_a_new_one() {
    let texts = [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
        "HTTP/1.1 200 OK\n\nHTTP/1.1 200 OK\n\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nok",
    ];
    let asked = texts.map(|text| [(text, false), (text, true)]).concat();
    let say = |(text, answers_head): (&str, bool)| {
        read(&[text.as_bytes()], Keep::All, answers_head).map(|(answer, is_reusable)| {
            let Answer {
                status, head, body, ..
            } = answer;
            (status, head, body, is_reusable)
        })
    };
    for before in &asked {
        for again in &asked {
            // A thread of its own has seen nothing yet.
            let fresh = std::thread::scope(|scope| scope.spawn(|| say(*again)).join().unwrap());
            let _ = say(*before);
            assert_eq!(say(*again), fresh, "{again:?} after {before:?}");
            assert_eq!(say(*again), fresh, "{again:?} twice, after {before:?}");
        }
    }
}
