//! proofs.jsonl: what was planned and what was read, one line for each look.
//!
//! **Invariant**: whole lines are appended and synced; no secret's text is in any. A reader
//! passes over a last line that a crash tore.

use std::io::Write;
use std::path::{Path, PathBuf};

use fs_err::{File, OpenOptions};
use serde_json::Value;

use super::ResultsError;
use super::manifest::redact_strings;
use crate::secret::Secrets;

/// An open proofs.jsonl.
#[derive(Debug)]
pub struct ProofsJsonl {
    file: File,
    path: PathBuf,
}

impl ProofsJsonl {
    /// Opens the file for appending, or creates it.
    ///
    /// **Errors**: the file system's.
    pub fn open(path: &Path) -> Result<Self, ResultsError> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(ResultsError::file("open", path))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Appends lines in one write, secrets taken out, and waits until they are on the disk.
    ///
    /// **Errors**: the file system's.
    pub fn append(&mut self, lines: &[Value], secrets: &Secrets) -> Result<(), ResultsError> {
        let mut text = String::new();
        for line in lines {
            text.push_str(&redact_strings(line, secrets).to_string());
            text.push('\n');
        }
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data())
            .map_err(ResultsError::file("append to", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_appended_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proofs.jsonl");
        let mut secrets = Secrets::new([1; 16]);
        secrets.hide("hunter2-hunter2");
        for trial in 1..3 {
            let mut file = ProofsJsonl::open(&path).unwrap();
            let line = json!({"trial": trial, "found": "a hunter2-hunter2"});
            file.append(&[line.clone(), line], &secrets).unwrap();
        }
        let text = fs_err::read_to_string(&path).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        let trials: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["trial"].clone())
            .collect();
        assert_eq!(trials, [1, 1, 2, 2]);
    }
}
