//! A tree of values that remember where they stood.
//!
//! **Invariant**: a node is made complete and never changed, so that aliases and
//! merged files can share it; its sums over the nodes below hold for ever.
//! Nothing here knows YAML's syntax or Compose. Read next: [`super::yaml`], which
//! makes trees of texts.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;

use super::template::{Malformed, Origin, Template};
use super::typing;
use crate::problem::Location;

/// A file a node came from.
#[derive(Debug)]
pub(super) struct Source {
    /// The file as the user named it.
    pub(super) path: PathBuf,
    /// Folder that its relative paths start from; absolute.
    pub(super) folder: PathBuf,
    /// Whether it is an override inside a matrix, where no tag can be written.
    pub(super) is_inline: bool,
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

    /// Whether it lies in a matrix, where no tag can be written.
    pub(super) fn is_inline(&self) -> bool {
        self.source.is_inline
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
    pub(super) weight: u64,
    /// Levels below.
    pub(super) height: usize,
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
    /// The variables that were put in, once they are.
    pub(super) replaced: Option<Arc<Replaced>>,
}

/// The variables that a text was made with.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    /// Names with a value, and where it came from.
    pub(super) used: Vec<(String, Origin)>,
    /// Names without one, whose default was taken.
    pub(super) defaulted: Vec<String>,
    /// Names without one, which became nothing.
    pub(super) unset: Vec<String>,
    /// Where short secrets stand in the text; taken out once it is made.
    pub(super) short_secrets: Vec<Range<usize>>,
}

impl Scalar {
    /// A scalar whose text may have variables.
    pub(super) fn new(text: Arc<str>, is_plain: bool, quote: Option<usize>) -> Self {
        let template = text.contains('$').then(|| Arc::new(Template::parse(&text)));
        Self {
            text,
            is_plain,
            template,
            quote,
            replaced: None,
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
            replaced: None,
        };
        Arc::new(Self::assembled(mark, Tag::None, Value::Scalar(scalar)))
    }

    /// A part of this scalar, with what is known of the whole.
    pub(super) fn part(&self, text: &str) -> Arc<Self> {
        let scalar = Scalar {
            text: text.into(),
            is_plain: false,
            template: None,
            quote: None,
            replaced: self.replaced().cloned(),
        };
        let value = Value::Scalar(scalar);
        Arc::new(Self::assembled(self.mark.clone(), Tag::None, value))
    }

    /// The variables that were put into it, where it is a text that had some.
    pub(super) fn replaced(&self) -> Option<&Arc<Replaced>> {
        match &self.value {
            Value::Scalar(scalar) => scalar.replaced.as_ref(),
            Value::List(_) | Value::Map(_) => None,
        }
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
