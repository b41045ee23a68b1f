//! YAML text to a tree that remembers where everything stood.
//!
//! The events come from saphyr-parser; anchors, merge keys, tags and duplicate
//! keys are handled here. **Invariants**: the tree is at most [`DEEPEST_NODE`]
//! levels deep and at most [`MOST_NODES`] nodes large after every alias is
//! followed, so that walking it is always bounded; aliases share their node.
//! Nothing here knows Compose. Read next: [`super::merge`].

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use indexmap::IndexMap;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag as YamlTag};

use super::node::{Entry, Map, Mark, Node, Scalar, Source, Tag, Value};
use crate::problem::{Location, Problem};

/// Deepest nesting accepted; Compose files need about eight.
const DEEPEST_NODE: usize = 64;

/// Most nodes after aliases are followed. The largest real file known has about
/// 5,000; a file of nested aliases reaches billions.
const MOST_NODES: u64 = 200_000;

/// Most closing brackets that are moved; each costs one more reading of the text.
const MOST_MOVED_LINES: usize = 300;

/// How far they are moved: beyond any indentation. **Units**: characters.
const MOVED_BY: usize = 256;

/// Largest file read. **Units**: bytes.
const LARGEST_FILE_BYTES: usize = 4 << 20;

/// Reads every document of a text.
///
/// **Errors**: all problems that do not hide others; a syntax error ends the reading.
pub(super) fn parse(source: &Arc<Source>, text: &str) -> Result<Vec<Arc<Node>>, Vec<Problem>> {
    if text.len() > LARGEST_FILE_BYTES {
        return Err(vec![Problem::new(
            Location::start_of(&source.path),
            format!("the file is larger than {LARGEST_FILE_BYTES} bytes"),
        )]);
    }
    let mut text = Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut moved = BTreeSet::new();
    loop {
        match parse_once(source, &text, &moved) {
            Err(Stop::ClosingBracket(line)) if moved.len() < MOST_MOVED_LINES => {
                text = Cow::Owned(indented_line(&text, line));
                moved.insert(line);
            }
            Err(Stop::ClosingBracket(line)) => {
                let place = Mark::new(source, line, 1).location();
                return Err(vec![Problem::new(
                    place,
                    "not valid YAML: invalid indentation",
                )]);
            }
            Err(Stop::Problems(problems)) => return Err(problems),
            Ok(documents) => return Ok(documents),
        }
    }
}

/// Why one reading of a text ended early.
enum Stop {
    /// The parser refused a closing bracket at the start of this line for its
    /// indentation. Other YAML readers, Compose's among them, accept it anywhere;
    /// saphyr-parser does not (its pull request 108). The line is moved to the
    /// right and the text is read again.
    ClosingBracket(usize),
    Problems(Vec<Problem>),
}

fn parse_once(
    source: &Arc<Source>,
    text: &str,
    moved: &BTreeSet<usize>,
) -> Result<Vec<Arc<Node>>, Stop> {
    let mut builder = Builder {
        source,
        moved,
        frames: Vec::new(),
        anchors: IndexMap::new(),
        documents: Vec::new(),
        problems: Vec::new(),
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let outcome = match event {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                let line = error.marker().line();
                if starts_with_closing_bracket(text, line) && !moved.contains(&line) {
                    return Err(Stop::ClosingBracket(line));
                }
                let place = builder.mark(error.marker()).location();
                Err(Problem::new(
                    place,
                    format!("not valid YAML: {}", error.info()),
                ))
            }
        };
        if let Err(fatal) = outcome {
            builder.problems.push(fatal);
            return Err(Stop::Problems(builder.problems));
        }
    }
    if builder.problems.is_empty() {
        Ok(builder.documents)
    } else {
        Err(Stop::Problems(builder.problems))
    }
}

fn starts_with_closing_bracket(text: &str, line: usize) -> bool {
    let line = text.lines().nth(line.saturating_sub(1));
    line.is_some_and(|line| line.trim_start().starts_with([']', '}']))
}

fn indented_line(text: &str, line: usize) -> String {
    let mut indented = String::with_capacity(text.len() + MOVED_BY);
    for (index, content) in text.split_inclusive('\n').enumerate() {
        if index + 1 == line {
            indented.extend(std::iter::repeat_n(' ', MOVED_BY));
        }
        indented.push_str(content);
    }
    indented
}

/// A list or map that is not complete yet.
struct Frame {
    mark: Mark,
    tag: Tag,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Arc<Node>>),
    Map {
        entries: Map,
        merged: Vec<Arc<Node>>,
        key: Option<Key>,
    },
}

struct Key {
    text: Arc<str>,
    mark: Mark,
    is_merge: bool,
}

struct Builder<'a> {
    source: &'a Arc<Source>,
    moved: &'a BTreeSet<usize>,
    frames: Vec<Frame>,
    anchors: IndexMap<usize, Arc<Node>>,
    documents: Vec<Arc<Node>>,
    problems: Vec<Problem>,
}

impl Builder<'_> {
    /// The place of a marker in the text as the user wrote it.
    fn mark(&self, marker: &Marker) -> Mark {
        let moved_by = if self.moved.contains(&marker.line()) {
            MOVED_BY
        } else {
            0
        };
        let column = marker.col().saturating_sub(moved_by) + 1;
        Mark::new(self.source, marker.line().max(1), column)
    }

    /// Takes one event; the error is one after which reading makes no sense.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let mark = self.mark(&span.start);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text_tag = tag.as_deref().is_some_and(is_string_tag);
                let is_plain = style == ScalarStyle::Plain && !is_text_tag;
                let scalar =
                    Scalar::new(text.as_ref().into(), is_plain, quote_of(style, &text, span));
                let tag = self.tag(tag.as_deref(), &mark);
                let node = Node::assembled(mark, tag, Value::Scalar(scalar));
                self.complete(Arc::new(node), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(mark, anchor, tag.as_deref(), Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                let content = Content::Map {
                    entries: Map::new(),
                    merged: Vec::new(),
                    key: None,
                };
                self.open(mark, anchor, tag.as_deref(), content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let node = Arc::clone(node);
                    self.complete(node, 0)
                }
                None => Err(Problem::new(
                    mark.location(),
                    "an alias inside the value it stands for",
                )),
            },
            Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::StreamStart
            | Event::StreamEnd
            | Event::Nothing => Ok(()),
        }
    }

    fn open(
        &mut self,
        mark: Mark,
        anchor: usize,
        tag: Option<&YamlTag>,
        content: Content,
    ) -> Result<(), Problem> {
        if self.frames.len() >= DEEPEST_NODE {
            return Err(too_deep(&mark));
        }
        let tag = self.tag(tag, &mark);
        self.frames.push(Frame {
            mark,
            tag,
            anchor,
            content,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Problem> {
        let frame = self
            .frames
            .pop()
            .expect("the parser closes only what it opened");
        let value = match frame.content {
            Content::List(items) => Value::List(items),
            Content::Map {
                mut entries,
                merged,
                ..
            } => {
                for source in merged {
                    self.merge_into(&mut entries, &source);
                }
                Value::Map(entries)
            }
        };
        let node = Node::assembled(frame.mark, frame.tag, value);
        self.complete(Arc::new(node), frame.anchor)
    }

    /// Puts a complete node where it belongs.
    fn complete(&mut self, node: Arc<Node>, anchor: usize) -> Result<(), Problem> {
        if node.weight > MOST_NODES {
            return Err(Problem::new(
                node.mark.location(),
                format!("the aliases of this file expand to more than {MOST_NODES} values"),
            ));
        }
        if self.frames.len() + node.height > DEEPEST_NODE {
            return Err(too_deep(&node.mark));
        }
        if anchor > 0 {
            self.anchors.insert(anchor, Arc::clone(&node));
        }
        let Some(frame) = self.frames.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut frame.content {
            Content::List(items) => items.push(node),
            Content::Map {
                entries,
                merged,
                key,
            } => match key.take() {
                None => *key = Some(key_of(&node, &mut self.problems)),
                Some(key) if key.is_merge => merged.push(node),
                Some(key) => insert(entries, key, node, &mut self.problems),
            },
        }
        Ok(())
    }

    /// Adds the entries of a merge key's value; what is there already wins.
    fn merge_into(&mut self, entries: &mut Map, source: &Arc<Node>) {
        match &source.value {
            Value::Map(other) => {
                for (key, entry) in other {
                    if !entries.contains_key(key) {
                        entries.insert(Arc::clone(key), entry.clone());
                    }
                }
            }
            Value::List(items) if items.iter().all(|item| item.as_map().is_some()) => {
                for item in items {
                    self.merge_into(entries, item);
                }
            }
            Value::List(_) | Value::Scalar(_) => self.problems.push(Problem::new(
                source.mark.location(),
                format!(
                    "the merge key `<<` takes a map or a list of maps, not {}",
                    source.kind()
                ),
            )),
        }
    }

    fn tag(&mut self, tag: Option<&YamlTag>, mark: &Mark) -> Tag {
        let Some(tag) = tag else { return Tag::None };
        match (tag.handle.as_str(), tag.suffix.as_str()) {
            ("!", "reset") => Tag::Reset,
            ("!", "override") => Tag::Override,
            ("tag:yaml.org,2002:", "str" | "int" | "float" | "bool" | "null" | "map" | "seq")
            | ("", "!") => Tag::None,
            _ => {
                self.problems.push(Problem::new(
                    mark.location(),
                    format!(
                        "the tag `{}{}` is not supported (allowed: !reset, !override)",
                        tag.handle, tag.suffix
                    ),
                ));
                Tag::None
            }
        }
    }
}

fn too_deep(mark: &Mark) -> Problem {
    Problem::new(
        mark.location(),
        format!("values nest more than {DEEPEST_NODE} levels deep"),
    )
}

fn is_string_tag(tag: &YamlTag) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == "str" || tag.handle.is_empty() && tag.suffix == "!"
}

fn key_of(node: &Arc<Node>, problems: &mut Vec<Problem>) -> Key {
    let mark = node.mark.clone();
    match &node.value {
        Value::Scalar(scalar) => Key {
            is_merge: scalar.is_plain && &*scalar.text == "<<",
            text: Arc::clone(&scalar.text),
            mark,
        },
        Value::List(_) | Value::Map(_) => {
            problems.push(Problem::new(
                mark.location(),
                format!("a key must be a single value, not {}", node.kind()),
            ));
            Key {
                is_merge: false,
                text: "".into(),
                mark,
            }
        }
    }
}

fn insert(entries: &mut Map, key: Key, node: Arc<Node>, problems: &mut Vec<Problem>) {
    if let Some(first) = entries.get(&key.text) {
        let first = first.mark.location();
        problems.push(
            Problem::new(
                key.mark.location(),
                format!("the key `{}` is here twice; first at {first}", key.text),
            )
            .with_hint("keep one of them"),
        );
        return;
    }
    let entry = Entry {
        mark: key.mark,
        node,
    };
    entries.insert(key.text, entry);
}

/// Characters from the mark to the text, where the scalar is as it is on one line.
fn quote_of(style: ScalarStyle, text: &str, span: Span) -> Option<usize> {
    let quote = match style {
        ScalarStyle::Plain => 0,
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => 1,
        ScalarStyle::Literal | ScalarStyle::Folded => return None,
    };
    let is_verbatim = span.start.line() == span.end.line()
        && span.end.index().saturating_sub(span.start.index()) == text.chars().count() + 2 * quote;
    is_verbatim.then_some(quote)
}

#[cfg(test)]
mod tests;
