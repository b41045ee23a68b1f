//! run.json: everything about a run that could explain a number.
//!
//! **Invariant**: the file is whole or absent, and no secret's text is in any
//! string of it. What goes into it is the caller's; this module writes it.

use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::ResultsError;
use super::append::sync_folder;
use crate::secret::Secrets;

/// Writes the manifest: redacted, to a temporary name, synced, then renamed.
///
/// **Errors**: the file system's.
pub fn write_manifest(
    path: &Path,
    manifest: &Value,
    secrets: &Secrets,
) -> Result<(), ResultsError> {
    let text = format!("{:#}\n", redact_strings(manifest, secrets));
    write_whole(path, text.as_bytes())
}

/// The same value with every secret taken out of its strings and keys.
///
/// Keys may be values too: an image's name is the key of its facts.
#[must_use]
pub fn redact_strings(value: &Value, secrets: &Secrets) -> Value {
    match value {
        Value::String(text) => Value::String(secrets.redact(text)),
        Value::Array(items) => items
            .iter()
            .map(|item| redact_strings(item, secrets))
            .collect(),
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| (secrets.redact(key), redact_strings(value, secrets)))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Replaces a file whole: a reader sees the old one or the new one.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    let unfinished = path.with_file_name(name);
    let mut file =
        fs_err::File::create(&unfinished).map_err(ResultsError::file("create", &unfinished))?;
    let placed = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(ResultsError::file("write", &unfinished))
        .and_then(|()| {
            fs_err::rename(&unfinished, path).map_err(ResultsError::file("put in place", path))
        });
    if let Err(error) = placed {
        // The write's own error is the one to tell; what cannot be removed stays.
        let _ = fs_err::remove_file(&unfinished);
        return Err(error);
    }
    sync_folder(path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_secret_reaches_the_manifest_and_the_keys_keep_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let mut secrets = Secrets::new([3; 16]);
        secrets.hide("s3cret-\"quoted\"");
        let manifest = json!({
            "z": ["postgres://u:s3cret-\"quoted\"@db", 5],
            "a": {"PASSWORD": "s3cret-\"quoted\""},
            "images": {"registry/s3cret-\"quoted\"/app:1": 1},
        });
        write_manifest(&path, &manifest, &secrets).unwrap();
        let text = fs_err::read_to_string(&path).unwrap();
        assert!(!text.contains("s3cret"));
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["a"]["PASSWORD"], secrets.digest("s3cret-\"quoted\""));
        assert!(text.find("\"z\"") < text.find("\"a\""));
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_could_not_be_put_in_place_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        // A folder of that name, not empty, cannot be replaced by a file.
        let path = folder.path().join("run.json");
        fs_err::create_dir_all(path.join("in the way")).unwrap();
        let error = write_whole(&path, b"{}").unwrap_err();
        assert!(error.to_string().starts_with("put in place"), "{error}");
        let left: Vec<_> = fs_err::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["run.json"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_nothing_behind_and_says_what_to_do() {
        // `/dev/full` takes no byte; a temporary file that leads there is a full disk.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        fs_err::os::unix::fs::symlink("/dev/full", folder.path().join("run.json.unfinished"))
            .unwrap();
        let error = write_whole(&path, b"{}").unwrap_err();
        let hint = error.hint().unwrap();
        assert!(
            hint.contains(&folder.path().display().to_string()),
            "{hint}"
        );
        assert!(hint.contains("--out"), "{hint}");
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 0);
    }
}
