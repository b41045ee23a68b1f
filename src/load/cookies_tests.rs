use super::super::answer::{AnswerReader, Keep};
use super::*;
use proptest::prelude::*;

/// A jar after an answer with these lines, to a request for this path.
fn take(jar: &mut CookieJar, target: &str, lines: &[&str], now: Instant) {
    let mut reader = AnswerReader::default();
    reader.begin(Keep::Excerpt, false);
    let head = format!("HTTP/1.1 204 X\r\n{}\r\n\r\n", lines.join("\r\n"));
    reader.feed(head.as_bytes()).unwrap();
    jar.take(reader.answer(), target.as_bytes(), now);
}

fn line(jar: &CookieJar, target: &str, now: Instant) -> String {
    let mut out = Vec::new();
    jar.push_line(target.as_bytes(), now, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn cookies_come_back_where_they_belong_and_in_order() {
    let now = Instant::now();
    let mut jar = CookieJar::default();
    assert_eq!(line(&jar, "/", now), "");
    take(
        &mut jar,
        "/app/login?next=/x/y",
        &[
            "Set-Cookie: sid = abc=1 ; Path=/; HttpOnly; Secure; Domain=elsewhere.org; SameSite=Lax",
            "set-cookie: own=1",
            "set-cookie: deep=1; path=/app/admin",
            "set-cookie: odd=1; path=app",
            "set-cookie: =nameless",
            "set-cookie: no pair",
            "set-cookie: empty=",
        ],
        now,
    );
    for (target, cookies) in [
        ("/", "sid=abc=1"),
        ("/application", "sid=abc=1"),
        ("/app", "own=1; odd=1; empty=; sid=abc=1"),
        ("/app/x?y=/z", "own=1; odd=1; empty=; sid=abc=1"),
        ("/app/admin/", "deep=1; own=1; odd=1; empty=; sid=abc=1"),
    ] {
        let expected = format!("cookie: {cookies}\r\n");
        assert_eq!(line(&jar, target, now), expected, "{target}");
    }
    // The same name and path is the same cookie, and keeps its place.
    take(
        &mut jar,
        "/",
        &["set-cookie: other=2", "set-cookie: sid=new"],
        now,
    );
    assert_eq!(line(&jar, "/", now), "cookie: sid=new; other=2\r\n");
    jar.clear();
    assert_eq!(line(&jar, "/app", now), "");
}

#[test]
fn cookies_end_when_their_time_is_over() {
    let now = Instant::now();
    let later = |seconds| now + Duration::from_secs(seconds);
    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT";
    for (lines, at_once, after_a_minute) in [
        (vec!["set-cookie: a=1; Max-Age=30"], true, false),
        (vec!["set-cookie: a=1; max-age=90"], true, true),
        (
            vec!["set-cookie: a=1; max-age=99999999999999999999"],
            true,
            true,
        ),
        (vec!["set-cookie: a=1; max-age=soon"], true, true),
        (vec!["set-cookie: a=1; Max-Age=0"], false, false),
        (vec!["set-cookie: a=1; Max-Age=-1"], false, false),
        (
            vec!["set-cookie: a=1; Expires=Thu, 01-Jan-1970 00:00:01 GMT"],
            false,
            false,
        ),
        // By the server's clock; without one nobody can tell.
        (
            vec![
                date,
                "set-cookie: a=1; expires=Sun, 06 Nov 1994 08:50:07 GMT",
            ],
            true,
            false,
        ),
        (
            vec!["set-cookie: a=1; expires=Sun, 06 Nov 2033 08:50:07 GMT"],
            true,
            true,
        ),
        // The one goes before the other.
        (
            vec!["set-cookie: a=1; max-age=90; expires=Thu, 01 Jan 1970 00:00:00 GMT"],
            true,
            true,
        ),
    ] {
        let mut jar = CookieJar::default();
        take(&mut jar, "/", &["set-cookie: a=old"], now);
        take(&mut jar, "/", &lines, now);
        let is_sent = |moment| line(&jar, "/", moment) == "cookie: a=1\r\n";
        assert_eq!(
            (is_sent(now), is_sent(later(60))),
            (at_once, after_a_minute),
            "{lines:?}"
        );
    }
}

#[test]
fn a_jar_stays_small_whatever_it_is_given() {
    let now = Instant::now();
    let mut jar = CookieJar::default();
    for n in 0..MOST_COOKIES + 5 {
        take(&mut jar, "/", &[&format!("set-cookie: c{n}=1")], now);
    }
    let sent = line(&jar, "/", now);
    assert_eq!(sent.matches("=1").count(), MOST_COOKIES);
    assert!(
        sent.starts_with("cookie: c5=1; "),
        "the oldest went: {sent}"
    );
    let mut jar = CookieJar::default();
    let long = "x".repeat(MOST_BYTES);
    take(&mut jar, "/", &[&format!("set-cookie: c={long}")], now);
    assert_eq!(line(&jar, "/", now), "");
}

proptest! {
    /// What comes back is one line of a head, whatever was set.
    #[test]
    fn no_cookie_can_become_another_header(
        lines in proptest::collection::vec(
            proptest::collection::vec(0x20_u8..=0xFF, 0..40), 1..4),
        target in "/[a-z/?]{0,8}",
    ) {
        let mut head = b"HTTP/1.1 204 X\r\n".to_vec();
        for line in &lines {
            head.extend_from_slice(b"set-cookie: a=");
            head.extend_from_slice(line);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let mut reader = AnswerReader::default();
        reader.begin(Keep::Excerpt, false);
        // Some of these bytes stand in no header.
        if reader.feed(&head).is_ok() && reader.is_done() {
            let mut jar = CookieJar::default();
            let now = Instant::now();
            jar.take(reader.answer(), target.as_bytes(), now);
            let mut out = Vec::new();
            jar.push_line(target.as_bytes(), now, &mut out);
            let text = out.strip_suffix(b"\r\n").unwrap_or_default();
            prop_assert!(text.iter().all(|byte| *byte >= 0x20 && *byte != 0x7F));
            prop_assert!(out.is_empty() || text.starts_with(b"cookie: a="));
        }
    }
}
