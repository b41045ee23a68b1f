//! A CSV file that grows: created with its header, opened again after a crash, synced at every step.
//!
//! **Invariant**: what `append` returned `Ok` for is on the disk, whole. A line
//! that a crash tore is cut off before anything is written after it.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fs_err::{File, OpenOptions};

use super::ResultsError;

/// An open CSV file and its header.
#[derive(Debug)]
pub(super) struct AppendFile {
    file: File,
    path: PathBuf,
    /// Bytes that are whole and on the disk.
    whole_bytes: u64,
    torn_line: Option<String>,
}

impl AppendFile {
    /// Opens the file, or creates it with this header.
    pub(super) fn open(path: &Path, header: &[String]) -> Result<Self, ResultsError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(ResultsError::file("open", path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(ResultsError::file("read", path))?;
        let whole_bytes = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let torn = &bytes[whole_bytes..];
        let torn_line = (!torn.is_empty()).then(|| String::from_utf8_lossy(torn).into_owned());
        if torn_line.is_some() {
            file.set_len(whole_bytes as u64)
                .map_err(ResultsError::file("cut the torn last line off", path))?;
        }
        file.seek(SeekFrom::Start(whole_bytes as u64))
            .map_err(ResultsError::file("open", path))?;
        let mut this = Self {
            file,
            path: path.to_owned(),
            whole_bytes: whole_bytes as u64,
            torn_line,
        };
        if whole_bytes == 0 {
            this.start(header)?;
        } else {
            this.check_header(&bytes[..whole_bytes], header)?;
        }
        Ok(this)
    }

    /// Writes the header of a file without one.
    fn start(&mut self, header: &[String]) -> Result<(), ResultsError> {
        if let Err(error) = self.append(&[header.to_vec()]) {
            // A file without its header would pass for a run's. The append's own
            // error is the one to tell; what cannot be removed stays.
            let _ = fs_err::remove_file(&self.path);
            return Err(error);
        }
        sync_folder(&self.path)
    }

    /// What a crash left of a last line; it has been cut off.
    pub(super) fn torn_line(&self) -> Option<&str> {
        self.torn_line.as_deref()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends records in one write and waits until they are on the disk.
    pub(super) fn append(&mut self, records: &[Vec<String>]) -> Result<(), ResultsError> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for record in records {
            writer
                .write_record(record)
                .map_err(|error| ResultsError::file("append to", &self.path)(error.into()))?;
        }
        let bytes = writer
            .into_inner()
            .map_err(|error| ResultsError::file("append to", &self.path)(error.into_error()))?;
        let written = self
            .file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => {
                self.whole_bytes += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A full disk may have taken half of it: what was appended goes again,
                // so that a later attempt does not write behind a torn line. Where that
                // fails too, the next opening cuts the torn line off.
                let _ = self
                    .file
                    .set_len(self.whole_bytes)
                    .and_then(|()| self.file.seek(SeekFrom::Start(self.whole_bytes)));
                Err(ResultsError::file("append to", &self.path)(error))
            }
        }
    }

    fn check_header(&self, bytes: &[u8], expected: &[String]) -> Result<(), ResultsError> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(bytes);
        let found: Vec<String> = reader
            .records()
            .next()
            .and_then(Result::ok)
            .map(|record| record.iter().map(str::to_owned).collect())
            .unwrap_or_default();
        let columns = found.len().max(expected.len());
        for column in 0..columns {
            let (expected, found) = (expected.get(column), found.get(column));
            if expected != found {
                return Err(ResultsError::HeaderDiffers {
                    path: self.path.clone(),
                    column: column + 1,
                    expected: expected.cloned().unwrap_or_default(),
                    found: found.cloned().unwrap_or_default(),
                });
            }
        }
        Ok(())
    }
}

/// Makes a new or renamed file's name survive a crash: the folder is synced too.
pub(super) fn sync_folder(file: &Path) -> Result<(), ResultsError> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(ResultsError::file("sync", folder))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_a_full_disk_did_not_take_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trials.csv");
        // Like a full disk, `/dev/full` opens and takes no byte; it reads as endless
        // zeros, so the file is only appended to.
        fs_err::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut file = AppendFile {
            file,
            path: path.clone(),
            whole_bytes: 0,
            torn_line: None,
        };
        let error = file.start(&["cell_id".to_owned()]).unwrap_err();
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.starts_with("free space"))
        );
        assert!(!path.is_symlink());
    }
}
