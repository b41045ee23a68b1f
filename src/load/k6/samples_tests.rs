use std::sync::mpsc::channel;

use super::*;

/// A line as k6 writes it.
fn line(metric: &str, value: f64, tags: &str) -> String {
    format!(
        r#"{{"metric":"{metric}","type":"Point","data":{{"time":"1970-01-01T00:00:01.000000002Z","value":{value},"tags":{{{tags}}},"metadata":{{"vu":"7","iter":"3"}}}}}}"#
    )
}

fn request(tags: &str) -> Option<PointKind> {
    let tags = format!(r#""scenario":"s","method":"GET",{tags}"#);
    let read = read_point(line("http_req_duration", 1.5, &tags).as_bytes()).unwrap();
    read.map(|point| point.kind)
}

fn fate_of(tags: &str) -> Fate {
    match request(&format!(r#""name":"x",{tags}"#)) {
        Some(PointKind::Request { fate, .. }) => fate,
        other => panic!("{other:?}"),
    }
}

fn name_of(name: &str) -> String {
    match request(&format!(r#""name":"{name}""#)) {
        Some(PointKind::Request { operation, .. }) => operation.into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_has_its_end_length_user_and_scenario() {
    let text = line(
        "http_req_duration",
        1.5,
        r#""scenario":"s","method":"GET","name":"x","expected_response":"true""#,
    );
    let point = read_point(text.as_bytes()).unwrap().unwrap();
    assert_eq!(
        (point.at_ns, point.user, point.iteration, &*point.scenario),
        (1_000_000_002, 7, 3, "s")
    );
    let expected = PointKind::Request {
        operation: "x".into(),
        duration_ns: 1_500_000,
        fate: Fate::Expected,
    };
    assert_eq!(point.kind, expected);
}

#[test]
fn times_are_read_in_any_zone() {
    assert_eq!(moment("1970-01-01T02:00:01.5+02:00"), Ok(1_500_000_000));
    assert_eq!(moment("1970-01-01T00:00:00Z"), Ok(0));
    moment("yesterday").unwrap_err();
    moment("9999-12-31T00:00:00Z").unwrap_err();
}

#[test]
fn set_up_tear_down_and_a_scripts_own_metrics_are_left_out() {
    let read = |metric: &str, tags: &str| read_point(line(metric, 1.0, tags).as_bytes()).unwrap();
    let no_scenario = r#""group":"::setup","method":"GET","name":"x""#;
    assert_eq!(read("http_req_duration", no_scenario), None);
    assert_eq!(read("checks", r#""group":"::teardown","check":"x""#), None);
    // A user's own group of that name has a scenario.
    assert!(read("checks", r#""group":"::setup","check":"x","scenario":"s""#).is_some());
    assert_eq!(read("http_req_duration", r#""scenario":"s""#), None);
    assert_eq!(read("http_req_failed", r#""scenario":"s""#), None);
    assert_eq!(
        read("http_reqs", r#""scenario":"s","method":"GET","name":"x""#),
        None
    );
    let metric = r#"{"type":"Metric","data":{"name":"http_reqs"},"metric":"http_reqs"}"#;
    assert_eq!(read_point(metric.as_bytes()), Ok(None));
}

#[test]
fn an_operation_is_the_name_or_method_and_path() {
    for (name, operation) in [
        ("get user", "get user"),
        ("http://10.0.0.3:8080/users/1?page=2", "GET /users/1"),
        ("https://x", "GET /"),
        ("http://x?a=/b", "GET /"),
        ("http://x#a", "GET /"),
        ("ftp://x/y", "ftp://x/y"),
        ("http://x/users/${}", "GET /users/${}"),
        ("${}/users/${}", "GET /users/${}"),
        ("${}", "${}"),
    ] {
        assert_eq!(name_of(name), operation, "{name}");
    }
}

#[test]
fn what_the_script_expects_is_a_success_whatever_its_status() {
    let expected = |status| {
        format!(r#""status":"{status}","error_code":"1{status}","expected_response":"true""#)
    };
    assert_eq!(fate_of(&expected(404)), Fate::Expected);
    assert_eq!(fate_of(&expected(429)), Fate::Expected);
    // Without any rule of the script's an answer is an answer, and none is none.
    assert_eq!(
        fate_of(r#""status":"500","error_code":"1500""#),
        Fate::Expected
    );
    assert!(matches!(
        fate_of(r#""status":"0","error_code":"1212""#),
        Fate::Failed(..)
    ));
}

#[test]
fn every_failure_has_its_class() {
    let class = |status: &str, code: &str, error: &str| {
        let tags = format!(
            r#""status":"{status}","error_code":"{code}","error":"{error}","expected_response":"false""#
        );
        match fate_of(&tags) {
            Fate::Failed(class, words) => format!("{} {words}", class.code()),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(
        class("0", "1212", "dial: connection refused"),
        "connect dial: connection refused"
    );
    assert_eq!(
        class("0", "1101", "lookup: no such host"),
        "connect lookup: no such host"
    );
    assert_eq!(class("0", "1310", "x509"), "connect x509");
    assert_eq!(
        class("0", "1220", "read: connection reset by peer"),
        "reset read: connection reset by peer"
    );
    assert_eq!(class("0", "1000", "unexpected EOF"), "reset unexpected EOF");
    assert_eq!(
        class("0", "1050", "request timeout"),
        "timeout request timeout"
    );
    assert_eq!(class("500", "1500", ""), "status status 500");
    assert_eq!(class("200", "", ""), "status status 200");
    assert_eq!(
        class("0", "1701", "decompression"),
        "protocol decompression"
    );
    assert_eq!(class("0", "1000", ""), "protocol error code 1000");
    assert_eq!(class("429", "1429", ""), "Refused");
}

#[test]
fn a_line_of_another_form_is_told_and_never_passed_over() {
    for text in [
        "{",
        "hello",
        r#"{"metric":"http_req_duration""#,
        r#"{"metric":"x","type":"Other"}"#,
        r#"{"metric":"checks","type":"Point","data":{}}"#,
        &line("checks", 1.0, r#""scenario":"s","check":"c""#).replace("1970", "x"),
    ] {
        read_point(text.as_bytes()).unwrap_err();
    }
}

/// What a reader passes on, in words.
fn heard(text: &[u8], thresholds: &[&str]) -> Vec<String> {
    let (sender, heard) = channel();
    let thresholds: Vec<String> = thresholds.iter().map(|text| (*text).to_owned()).collect();
    SampleReader::new(text, &thresholds, sender).run();
    let words = heard.iter().map(|heard| match heard {
        Heard::Points(points) => format!("{} points", points.len()),
        other => format!("{other:?}"),
    });
    words.filter(|words| words != "0 points").collect()
}

#[test]
fn all_lines_are_read_and_a_torn_one_at_the_end_is_no_sample() {
    let one = line("iteration_duration", 1.0, r#""scenario":"s""#);
    let text = format!("{one}\n{one}\n{}", &one[..40]);
    assert_eq!(heard(text.as_bytes(), &[]), ["2 points", "Unjudged([])"]);
    let text = format!("{one}\nnonsense\n{one}\n");
    let words = heard(text.as_bytes(), &[]);
    assert_eq!(words[0], "2 points");
    assert!(words[1].contains("another form: nonsense"), "{words:?}");
}

#[test]
fn a_threshold_without_samples_is_told() {
    let text = line("http_reqs", 1.0, r#""name":"x","status":"200""#) + "\n";
    let thresholds = [
        "http_reqs",
        "http_reqs{name:x,status:200}",
        "http_reqs{name:y}",
        "mine",
        "http_reqs{",
    ];
    let words = heard(text.as_bytes(), &thresholds);
    assert_eq!(words, [r#"Unjudged(["http_reqs{name:y}", "mine"])"#]);
}

#[test]
fn a_line_that_never_ends_does_not_fill_the_memory() {
    let text = vec![b'x'; 9 << 20];
    let words = heard(&text, &[]);
    assert!(words[0].contains("longer than"), "{words:?}");
}

proptest::proptest! {
    #[test]
    fn no_line_breaks_the_reader(bytes: Vec<u8>, cut in 0usize..400, by: u8) {
        drop(read_point(&bytes));
        let mut text = line("http_req_duration", 1.5, r#""scenario":"s","method":"GET","name":"x""#).into_bytes();
        let at = cut % text.len();
        text[at] = by;
        drop(read_point(&text));
        drop(read_point(&text[..at]));
    }
}
