//! YAML text to a tree that remembers where everything stood.
//!
//! The events come from saphyr-parser; anchors, merge keys, tags and duplicate
//! keys are handled here. **Invariants**: the tree is at most [`DEEPEST_NODE`]
//! levels deep and at most [`MOST_NODES`] nodes large after every alias is
//! followed, so that walking it is always bounded; aliases share their node.
//! Nothing here knows Compose. Read next: [`super::merge`].

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag as YamlTag};

use super::template::{Malformed, Template};
use super::typing;
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

/// A file a node came from.
#[derive(Debug)]
pub(super) struct Source {
    /// The file as the user named it.
    pub(super) path: PathBuf,
    /// Folder that its relative paths start from; absolute.
    pub(super) folder: PathBuf,
}

/// Where a node starts.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    source: Arc<Source>,
    line: u32,
    column: u32,
}

impl Mark {
    /// A place in a file. **Units**: line and column from 1.
    pub(super) fn new(source: &Arc<Source>, line: usize, column: usize) -> Self {
        Self {
            source: Arc::clone(source),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    /// The place as problems carry it.
    pub(super) fn location(&self) -> Location {
        Location {
            file: self.source.path.clone(),
            line: self.line as usize,
            column: self.column as usize,
        }
    }

    /// The place some characters further on the same line.
    fn moved(&self, characters: usize) -> Location {
        let mut location = self.location();
        location.column += characters;
        location
    }

    /// Folder that relative paths written here start from.
    pub(super) fn folder(&self) -> &Path {
        &self.source.folder
    }
}

/// A tag that says how a value meets those of earlier files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tag {
    /// Merge as usual.
    #[default]
    None,
    /// `!reset`: take the key away.
    Reset,
    /// `!override`: replace instead of merging.
    Override,
}

/// A value and where it stood.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Where it starts.
    pub(super) mark: Mark,
    /// How it is merged.
    pub(super) tag: Tag,
    /// What it is.
    pub(super) value: Value,
    /// Whether a text below has variables.
    pub(super) has_template: bool,
    /// Whether a node below carries a tag.
    pub(super) has_tag: bool,
    /// Nodes below and itself, aliases followed.
    weight: u64,
    /// Levels below.
    height: usize,
}

/// What a node is.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A text, number, truth value or null.
    Scalar(Scalar),
    /// A sequence.
    List(Vec<Arc<Node>>),
    /// A mapping, in file order.
    Map(Map),
}

/// Keys and values in file order.
pub(super) type Map = IndexMap<Arc<str>, Entry>;

/// The value of a key and where the key stood.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Where the key starts.
    pub(super) mark: Mark,
    /// The value.
    pub(super) node: Arc<Node>,
}

/// A scalar before typing.
#[derive(Debug, Clone)]
pub(super) struct Scalar {
    /// The text, with escapes resolved.
    pub(super) text: Arc<str>,
    /// Whether it was written without quotes, and so may be a number or null.
    pub(super) is_plain: bool,
    /// The parsed variables, where the text has a dollar.
    pub(super) template: Option<Arc<Result<Template, Malformed>>>,
    /// Characters between the mark and the text where both are on one line.
    pub(super) quote: Option<usize>,
}

impl Scalar {
    fn new(text: Arc<str>, is_plain: bool, quote: Option<usize>) -> Self {
        let template = text.contains('$').then(|| Arc::new(Template::parse(&text)));
        Self {
            text,
            is_plain,
            template,
            quote,
        }
    }
}

impl Node {
    /// A scalar whose text is final: no variables are looked for in it.
    pub(super) fn literal(mark: Mark, text: &str, is_plain: bool) -> Arc<Self> {
        let scalar = Scalar {
            text: text.into(),
            is_plain,
            template: None,
            quote: None,
        };
        Arc::new(Self::assembled(mark, Tag::None, Value::Scalar(scalar)))
    }

    /// A scalar whose text may have variables.
    pub(super) fn scalar(mark: Mark, text: &str, is_plain: bool) -> Arc<Self> {
        let scalar = Scalar::new(text.into(), is_plain, None);
        Arc::new(Self::assembled(mark, Tag::None, Value::Scalar(scalar)))
    }

    /// A list.
    pub(super) fn list(mark: Mark, items: Vec<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self::assembled(mark, Tag::None, Value::List(items)))
    }

    /// A map.
    pub(super) fn map(mark: Mark, entries: Map) -> Arc<Self> {
        Arc::new(Self::assembled(mark, Tag::None, Value::Map(entries)))
    }

    /// A node with its sums over the nodes below.
    pub(super) fn assembled(mark: Mark, tag: Tag, value: Value) -> Self {
        let mut node = Self {
            mark,
            tag,
            has_template: false,
            has_tag: tag != Tag::None,
            weight: 1,
            height: 0,
            value,
        };
        let mut add = |below: &Self| {
            node.has_template |= below.has_template;
            node.has_tag |= below.has_tag;
            node.weight = node.weight.saturating_add(below.weight);
            node.height = node.height.max(below.height + 1);
        };
        match &node.value {
            Value::Scalar(scalar) => node.has_template = scalar.template.is_some(),
            Value::List(items) => items.iter().for_each(|item| add(item)),
            Value::Map(entries) => entries.values().for_each(|entry| add(&entry.node)),
        }
        node
    }

    /// Whether it is null.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar)
            if scalar.is_plain && scalar.template.is_none() && typing::is_null(&scalar.text))
    }

    /// The entries, where it is a map.
    pub(super) fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Scalar(_) | Value::List(_) => None,
        }
    }

    /// The value of a key, where it is a map that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Arc<Self>> {
        Some(&self.as_map()?.get(key)?.node)
    }

    /// The text, where it is a scalar that is not null.
    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) if !self.is_null() => Some(&scalar.text),
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(_) if self.is_null() => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The place of a character inside a scalar, as near as the file form allows.
    pub(super) fn place_in_text(&self, offset: usize) -> Location {
        match &self.value {
            Value::Scalar(Scalar {
                quote: Some(quote), ..
            }) => self.mark.moved(quote + offset),
            Value::Scalar(_) | Value::List(_) | Value::Map(_) => self.mark.location(),
        }
    }
}

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
