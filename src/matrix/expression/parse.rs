//! Text to a checked tree of our own, with rhai's parser in between.
//!
//! rhai stops at the first syntax error; names, functions and argument counts
//! are checked here, so that all of those in one expression are told at once.
//! Nothing is evaluated.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use rhai::{
    Dynamic, Engine, Expr, FnCallExpr, LexError, ParseError, ParseErrorType, Position, Stmt,
};

use super::{Binary, Expression, Function, Kind, Node, Unary, Value};
use crate::problem::{Location, Problem, nearest};
use crate::toml_file::Content;

/// Longest expression. **Units**: characters.
///
/// Ten times the longest rule anybody has shown us. The tree has fewer nodes,
/// which bounds the time of an evaluation.
const MAX_CHARACTERS: usize = 2_000;

/// Deepest nesting of brackets, and longest row of operators; bounds recursion,
/// the parser's and ours.
const MAX_DEPTH: usize = 64;

/// Largest whole number that every whole number up to it can be told from.
///
/// **Source**: IEEE 754 binary64 has 53 bits of significand.
const MAX_EXACT: i64 = 1 << 53;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let mut engine = Engine::new_raw();
    engine.set_max_expr_depths(MAX_DEPTH);
    engine.set_max_string_size(MAX_CHARACTERS);
    // `if` is a statement in rhai and a function here. It is only parsed, so
    // the function behind it is never called.
    engine.disable_symbol("if");
    engine
        .register_custom_syntax(
            ["if", "(", "$expr$", ",", "$expr$", ",", "$expr$", ")"],
            false,
            |_, _| Ok(Dynamic::UNIT),
        )
        .expect("the syntax is well formed");
    engine
});

/// Which names an expression may use.
#[derive(Debug, Clone, Copy)]
pub(in crate::matrix) struct Known<'a> {
    /// All names of the matrix; an index into it is the name's slot.
    pub(in crate::matrix) names: &'a [String],
    /// How many of them, from the first, have a value here.
    pub(in crate::matrix) visible: usize,
    /// Whether `tier_max(name)` may be asked for.
    pub(in crate::matrix) is_load: bool,
}

/// Whether rhai reads the word as a name, and we give it no meaning of our own.
pub(in crate::matrix) fn is_usable_name(word: &str) -> bool {
    let is_identifier = word
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_ours = ["if", "tier_max", "tier_capacity"].contains(&word)
        || Function::ALL.iter().any(|(name, _)| *name == word);
    is_identifier
        && !is_ours
        && ENGINE.compile_expression(word).is_ok_and(|tree| {
            matches!(tree.statements(), [Stmt::Expr(expression)]
                if matches!(&**expression, Expr::Variable(variable, ..) if variable.1 == word))
        })
}

impl Expression {
    /// Reads an expression and checks every name in it.
    pub(in crate::matrix) fn parse(
        text: &str,
        content: &Content<'_, '_>,
        known: Known<'_>,
    ) -> Result<Self, Vec<Problem>> {
        let start = content.at(text, 0);
        if text.chars().count() > MAX_CHARACTERS {
            let message =
                format!("the expression is too long (allowed: {MAX_CHARACTERS} characters)");
            return Err(vec![Problem::new(start, message)]);
        }
        if text.trim().is_empty() {
            let message = "the expression is empty (allowed: such as `round(cpus * web)`)";
            return Err(vec![Problem::new(start, message)]);
        }
        let mut lowering = Lowering {
            text,
            content,
            known,
            slots: BTreeSet::new(),
            tier_max_slots: BTreeSet::new(),
            problems: Vec::new(),
        };
        let tree = ENGINE
            .compile_expression(text)
            .map_err(|error| vec![lowering.syntax_problem(&error)])?;
        let root = match tree.statements() {
            [Stmt::Expr(expression)] => lowering.node(expression),
            [Stmt::FnCall(call, at)] => lowering.call(call, *at),
            _ => lowering.refuse(Position::NONE, "a statement"),
        };
        match root {
            Some(root) if lowering.problems.is_empty() => Ok(Self {
                text: text.to_owned(),
                location: start,
                root,
                slots: lowering.slots,
                tier_max_slots: lowering.tier_max_slots,
            }),
            _ => Err(lowering.problems),
        }
    }
}

/// Turns rhai's tree into ours. `None` means that a problem was noted.
struct Lowering<'a, 's, 't> {
    text: &'a str,
    content: &'a Content<'s, 't>,
    known: Known<'a>,
    slots: BTreeSet<usize>,
    tier_max_slots: BTreeSet<usize>,
    problems: Vec<Problem>,
}

impl Lowering<'_, '_, '_> {
    /// The place of rhai's position, which counts characters of the content.
    fn at(&self, position: Position) -> Location {
        self.content.at(self.text, self.character(position))
    }

    fn character(&self, position: Position) -> usize {
        let (Some(line), column) = (position.line(), position.position().unwrap_or(1)) else {
            return 0;
        };
        let before: usize = self
            .text
            .split_inclusive('\n')
            .take(line - 1)
            .map(|line| line.chars().count())
            .sum();
        before + column.saturating_sub(1)
    }

    fn problem(&mut self, position: Position, message: impl Into<String>) {
        let place = self.at(position);
        self.problems.push(Problem::new(place, message));
    }

    fn hinted(&mut self, position: Position, message: String, hint: String) {
        let place = self.at(position);
        self.problems
            .push(Problem::new(place, message).with_hint(hint));
    }

    fn refuse(&mut self, position: Position, what: &str) -> Option<Node> {
        self.problem(
            position,
            format!(
                "{what} cannot be used in an expression (allowed: numbers, \"texts\", true, false, names, operators, functions)"
            ),
        );
        None
    }

    fn made(&self, position: Position, kind: Kind) -> Node {
        Node {
            at: self.at(position),
            kind,
        }
    }

    fn node(&mut self, expression: &Expr) -> Option<Node> {
        let at = expression.position();
        match expression {
            Expr::IntegerConstant(number, _) => {
                if number.unsigned_abs() > MAX_EXACT.unsigned_abs() {
                    self.problem(
                        at,
                        format!("the number {number} is too large to compute with exactly (allowed: up to {MAX_EXACT})"),
                    );
                    return None;
                }
                Some(self.made(at, Kind::Constant(Value::Number(*number as f64))))
            }
            Expr::FloatConstant(number, _) => {
                if !number.is_finite() {
                    return self.refuse(at, "a number without end");
                }
                Some(self.made(at, Kind::Constant(Value::Number(**number))))
            }
            Expr::BoolConstant(truth, _) => {
                Some(self.made(at, Kind::Constant(Value::Boolean(*truth))))
            }
            Expr::StringConstant(text, _) => {
                Some(self.made(at, Kind::Constant(Value::Text(text.as_str().into()))))
            }
            Expr::CharConstant(letter, _) => {
                let text = letter.to_string();
                Some(self.made(at, Kind::Constant(Value::Text(text.into()))))
            }
            Expr::Variable(variable, ..) => self.name(&variable.1, at),
            Expr::And(parts, _) => {
                let parts = self.all_of(parts.iter());
                Some(self.made(at, Kind::All(parts?)))
            }
            Expr::Or(parts, _) => {
                let parts = self.all_of(parts.iter());
                Some(self.made(at, Kind::Any(parts?)))
            }
            Expr::FnCall(call, _) => self.call(call, at),
            Expr::Custom(custom, _) => {
                let parts = self.all_of(&custom.inputs)?;
                match <[Node; 3]>::try_from(parts) {
                    Ok(parts) => Some(self.made(at, Kind::If(Box::new(parts)))),
                    Err(_) => self.refuse(at, "this `if`"),
                }
            }
            Expr::InterpolatedString(..) => self.refuse(at, "a template between backticks"),
            Expr::Stmt(..) => self.refuse(at, "a statement"),
            Expr::Coalesce(..) => self.refuse(at, "`??`"),
            Expr::Unit(..) => self.refuse(at, "`()`"),
            _ => self.refuse(at, "this"),
        }
    }

    /// All parts or none, after problems of each have been noted.
    fn all_of<'e>(&mut self, parts: impl IntoIterator<Item = &'e Expr>) -> Option<Vec<Node>> {
        let lowered: Vec<Option<Node>> = parts.into_iter().map(|part| self.node(part)).collect();
        lowered.into_iter().collect()
    }

    /// The slot of a name, or a problem that lists what there is.
    fn slot(&mut self, name: &str, at: Position) -> Option<usize> {
        let slot = self.known.names.iter().position(|known| known == name);
        let visible = &self.known.names[..self.known.visible];
        match slot {
            Some(slot) if slot < self.known.visible => Some(slot),
            Some(_) => {
                self.hinted(
                    at,
                    format!("`{name}` has no value yet"),
                    "derived values are computed in file order: move its line up".to_owned(),
                );
                None
            }
            None => {
                let hint = nearest(name, visible.iter().map(String::as_str)).map_or_else(
                    || format!("the names here are {}", listed(visible)),
                    |near| format!("did you mean `{near}`?"),
                );
                self.hinted(at, format!("unknown name `{name}`"), hint);
                None
            }
        }
    }

    fn name(&mut self, name: &str, at: Position) -> Option<Node> {
        if name == "tier_capacity" {
            self.problem(
                at,
                "`tier_capacity` is not yet supported (allowed: a number or an expression over axes, derived values and tier_max)",
            );
            return None;
        }
        if name == "tier_max" || Function::ALL.iter().any(|(known, _)| *known == name) {
            self.problem(at, format!("`{name}` is a function: write `{name}(...)`"));
            return None;
        }
        let slot = self.slot(name, at)?;
        self.slots.insert(slot);
        Some(self.made(at, Kind::Name(slot)))
    }

    fn call(&mut self, call: &FnCallExpr, at: Position) -> Option<Node> {
        let name = call.name.as_str();
        if call.op_token.is_some() {
            return self.operator(name, &call.args, at);
        }
        if call.capture_parent_scope {
            return self.refuse(at, "`!` behind a name");
        }
        match name {
            "tier_max" => return self.tier_max(&call.args, at),
            "tier_capacity" => return self.name(name, at),
            // rhai turns `x in y` into a call of this function.
            "contains" => return self.refuse(at, "`in`"),
            _ => {}
        }
        let Some((_, function)) = Function::ALL.iter().find(|(known, _)| *known == name) else {
            let functions = || Function::ALL.iter().map(|(known, _)| *known).chain(["if"]);
            let hint = nearest(name, functions()).map_or_else(
                || {
                    format!(
                        "the functions are {}",
                        functions().collect::<Vec<_>>().join(", ")
                    )
                },
                |near| format!("did you mean `{near}`?"),
            );
            self.hinted(at, format!("unknown function `{name}`"), hint);
            let _ = self.all_of(&call.args);
            return None;
        };
        let allowed = match function {
            Function::Min | Function::Max => 2..=usize::MAX,
            _ => 1..=1,
        };
        let arguments = self.all_of(&call.args);
        if !allowed.contains(&call.args.len()) {
            let wanted = if *allowed.start() == 1 {
                "one value"
            } else {
                "two values or more"
            };
            self.problem(
                at,
                format!("`{name}` takes {wanted}, not {}", call.args.len()),
            );
            return None;
        }
        Some(self.made(at, Kind::Call(*function, arguments?)))
    }

    fn tier_max(&mut self, arguments: &[Expr], at: Position) -> Option<Node> {
        if !self.known.is_load {
            self.problem(
                at,
                "`tier_max` can be used in a phase's load only: a derived value or constraint belongs to one cell",
            );
            return None;
        }
        let [Expr::Variable(variable, ..)] = arguments else {
            self.problem(
                at,
                "`tier_max` takes one name, such as `tier_max(web_threads)`",
            );
            return None;
        };
        let slot = self.slot(&variable.1, arguments[0].position())?;
        self.tier_max_slots.insert(slot);
        Some(self.made(at, Kind::TierMax(slot)))
    }

    fn operator(&mut self, name: &str, arguments: &[Expr], at: Position) -> Option<Node> {
        if let [argument] = arguments {
            let operator = match name {
                "-" => Unary::Minus,
                "+" => Unary::Plus,
                "!" => Unary::Not,
                _ => return self.refuse(at, &format!("`{name}`")),
            };
            let argument = self.node(argument)?;
            return Some(self.made(at, Kind::Unary(operator, Box::new(argument))));
        }
        let operator = match name {
            "+" => Binary::Add,
            "-" => Binary::Subtract,
            "*" => Binary::Multiply,
            "/" => Binary::Divide,
            "%" => Binary::Remainder,
            "**" => Binary::Power,
            "==" => Binary::Equal,
            "!=" => Binary::NotEqual,
            "<" => Binary::Less,
            "<=" => Binary::LessOrEqual,
            ">" => Binary::Greater,
            ">=" => Binary::GreaterOrEqual,
            "&" => return self.refuse(at, "`&` (write `&&`)"),
            "|" => return self.refuse(at, "`|` (write `||`)"),
            _ => return self.refuse(at, &format!("`{name}`")),
        };
        let sides = self.all_of(arguments);
        if operator == Binary::Power && arguments.first().is_some_and(is_negated) {
            // Mathematics reads -2 ** 2 as -4, this parser as 4.
            self.problem(
                at,
                "a minus sign before `**` can be read in two ways: write `0 - x ** y`, or a product",
            );
            return None;
        }
        let Ok([left, right]) = <[Node; 2]>::try_from(sides?) else {
            return self.refuse(at, &format!("`{name}`"));
        };
        Some(self.made(at, Kind::Binary(operator, Box::new((left, right)))))
    }

    /// rhai's syntax error in our words.
    fn syntax_problem(&self, error: &ParseError) -> Problem {
        let place = self.at(error.1);
        match &*error.0 {
            ParseErrorType::UnexpectedEOF => Problem::new(place, "the expression ends too early"),
            ParseErrorType::ExprTooDeep => Problem::new(
                place,
                format!(
                    "the expression is nested too deeply (allowed: {MAX_DEPTH} brackets in brackets, or operators in a row)"
                ),
            ),
            ParseErrorType::MissingToken(_, wanted) if wanted.contains("'if'") => Problem::new(
                place,
                "`if` takes a condition and two values: `if(cpus > 2, 10, 5)`",
            ),
            ParseErrorType::MissingToken(token, _) => {
                Problem::new(place, format!("`{token}` is missing here"))
            }
            ParseErrorType::Reserved(word)
            | ParseErrorType::UnknownOperator(word)
            | ParseErrorType::BadInput(LexError::UnexpectedInput(word)) => unexpected(place, word),
            ParseErrorType::BadInput(LexError::MalformedChar(_)) => Problem::new(
                place,
                "a text in an expression stands between double quotes",
            )
            .with_hint("in TOML: mode = 'kind == \"fast\"'"),
            other => Problem::new(place, format!("the expression cannot be read: {other}")),
        }
    }
}

fn unexpected(place: Location, word: &str) -> Problem {
    let hint = match word {
        "=" => Some("to compare, write `==`"),
        "and" => Some("write `&&`"),
        "or" => Some("write `||`"),
        "not" => Some("write `!`"),
        "$" => Some("names stand alone here: write `cpus`, not `${cpus}`"),
        "?" => Some("write `if(condition, a, b)`"),
        "." => Some("a number has digits on both sides of its point"),
        _ => None,
    };
    // rhai advises users of other languages in whole sentences.
    let word = word
        .strip_prefix('\'')
        .and_then(|rest| rest.split('\'').next())
        .unwrap_or(word);
    let problem = Problem::new(place, format!("`{word}` cannot be used here"));
    match hint {
        Some(hint) => problem.with_hint(hint),
        None => problem,
    }
}

fn is_negated(expression: &Expr) -> bool {
    match expression {
        Expr::IntegerConstant(number, _) => *number < 0,
        Expr::FloatConstant(number, _) => **number < 0.0,
        Expr::FnCall(call, _) => {
            call.op_token.is_some() && call.args.len() == 1 && call.name == "-"
        }
        _ => false,
    }
}

fn listed(names: &[String]) -> String {
    // A matrix may have hundreds of names; the first dozen show the idea.
    const SHOWN: usize = 12;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>();
    let rest = names.len().saturating_sub(SHOWN);
    match (shown.is_empty(), rest) {
        (true, _) => "none".to_owned(),
        (false, 0) => shown.join(", "),
        (false, rest) => format!("{} and {rest} more", shown.join(", ")),
    }
}
