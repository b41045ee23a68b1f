use std::collections::HashSet;

use super::*;

struct Fields;
impl Scope for Fields {
    fn lookup(&mut self, name: &str, _offset: usize) -> Result<Piece, String> {
        if let Some(builtin) = Piece::builtin(name) {
            return builtin;
        }
        match name {
            "resource.type" => Ok(Piece::Text("Patient".into())),
            "id.Patient" => Ok(Piece::Capture(0)),
            "cpus" => Ok(Piece::External("cpus".into())),
            other => Err(format!("no {other}")),
        }
    }
}

fn resolve(text: &str) -> Result<Pieces, TemplateError> {
    Template::parse(text)?.resolve(&mut Fields)
}

fn render(pieces: &Pieces, captures: &[Option<Value>]) -> Result<String, usize> {
    let mut out = String::new();
    let mut dynamic = Dynamic {
        captures,
        random: &mut fastrand::Rng::with_seed(7),
        counter: &mut Counter::new(0, 1),
        user: 3,
        rows: Rows::default(),
    };
    pieces.render(&mut out, &mut dynamic)?;
    Ok(out)
}

#[test]
fn a_dollar_is_doubled_or_stands_alone() {
    for (text, out) in [
        ("US$$ 5", "US$ 5"),
        ("{\"$ref\": 1}", "{\"$ref\": 1}"),
        ("$", "$"),
        ("$${uuid}", "${uuid}"),
        ("a}b", "a}b"),
    ] {
        assert_eq!(render(&resolve(text).unwrap(), &[]).as_deref(), Ok(out));
    }
}

#[test]
fn a_table_field_inside_a_name_picks_the_capture() {
    let pieces = resolve("/fhir/${resource.type}/${id.${resource.type}}").unwrap();
    assert_eq!(
        pieces.pieces(),
        [Piece::Text("/fhir/Patient/".into()), Piece::Capture(0)]
    );
    let captures = [Some(Value::String("17".into()))];
    assert_eq!(render(&pieces, &captures).unwrap(), "/fhir/Patient/17");
    assert_eq!(render(&pieces, &[None]), Err(0), "unset");
}

#[test]
fn broken_templates_say_where() {
    for (text, offset) in [
        ("ab${uuid", 2),
        ("x${}", 1),
        ("${random(5, 1)}", 0),
        ("é${nope}", 2),
    ] {
        assert_eq!(resolve(text).unwrap_err().offset, offset, "{text}");
    }
    assert!(resolve("${a${b${c${d${e}}}}}").is_err());
    assert!(resolve("${id.${cpus}}").is_err(), "only table fields nest");
}

#[test]
fn a_lone_value_keeps_its_type_and_a_joined_one_is_text() {
    let four = |name: &str| (name == "cpus").then(|| Value::from(4));
    let mut random = fastrand::Rng::with_seed(1);
    let mut counter = Counter::new(0, 1);
    let mut dynamic = Dynamic {
        captures: &[],
        random: &mut random,
        counter: &mut counter,
        user: 0,
        rows: Rows::default(),
    };
    let fix = |text: &str| resolve(text).unwrap().fix(&four).unwrap();
    assert_eq!(fix("${cpus}").value(&mut dynamic), Ok(Value::from(4)));
    assert_eq!(fix("${cpus}x").value(&mut dynamic), Ok(Value::from("4x")));
    assert_eq!(
        resolve("${cpus}").unwrap().fix(&|_| None),
        Err("cpus".to_owned())
    );
}

#[test]
fn counters_of_threads_never_meet_and_uuids_differ() {
    let mut seen = HashSet::new();
    for thread in 0..3 {
        let mut counter = Counter::new(thread, 3);
        for _ in 0..100 {
            assert!(seen.insert(counter.next()));
        }
    }
    assert_eq!(seen.len(), 300);
    let mut random = fastrand::Rng::with_seed(5);
    let uuids: HashSet<String> = (0..1000).map(|_| uuid(&mut random)).collect();
    assert_eq!(uuids.len(), 1000);
    for uuid in uuids {
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!(["8", "9", "a", "b"].contains(&&uuid[19..20]), "{uuid}");
    }
}

#[test]
fn random_includes_both_ends() {
    let pieces = resolve("${random(1, 3)}").unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut counter = Counter::new(0, 1);
    let mut dynamic = Dynamic {
        captures: &[],
        random: &mut random,
        counter: &mut counter,
        user: 0,
        rows: Rows::default(),
    };
    let seen: HashSet<String> = (0..200)
        .map(|_| pieces.value(&mut dynamic).unwrap().to_string())
        .collect();
    assert_eq!(seen.len(), 3);
}
