//! A command line to words, as a shell would split it, without running one.
//!
//! Compose splits `command` and `entrypoint` strings this way. Pure.

/// Why a text cannot be split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WordsError {
    /// A quote is open at the end.
    #[error("the quote {0} is not closed")]
    OpenQuote(char),
    /// Something only a shell understands stands outside quotes.
    #[error("`{0}` outside quotes needs a shell, and none runs here")]
    Operator(char),
}

/// Splits at blanks; quotes and backslashes keep blanks together.
///
/// **Errors**: an open quote, and `; & | < > (` outside quotes. Compose drops
/// everything from such a character on without a word, so the container would
/// run something nobody wrote.
pub(super) fn split(text: &str) -> Result<Vec<String>, WordsError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some('\'') => break,
                        Some(inner) => word.push(inner),
                        None => return Err(WordsError::OpenQuote('\'')),
                    }
                }
            }
            '"' => read_double_quoted(&mut characters, word.get_or_insert_default())?,
            '\\' => match characters.next() {
                // A backslash at the end of a line joins it with the next one.
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            ';' | '&' | '|' | '<' | '>' | '(' => return Err(WordsError::Operator(c)),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

fn read_double_quoted(
    characters: &mut impl Iterator<Item = char>,
    word: &mut String,
) -> Result<(), WordsError> {
    let open = || WordsError::OpenQuote('"');
    loop {
        match characters.next().ok_or_else(open)? {
            '"' => return Ok(()),
            '\\' => match characters.next().ok_or_else(open)? {
                '\n' => {}
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            inner => word.push(inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_split_as_a_shell_splits_them() {
        for (text, words) in [
            ("", vec![]),
            ("  \n ", vec![]),
            ("a b\tc\nd", vec!["a", "b", "c", "d"]),
            ("sh -c 'a && b'", vec!["sh", "-c", "a && b"]),
            (r#"sh -c "a \"b\" $c""#, vec!["sh", "-c", r#"a "b" $c"#]),
            (r"a\ b c", vec!["a b", "c"]),
            ("a \\\n b", vec!["a", "b"]),
            ("x='' y=\"\"", vec!["x=", "y="]),
            ("'' a", vec!["", "a"]),
            ("-c k='h=p u=r'", vec!["-c", "k=h=p u=r"]),
            ("a #b", vec!["a", "#b"]),
            ("/data{1...4} *", vec!["/data{1...4}", "*"]),
            (r#""a\nb""#, vec![r"a\nb"]),
        ] {
            let expected: Vec<String> = words.into_iter().map(str::to_owned).collect();
            assert_eq!(split(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_needs_a_shell_is_refused() {
        assert_eq!(split("a && b"), Err(WordsError::Operator('&')));
        assert_eq!(split("a > b"), Err(WordsError::Operator('>')));
        assert_eq!(split("a $(b)"), Err(WordsError::Operator('(')));
        assert_eq!(split("a 'b"), Err(WordsError::OpenQuote('\'')));
        assert_eq!(split("a \"b\\"), Err(WordsError::OpenQuote('"')));
    }
}
