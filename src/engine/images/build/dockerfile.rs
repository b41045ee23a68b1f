//! What must be known of a Dockerfile before it is built.
//!
//! The images it starts from, so that they are pulled with our credentials and
//! count for the content key; and what only `BuildKit` can do, so that it is
//! refused by name and not half-understood. The engine does the parsing that
//! counts. Pure.

use indexmap::{IndexMap, IndexSet};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Dockerfile {
    /// Images that steps start from or copy from, in order.
    pub(super) bases: IndexSet<String>,
    /// Whether a name could not be told, so that `bases` may lack it.
    pub(super) has_unknown_base: bool,
    /// What only `BuildKit` can do, by name and line.
    pub(super) beyond: Vec<String>,
}

/// Flags of steps that only `BuildKit` knows.
const BUILDKIT_FLAGS: [(&str, &[&str]); 3] = [
    ("RUN", &["--mount", "--network", "--security", "--device"]),
    ("COPY", &["--chmod", "--link", "--parents", "--exclude"]),
    (
        "ADD",
        &[
            "--chmod",
            "--link",
            "--checksum",
            "--keep-git-dir",
            "--exclude",
        ],
    ),
];

/// Reads a Dockerfile with the arguments that the build is given.
pub(super) fn read(text: &str, given: &IndexMap<String, String>) -> Dockerfile {
    let mut found = Dockerfile::default();
    // Arguments before the first FROM are the only ones that FROM sees.
    let mut known: IndexMap<String, String> = IndexMap::new();
    let mut stages: Vec<String> = Vec::new();
    for (line, step) in steps(text) {
        let mut words = step.split_whitespace();
        let instruction = words.next().unwrap_or_default().to_ascii_uppercase();
        let words: Vec<&str> = words.collect();
        match instruction.as_str() {
            "ARG" if stages.is_empty() => {
                for word in &words {
                    let (name, default) = word.split_once('=').unwrap_or((word, ""));
                    let default = expand(unquoted(default), &known).unwrap_or_default();
                    let value = given.get(name).cloned().unwrap_or(default);
                    known.insert(name.to_owned(), value);
                }
            }
            "FROM" => {
                let mut names = words.iter().filter(|word| !word.starts_with("--"));
                let base = names.next().copied().unwrap_or_default();
                let is_named = names
                    .next()
                    .is_some_and(|word| word.eq_ignore_ascii_case("as"));
                found.add(base, &known, &stages);
                let name = names.next().filter(|_| is_named);
                stages.push(name.map_or_else(String::new, |name| name.to_ascii_lowercase()));
            }
            "COPY" | "RUN" | "ADD" => {
                found.check(line, &instruction, &words);
                let from = words.iter().find_map(|word| word.strip_prefix("--from="));
                if let (Some(from), "COPY") = (from, instruction.as_str()) {
                    // A number is a stage.
                    if from.parse::<usize>().is_err() {
                        found.add(from, &IndexMap::new(), &stages);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

impl Dockerfile {
    fn add(&mut self, name: &str, known: &IndexMap<String, String>, stages: &[String]) {
        match expand(unquoted(name), known) {
            Some(name) if name == "scratch" => {}
            Some(name) if name.is_empty() => self.has_unknown_base = true,
            Some(name) if stages.contains(&name.to_ascii_lowercase()) => {}
            Some(name) => {
                self.bases.insert(name);
            }
            None => self.has_unknown_base = true,
        }
    }

    fn check(&mut self, line: usize, instruction: &str, words: &[&str]) {
        let flags = BUILDKIT_FLAGS
            .iter()
            .find(|(name, _)| *name == instruction)
            .map_or(&[][..], |(_, flags)| flags);
        for word in words.iter().take_while(|word| word.starts_with("--")) {
            let flag = word.split('=').next().unwrap_or(word);
            if flags.contains(&flag) {
                self.beyond
                    .push(format!("line {line}: `{instruction} {flag}`"));
            }
        }
        if let Some(word) = words.iter().find(|word| is_heredoc(word)) {
            self.beyond
                .push(format!("line {line}: the heredoc `{instruction} {word}`"));
        }
    }
}

/// `<<NAME`, `<<-"NAME"`, with a number of a file descriptor before it.
fn is_heredoc(word: &str) -> bool {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.strip_prefix("<<").is_some_and(|rest| {
        let name = rest.strip_prefix('-').unwrap_or(rest);
        !name.is_empty() && !name.contains('<')
    })
}

fn unquoted(text: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inside) = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote)) {
            return inside;
        }
    }
    text
}

/// Steps with the line they begin at: comments out, continued lines joined.
fn steps(text: &str) -> Vec<(usize, String)> {
    let escape = escape_of(text);
    let mut steps: Vec<(usize, String)> = Vec::new();
    let mut is_continued = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (part, goes_on) = match line.strip_suffix(escape) {
            Some(part) => (part, true),
            None => (line, false),
        };
        if is_continued && let Some((_, step)) = steps.last_mut() {
            step.push(' ');
            step.push_str(part);
        } else {
            steps.push((index + 1, part.to_owned()));
        }
        is_continued = goes_on;
    }
    steps
}

/// The character that continues a line: a directive in the comments at the top may change it.
fn escape_of(text: &str) -> char {
    text.lines()
        .map(str::trim)
        .map_while(|line| line.strip_prefix('#'))
        .filter_map(|comment| comment.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("escape"))
        .and_then(|(_, value)| value.trim().chars().next())
        .unwrap_or('\\')
}

/// Puts arguments in; `None` where a form or a name is not known.
fn expand(text: &str, known: &IndexMap<String, String>) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(inside) = rest.strip_prefix('{') {
            let end = inside.find('}')?;
            let (name, fallback) = match inside[..end].split_once(":-") {
                Some((name, fallback)) => (name, Some(fallback)),
                None => (&inside[..end], None),
            };
            let value = known
                .get(name)
                .filter(|value| fallback.is_none() || !value.is_empty());
            out.push_str(value.map(String::as_str).or(fallback)?);
            rest = &inside[end + 1..];
        } else {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            out.push_str(known.get(&rest[..end])?);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(text: &str, given: &[(&str, &str)]) -> Vec<String> {
        let given = given
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let found = read(text, &given);
        assert!(!found.has_unknown_base, "{text}");
        found.bases.into_iter().collect()
    }

    #[test]
    fn the_images_a_build_starts_from_are_found() {
        let text = "# syntax=docker/dockerfile:1\nARG V=17\nARG FULL=\"eclipse-temurin:${V}\"\n\
            from --platform=linux/amd64 $FULL-jdk as Build\nARG V=9\nRUN make \\\n  # half-way\n  all\n\
            FROM scratch\nCOPY --from=build /a /b\nCOPY --from=0 /a /c\nCOPY --from=busybox:1 /bin/sh /sh\n\
            FROM build\nFROM ${NONE:-alpine:3}\n";
        assert_eq!(
            bases(text, &[]),
            ["eclipse-temurin:17-jdk", "busybox:1", "alpine:3"]
        );
        assert_eq!(bases(text, &[("V", "21")])[0], "eclipse-temurin:21-jdk");
        assert_eq!(bases("FROM \"a:1\"", &[]), ["a:1"]);
        assert_eq!(bases("# escape=`\nFROM `\n a:1\n", &[]), ["a:1"]);
    }

    #[test]
    fn a_name_that_cannot_be_told_is_said_to_be_unknown() {
        for text in [
            "FROM $X",
            "FROM ${X}",
            "FROM ${X:+y}",
            "FROM ${X",
            "FROM a\nCOPY --from=$X a b",
        ] {
            assert!(read(text, &IndexMap::new()).has_unknown_base, "{text}");
        }
    }

    #[test]
    fn what_only_buildkit_can_do_is_named_with_its_line() {
        let text = "FROM a\nRUN --mount=type=cache,target=/x make\nRUN <<EOF\nmake\nEOF\n\
            COPY --chmod=755 a b\nCOPY --chown=1 a b\nADD --checksum=x a b\n\
            COPY <<-'X' /x\nX\nRUN cat <<< word && x=$((1<<2)) && cat < file\n";
        assert_eq!(
            read(text, &IndexMap::new()).beyond,
            [
                "line 2: `RUN --mount`",
                "line 3: the heredoc `RUN <<EOF`",
                "line 6: `COPY --chmod`",
                "line 8: `ADD --checksum`",
                "line 9: the heredoc `COPY <<-'X'`",
            ]
        );
    }
}
