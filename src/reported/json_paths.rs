//! Several paths found in one pass over a JSON text.
//!
//! What no path leads to is read over and never built: a large document costs little
//! more than its bytes. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::JsonPath;
use super::json_path::Step;

/// Paths that are looked for together.
///
/// **Invariant**: finds what [`JsonPath::find`] finds in the parsed document.
#[derive(Debug, Clone, Default)]
pub struct JsonPaths(Vec<JsonPath>);

/// Paths that still lead on, one bit each.
type Active = u64;
/// More paths than bits are looked for in groups.
const GROUP: usize = Active::BITS as usize;

impl JsonPaths {
    /// Paths to look for; the same one may be there more than once.
    pub fn new(paths: Vec<JsonPath>) -> Self {
        Self(paths)
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What each path leads to, in their order.
    ///
    /// **Errors**: a text that is not one JSON document.
    pub fn find(&self, text: &[u8]) -> Result<Vec<Option<Value>>, serde_json::Error> {
        let mut found = vec![None; self.0.len()];
        for (paths, found) in self.0.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            let active = Active::MAX >> (GROUP - paths.len());
            let mut reader = serde_json::Deserializer::from_slice(text);
            Search {
                paths,
                found,
                active,
                depth: 0,
            }
            .deserialize(&mut reader)?;
            reader.end()?;
        }
        Ok(found)
    }
}

/// Looks at one value of the document.
struct Search<'s> {
    paths: &'s [JsonPath],
    found: &'s mut [Option<Value>],
    active: Active,
    depth: usize,
}

impl Search<'_> {
    fn each(&self) -> impl Iterator<Item = (usize, &JsonPath)> {
        let paths = self.paths.iter().enumerate();
        paths.filter(|(index, _)| self.active >> index & 1 == 1)
    }

    /// The paths whose next step is this one.
    fn along(&self, is_it: impl Fn(&Step) -> bool) -> Active {
        let leads = |path: &JsonPath| path.steps().get(self.depth).is_some_and(&is_it);
        let leading = self.each().filter(|(_, path)| leads(path));
        leading.fold(0, |active, (index, _)| active | 1 << index)
    }

    fn step_into(&mut self, active: Active) -> Search<'_> {
        Search {
            paths: self.paths,
            found: self.found,
            active,
            depth: self.depth + 1,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        if self.active == 0 {
            return reader.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        let ends_here = self
            .each()
            .any(|(_, path)| path.steps().len() == self.depth);
        if !ends_here {
            return reader.deserialize_any(self);
        }
        let value = <Value as serde::Deserialize>::deserialize(reader)?;
        let (paths, active, depth) = (self.paths, self.active, self.depth);
        for (index, path) in paths.iter().enumerate() {
            if active >> index & 1 == 1 {
                self.found[index] = path.find_from(depth, &value).cloned();
            }
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(active) = map.next_key_seed(Key(&self))? {
            // Of a name that is there twice the last counts, as in a parsed document.
            for (index, found) in self.found.iter_mut().enumerate() {
                if active >> index & 1 == 1 {
                    *found = None;
                }
            }
            map.next_value_seed(self.step_into(active))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let active = self.along(|step| matches!(step, Step::Index(wanted) if *wanted == index));
            if items.next_element_seed(self.step_into(active))?.is_none() {
                break;
            }
        }
        Ok(())
    }

    // What is no container leads nowhere.
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A name of an object: which paths it leads along.
struct Key<'k, 's>(&'k Search<'s>);

impl<'de> DeserializeSeed<'de> for Key<'_, '_> {
    type Value = Active;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Active, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_, '_> {
    type Value = Active;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Active, E> {
        let is_it = |step: &Step| matches!(step, Step::Name(wanted) if wanted == name);
        Ok(self.0.along(is_it))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn found(paths: &[&str], text: &str) -> Result<Vec<Option<Value>>, String> {
        let paths = paths.iter().map(|path| JsonPath::parse(path).unwrap());
        JsonPaths::new(paths.collect())
            .find(text.as_bytes())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_path_finds_its_value_and_one_may_lie_within_another() {
        let text = r#"{"a": {"b": [{"c": 7}, 8]}, "n": null, "a\u0062": 1, "n": {"n": 2}}"#;
        let paths = [
            "$.a.b[0].c",
            "$.a.b",
            "$.n",
            "$.n.n",
            "$.x",
            "$.ab",
            "$.a.b[0].c.d",
            "$.a.b[0].c",
        ];
        let expected = [
            Some(json!(7)),
            Some(json!([{"c": 7}, 8])),
            Some(json!({"n": 2})),
            Some(json!(2)),
            None,
            Some(json!(1)),
            None,
            Some(json!(7)),
        ];
        assert_eq!(found(&paths, text).unwrap(), expected);
        assert_eq!(found(&["$"], "[1]").unwrap(), [Some(json!([1]))]);
        // A second object of the same name takes the place of the first, with all in it.
        assert_eq!(
            found(&["$.a.b"], r#"{"a": {"b": 1}, "a": 2}"#).unwrap(),
            [None]
        );
    }

    #[test]
    fn what_is_no_document_is_an_error_even_behind_what_was_found() {
        for text in [
            "",
            "{",
            r#"{"a": 1"#,
            r#"{"a": 1} x"#,
            r#"{"a": 1, "b": tru}"#,
            "ok",
        ] {
            assert!(found(&["$.a"], text).is_err(), "{text}");
        }
        assert_eq!(found(&["$.a"], "7").unwrap(), [None]);
    }

    #[test]
    fn more_paths_than_bits_are_all_found() {
        let fields: Vec<String> = (0..150).map(|n| format!("\"f{n}\": {n}")).collect();
        let text = format!("{{{}}}", fields.join(","));
        let paths: Vec<String> = (0..150).map(|n| format!("$.f{n}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let values: Vec<Option<Value>> = (0..150).map(|n| Some(json!(n))).collect();
        assert_eq!(found(&paths, &text).unwrap(), values);
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[abc]", inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        #[test]
        fn it_finds_what_the_parsed_document_has(
            document in document(),
            paths in proptest::collection::vec("(\\.[abc]|\\[[0-3]\\]){0,4}", 0..6),
        ) {
            let paths: Vec<JsonPath> = paths.iter().map(|path| JsonPath::parse(&format!("${path}")).unwrap()).collect();
            let expected: Vec<Option<Value>> = paths.iter().map(|path| path.find(&document).cloned()).collect();
            let text = document.to_string();
            prop_assert_eq!(JsonPaths::new(paths).find(text.as_bytes()).unwrap(), expected);
        }
    }
}
