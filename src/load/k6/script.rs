//! A script as k6 reads it: its options, and all files it is made of.
//!
//! `k6 archive` runs a script's first lines as `k6 run` would and tells both. What
//! a script is may depend on its environment, so it is read once for every
//! different set of values. The files are kept: a run compares them with what is
//! on disk before every trial.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use indexmap::IndexMap;
use serde_json::Value;

use super::binary::Binary;
use super::error::K6Error;
use super::names::EnvNames;
use super::options::Options;
use super::process::{TempFolder, clean_environment};

/// Stands for the target's URL in values of the environment.
pub const TARGET: &str = "${target}";

/// Names that the target's URL is given by.
const TARGET_NAMES: [&str; 2] = ["TARGET", "BASE_URL"];

/// Largest script with all its files. **Units**: bytes.
const MOST_BYTES: u64 = 256 << 20;

/// A script that k6 takes, for one set of values.
#[derive(Debug, Clone)]
pub struct Script {
    /// The k6 that took it.
    pub binary: Binary,
    /// Where it is.
    pub path: PathBuf,
    /// What its options say.
    pub options: Options,
    /// Its environment, beside the process': the target by name and the cell's values.
    /// [`TARGET`] in a value stands for the target's URL.
    pub environment: IndexMap<String, String>,
    files: Vec<(PathBuf, Vec<u8>)>,
    names: EnvNames,
}

impl Script {
    /// Has k6 read a script with these values; `target` is the URL it is told of.
    ///
    /// **Errors**: k6 refuses it, or says what cannot be read.
    pub fn read(
        binary: &Binary,
        path: &Path,
        values: &IndexMap<String, String>,
        target: &str,
    ) -> Result<Self, K6Error> {
        // As it was named: k6 finds modules from there, also where it is a link.
        let path = std::path::absolute(path).map_err(|source| K6Error::Io {
            what: format!("find the script {}", path.display()),
            source,
        })?;
        let mut environment: IndexMap<String, String> = TARGET_NAMES
            .iter()
            .map(|name| ((*name).to_owned(), TARGET.to_owned()))
            .collect();
        environment.extend(values.clone());
        let folder = TempFolder::new()?;
        let archive = folder.path().join("script.tar");
        let mut command = Command::new(&binary.path);
        command.args(["archive", "--no-color", "--include-system-env-vars"]);
        // Secrets of the process' environment stay out of the file.
        command.args(["--exclude-env-vars", "--log-format", "raw"]);
        command.arg("--config").arg(folder.empty_config()?);
        command.arg("-O").arg(&archive);
        command.args(arguments(&environment, target));
        command.arg(&path);
        clean_environment(&mut command);
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|source| K6Error::Io {
                what: format!("start {}", binary.path.display()),
                source,
            })?;
        if !output.status.success() {
            return Err(K6Error::Refused {
                script: path,
                code: output.status.code().unwrap_or(-1),
                words: words_of(&output.stderr),
            });
        }
        let (metadata, files) = unpack(&archive).map_err(|words| K6Error::Unreadable {
            script: path.clone(),
            words,
        })?;
        let options = Options::of_metadata(&metadata).map_err(|words| K6Error::Unreadable {
            script: path.clone(),
            words,
        })?;
        let mut names = EnvNames::default();
        for (_, bytes) in &files {
            if let Ok(text) = std::str::from_utf8(bytes) {
                names.add(text);
            }
        }
        Ok(Self {
            binary: binary.clone(),
            path,
            options,
            environment,
            files,
            names,
        })
    }

    /// The script and every file it imports or opens, as they were read.
    pub fn files(&self) -> &[(PathBuf, Vec<u8>)] {
        &self.files
    }

    /// Whether it may read an environment variable.
    pub fn reads(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Environment variables it reads by name, each once.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.named()
    }

    /// Whether its options are those of another set of values.
    pub fn is_same_load(&self, other: &Self) -> bool {
        self.options.raw == other.options.raw
    }

    /// The first file that is not on disk as it was read.
    pub(super) fn changed_file(&self) -> Option<&Path> {
        let is_changed = |(path, bytes): &&(PathBuf, Vec<u8>)| {
            path.is_absolute() && fs_err::read(path).ok().as_ref() != Some(bytes)
        };
        let changed = self.files.iter().find(is_changed);
        changed.map(|(path, _)| path.as_path())
    }
}

/// The environment as arguments.
pub(super) fn arguments(environment: &IndexMap<String, String>, target: &str) -> Vec<String> {
    let pairs = environment.iter().flat_map(|(name, value)| {
        let value = value.replace(TARGET, target);
        ["-e".to_owned(), format!("{name}={value}")]
    });
    pairs.collect()
}

/// The last of what k6 wrote, in one line.
fn words_of(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut words = lines.collect::<Vec<_>>().join("; ");
    if words.is_empty() {
        "it said nothing".clone_into(&mut words);
    }
    let start = words.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    words.split_off(start)
}

type Unpacked = (Value, Vec<(PathBuf, Vec<u8>)>);

/// Metadata and files of an archive. The error is what cannot be read.
fn unpack(archive: &Path) -> Result<Unpacked, String> {
    let size = fs_err::metadata(archive).map_err(|error| error.to_string())?;
    if size.len() > MOST_BYTES {
        return Err(format!(
            "with all its files it has {} bytes (allowed: {MOST_BYTES})",
            size.len()
        ));
    }
    let file = fs_err::File::open(archive).map_err(|error| error.to_string())?;
    let mut archive = tar::Archive::new(file);
    let (mut metadata, mut main) = (None, Vec::new());
    let mut files = Vec::new();
    let entries = archive.entries().map_err(|error| error.to_string())?;
    for entry in entries {
        let mut entry = entry.map_err(|error| error.to_string())?;
        let path = entry
            .path()
            .map_err(|error| error.to_string())?
            .into_owned();
        let kind = entry.header().entry_type();
        let mut bytes = Vec::new();
        if kind.is_file() {
            entry
                .read_to_end(&mut bytes)
                .map_err(|error| error.to_string())?;
        }
        if path == Path::new("metadata.json") {
            let value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            metadata = Some(value);
        } else if path == Path::new("data") {
            main = bytes;
        } else if let Ok(inside) = path.strip_prefix("file") {
            if kind.is_file() {
                files.push((Path::new("/").join(inside), bytes));
            } else if kind.is_hard_link() {
                files.push((Path::new("/").join(inside), main.clone()));
            }
        } else if kind.is_file() {
            // `https/host/path`: it came from the network.
            files.push((path, bytes));
        }
    }
    let metadata = metadata.ok_or("the archive has no metadata")?;
    Ok((metadata, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_url_stands_for_its_mark() {
        let environment = IndexMap::from([
            ("A".to_owned(), format!("{TARGET}/x")),
            ("B".to_owned(), "2".to_owned()),
        ]);
        let expected = ["-e", "A=http://app:80/x", "-e", "B=2"];
        assert_eq!(arguments(&environment, "http://app:80"), expected);
    }

    #[test]
    fn words_are_the_last_of_what_was_written() {
        assert_eq!(words_of(b" a\n\n b \n"), "a; b");
        assert_eq!(words_of(b""), "it said nothing");
        let long = "\u{e4}".repeat(2_000);
        assert_eq!(words_of(long.as_bytes()).chars().count(), 601);
    }
}
