use super::super::template::{Counter, Piece, Template};
use super::*;
use crate::load::data::Rows;
use proptest::prelude::*;

fn pieces(parts: &[Piece]) -> Pieces {
    let mut pieces = Pieces::default();
    for part in parts {
        pieces.push(part.clone());
    }
    pieces
}

fn header(name: &str, value: Pieces) -> (HeaderName, Pieces) {
    (name.parse().unwrap(), value)
}

/// The request as text, with these captures.
fn built(template: &RequestTemplate, captures: &[Option<Value>]) -> Result<String, String> {
    let mut dynamic = Dynamic {
        captures,
        random: &mut fastrand::Rng::with_seed(1),
        counter: &mut Counter::new(0, 1),
        user: 7,
        rows: Rows::default(),
    };
    let mut buffer = RequestBuffer {
        text: "left over".into(),
        body: "left over".into(),
        bytes: b"left over".to_vec(),
    };
    let names = ["id".to_owned()];
    let outgoing = template.build(&names, &mut dynamic, &mut buffer)?;
    Ok(String::from_utf8(outgoing.bytes().to_vec()).unwrap())
}

#[test]
fn a_request_without_anything_open_is_the_same_bytes_every_time() {
    let template = RequestTemplate::new(
        Method::GET,
        Pieces::text("/a?b=c"),
        "app:8080",
        vec![
            header("accept", Pieces::text("x")),
            header("user-agent", Pieces::text("mine")),
        ],
        Body::None,
    )
    .unwrap();
    assert!(matches!(template.parts, Parts::Fixed(_)));
    assert_eq!(
        built(&template, &[]).unwrap(),
        "GET /a?b=c HTTP/1.1\r\nhost: app:8080\r\nuser-agent: mine\r\naccept: x\r\n\r\n"
    );
}

#[test]
fn a_body_has_its_length_and_a_method_that_means_one_says_zero() {
    let body = |method: Method, body: Body| {
        let template = RequestTemplate::new(method, Pieces::text("/"), "h", Vec::new(), body);
        built(&template.unwrap(), &[Some(Value::from("é\"x"))]).unwrap()
    };
    let start =
        |method: &str| format!("{method} / HTTP/1.1\r\nhost: h\r\nuser-agent: nightsweep\r\n");
    assert_eq!(
        body(Method::POST, Body::None),
        start("POST") + "content-length: 0\r\n\r\n"
    );
    assert_eq!(body(Method::DELETE, Body::None), start("DELETE") + "\r\n");
    // Bytes are counted, not characters.
    let text = Body::Text(pieces(&[Piece::Text("é ".into()), Piece::Capture(0)]));
    assert_eq!(
        body(Method::PUT, text),
        start("PUT") + "content-length: 7\r\n\r\né é\"x"
    );
    let value = JsonTemplate::Object(vec![
        (
            "a\"b".into(),
            JsonTemplate::Text(pieces(&[Piece::Capture(0)])),
        ),
        (
            "n".into(),
            JsonTemplate::Array(vec![
                JsonTemplate::Literal(Value::from(1.5)),
                JsonTemplate::Text(pieces(&[Piece::User])),
                JsonTemplate::Literal(Value::Null),
            ]),
        ),
    ]);
    assert_eq!(
        body(Method::DELETE, Body::Json(value)),
        start("DELETE") + "content-length: 33\r\n\r\n{\"a\\\"b\":\"é\\\"x\",\"n\":[1.5,7,null]}"
    );
}

#[test]
fn what_a_capture_brings_cannot_become_another_request() {
    let open = |path: Pieces, headers| {
        RequestTemplate::new(Method::GET, path, "h", headers, Body::None).unwrap()
    };
    let path = open(
        pieces(&[Piece::Text("/p/".into()), Piece::Capture(0)]),
        Vec::new(),
    );
    let value = pieces(&[Piece::Text("t ".into()), Piece::Capture(0)]);
    let headed = open(Pieces::text("/"), vec![header("x", value)]);
    let with = |template: &RequestTemplate, text: &str| built(template, &[Some(Value::from(text))]);
    assert!(
        with(&path, "7")
            .unwrap()
            .starts_with("GET /p/7 HTTP/1.1\r\n")
    );
    assert!(with(&headed, "7").unwrap().contains("\r\nx: t 7\r\n"));
    for attack in ["a b", "a\r\nx: y", "a\n", "a#b", "a\u{7f}"] {
        let why = with(&path, attack).unwrap_err();
        assert!(why.contains("which stands in no path"), "{why}");
    }
    for attack in ["a\r\nx: y", "a\n", "a\0"] {
        assert_eq!(with(&headed, attack).unwrap_err(), HEADER_PROBLEM);
    }
    assert_eq!(
        built(&path, &[None]).unwrap_err(),
        "`${id}` was not captured"
    );
    let null = built(&path, &[Some(Value::Null)]).unwrap_err();
    assert_eq!(null, "`${id}` was captured as null, which is no text");
    let relative =
        RequestTemplate::new(Method::GET, Pieces::text("x"), "h", Vec::new(), Body::None);
    assert_eq!(
        relative.unwrap_err(),
        "the path \"x\" does not start with `/`"
    );
}

proptest! {
    /// A JSON body is what serde prints of the value that the template makes.
    #[test]
    fn json_is_rendered_as_it_would_be_printed(texts in proptest::collection::vec(".*", 1..5), number in any::<f64>()) {
        let leaf = |text: &String| {
            let pieces = match Template::parse(&text.replace('$', "$$")) {
                Ok(_) => Pieces::text(text.clone()),
                Err(_) => Pieces::text("x"),
            };
            JsonTemplate::Text(pieces)
        };
        let template = JsonTemplate::Object(vec![
            (texts[0].clone(), JsonTemplate::Array(texts.iter().map(leaf).collect())),
            (format!("{} 2", texts[0]), JsonTemplate::Literal(Value::from(number))),
        ]);
        let mut dynamic = Dynamic {
            captures: &[],
            random: &mut fastrand::Rng::with_seed(1),
            counter: &mut Counter::new(0, 1),
            user: 0,
            rows: Rows::default(),
        };
        let printed = template.value(&mut dynamic).unwrap().to_string();
        let mut rendered = String::new();
        template.render(&mut rendered, &mut dynamic).unwrap();
        prop_assert_eq!(rendered, printed);
    }
}
