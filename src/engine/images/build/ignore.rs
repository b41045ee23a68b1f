//! What `.dockerignore` leaves out, by Docker's own rules.
//!
//! **Source**: moby/patternmatcher and the Docker CLI's archive of a context. A
//! pattern counts for a path and for everything below it; the last pattern that
//! counts decides; `!` takes back in; a folder that is left out is entered only
//! where a `!` pattern begins with its own path. Pure.

/// The patterns of one file, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ignore {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    is_exception: bool,
    text: String,
    parts: Parts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Parts {
    /// `**x`: every path that ends so.
    Suffix(String),
    Tokens(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Char(char),
    /// `?`: any character but the slash.
    AnyChar,
    /// `*`: any characters but the slash.
    AnyName,
    /// `**/`: nothing, or any folders.
    AnyFolders,
    /// `**` at the end: anything.
    Rest,
    /// `[a-c]`.
    Class {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// Which patterns count for a folder, and so for what is below it.
#[derive(Debug, Clone, Default)]
pub(super) struct Counting(Vec<bool>);

impl Ignore {
    /// Reads the file's text.
    ///
    /// **Errors**: a pattern that is none, by its text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut patterns = Vec::new();
        for line in text.lines() {
            // A comment begins in the first column; anything else is trimmed first.
            if line.starts_with('#') {
                continue;
            }
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let (is_exception, rest) = match line.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, line),
            };
            if rest.is_empty() {
                return Err("`!` without a pattern".to_owned());
            }
            let text = clean(rest);
            let parts = parse(&text).ok_or_else(|| format!("`{line}` is not a pattern"))?;
            patterns.push(Pattern {
                is_exception,
                text,
                parts,
            });
        }
        Ok(Self { patterns })
    }

    /// Takes a path in whatever the patterns say, as a last line `!path` would.
    pub(super) fn keep(&mut self, path: &str) {
        let chars = path.chars().map(Token::Char).collect();
        self.patterns.push(Pattern {
            is_exception: true,
            text: path.to_owned(),
            parts: Parts::Tokens(chars),
        });
    }

    /// Whether a path is left out, and which patterns count for what is below it.
    ///
    /// `path` is relative and has `/` between its parts; `above` is the answer
    /// for its folder.
    pub(super) fn leaves_out(&self, path: &str, above: &Counting) -> (bool, Counting) {
        let mut is_out = false;
        let mut counting = Vec::with_capacity(self.patterns.len());
        for (index, pattern) in self.patterns.iter().enumerate() {
            let counts =
                above.0.get(index).copied().unwrap_or(false) || pattern.parts.matches(path);
            if counts {
                is_out = !pattern.is_exception;
            }
            counting.push(counts);
        }
        (is_out, Counting(counting))
    }

    /// Whether a folder that is left out must still be entered.
    pub(super) fn enters(&self, folder: &str) -> bool {
        let below = format!("{folder}/");
        self.patterns
            .iter()
            .any(|pattern| pattern.is_exception && format!("{}/", pattern.text).starts_with(&below))
    }
}

/// The shortest form of a path, by its text alone; a leading slash means nothing here.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            // Above the root there is nothing.
            ".." if path.starts_with('/') => {}
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        ".".to_owned()
    } else {
        parts.join("/")
    }
}

fn parse(pattern: &str) -> Option<Parts> {
    let mut tokens = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' if chars.peek() == Some(&'*') => {
                chars.next();
                if chars.peek() == Some(&'/') {
                    chars.next();
                }
                if chars.peek().is_none() {
                    Token::Rest
                } else {
                    Token::AnyFolders
                }
            }
            '*' => Token::AnyName,
            '?' => Token::AnyChar,
            '[' => class(&mut chars)?,
            // A backslash at the end is no escape of anything.
            '\\' => Token::Char(chars.next()?),
            c => Token::Char(c),
        });
    }
    // `**x` without further signs is a plain end, not the name of a file: so it is in Docker.
    let is_suffix = tokens.first() == Some(&Token::AnyFolders)
        && tokens[1..]
            .iter()
            .all(|token| matches!(token, Token::Char(_)))
        && !pattern.contains('\\');
    Some(if is_suffix {
        Parts::Suffix(pattern[2..].to_owned())
    } else {
        Parts::Tokens(tokens)
    })
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Token> {
    let is_negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        let low = match chars.next()? {
            ']' if !ranges.is_empty() => break,
            ']' | '-' => return None,
            '\\' => chars.next()?,
            c => c,
        };
        let high = if chars.next_if_eq(&'-').is_some() {
            match chars.next()? {
                ']' | '-' => return None,
                '\\' => chars.next()?,
                c => c,
            }
        } else {
            low
        };
        ranges.push((low, high));
    }
    Some(Token::Class { is_negated, ranges })
}

impl Parts {
    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Suffix(suffix) => {
                path.ends_with(suffix.as_str()) || suffix.strip_prefix('/') == Some(path)
            }
            Self::Tokens(tokens) => {
                let path: Vec<char> = path.chars().collect();
                matches(tokens, &path)
            }
        }
    }
}

/// Whether the tokens take the whole path.
///
/// One pass over the path for each token, with the set of places where the
/// tokens so far may end: the work is their product, whatever the pattern.
fn matches(tokens: &[Token], path: &[char]) -> bool {
    let n = path.len();
    let mut ends = vec![false; n + 1];
    ends[0] = true;
    for token in tokens {
        let mut next = vec![false; n + 1];
        match token {
            Token::AnyName => {
                let mut reaches = false;
                for at in 0..=n {
                    reaches = ends[at] || (reaches && path[at - 1] != '/');
                    next[at] = reaches;
                }
            }
            Token::Rest => {
                let mut reaches = false;
                for at in 0..=n {
                    reaches |= ends[at];
                    next[at] = reaches;
                }
            }
            Token::AnyFolders => {
                let mut reaches = false;
                for at in 0..=n {
                    next[at] = ends[at] || (reaches && path[at - 1] == '/');
                    reaches |= ends[at];
                }
            }
            one => {
                for at in 0..n {
                    next[at + 1] = ends[at] && one.takes(path[at]);
                }
            }
        }
        ends = next;
    }
    ends[n]
}

impl Token {
    /// Whether a token of one character takes this one.
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Char(own) => *own == c,
            Self::AnyChar => c != '/',
            Self::Class { is_negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *is_negated
            }
            Self::AnyName | Self::AnyFolders | Self::Rest => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a path is left out, its folders asked first as a walk would.
    fn is_out(patterns: &str, path: &str) -> bool {
        let ignore = Ignore::parse(patterns).unwrap();
        let mut counting = Counting::default();
        let mut is_out = false;
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            (is_out, counting) = ignore.leaves_out(&path[..end], &counting);
        }
        is_out
    }

    #[test]
    fn patterns_mean_what_they_mean_to_docker() {
        for (patterns, path, expected) in [
            ("*.log", "a.log", true),
            ("*.log", "b/a.log", false),
            ("**/*.log", "b/c/a.log", true),
            ("**/*.log", "a.log", true),
            ("b", "b/c/a.log", true),
            ("/b", "b", true),
            ("./b/", "b/x", true),
            ("b/../c", "c", true),
            ("b/*", "b/x", true),
            ("b/*", "b/x/y", true),
            ("b/**", "b/x/y", true),
            ("b/**", "b", false),
            ("**/temp", "a/temp/x", true),
            ("**/temp", "a/mytemp", false),
            ("**temp", "a/mytemp", true),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z", true),
            ("a/**/z", "ab/z", false),
            ("**", "x/y", true),
            ("te?t", "test", true),
            ("te?t", "te/t", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            (r"\*", "*", true),
            (r"\*", "x", false),
            ("a.c", "abc", false),
            ("*\n!keep", "keep", false),
            ("*\n!keep", "other", true),
            ("*\n!keep/", "keep/x", false),
            ("*\n!a/b", "a/c", true),
            ("*\n!a/b", "a/b/d", false),
            ("!keep\n*", "keep", true),
            ("#a", "#a", false),
            (" #a", "#a", true),
            ("a   ", "a", true),
            ("\u{feff}a", "a", true),
            ("! keep", "keep", false),
            (
                "*.md\n!README*.md\nREADME-secret.md",
                "README-secret.md",
                true,
            ),
            ("*.md\n!README*.md\nREADME-secret.md", "README.md", false),
            ("", "a", false),
        ] {
            assert_eq!(is_out(patterns, path), expected, "{patterns:?} {path}");
        }
    }

    #[test]
    fn a_folder_that_is_left_out_is_entered_only_where_an_exception_begins_with_it() {
        let ignore = Ignore::parse("*\n!src/lib\n!**/deep").unwrap();
        assert!(ignore.enters("src"));
        assert!(ignore.enters("src/lib"));
        assert!(!ignore.enters("other"));
        assert!(!ignore.enters("sr"));
    }

    #[test]
    fn what_must_be_sent_is_kept_last() {
        let mut ignore = Ignore::parse("*").unwrap();
        ignore.keep("docker/File");
        assert!(ignore.enters("docker"));
        let (_, above) = ignore.leaves_out("docker", &Counting::default());
        assert!(!ignore.leaves_out("docker/File", &above).0);
        assert!(ignore.leaves_out("docker/Other", &above).0);
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        for (text, said) in [
            ("!", "`!` without a pattern"),
            ("a\n[", "`[` is not a pattern"),
            ("[]a]", "`[]a]` is not a pattern"),
            ("a\\", "`a\\` is not a pattern"),
        ] {
            assert_eq!(Ignore::parse(text).unwrap_err(), said, "{text}");
        }
    }

    #[test]
    fn a_pattern_made_to_take_long_does_not() {
        let pattern = "*a".repeat(200);
        let path = format!("{}b", "a".repeat(2000));
        assert!(!is_out(&pattern, &path));
    }
}
