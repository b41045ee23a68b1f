//! Whether two trees are alike: a digest over every entry.
//!
//! Path, kind, permission bits, owner and size of each entry count, the content
//! of files, and where links lead. Times do not: reading may change them. Content
//! is read in pieces by several threads at once, so that one large file is as fast as
//! many small ones.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::TreeError;
use super::walk::{Entry, Kind, at_root, walk, walk_up_to};

/// What is read in one go by one thread; a file's digest is that of its pieces' digests.
const PIECE_BYTES: u64 = 8 << 20;
/// Read at once; fits into a core's own cache.
const BUFFER_BYTES: usize = 256 << 10;
/// More threads than this only fight for the memory's bandwidth.
const MOST_THREADS: usize = 8;

/// How much of a tree is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Everything but the content of files: of a clone that shares its content with the
    /// original this is known to be the same.
    Shape,
    /// The content of files too.
    Content,
}

/// What a tree is told by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// Over everything but content. **Shape**: 64 hexadecimal digits.
    pub shape: String,
    /// Over content too, where it was read. **Shape**: 64 hexadecimal digits.
    pub content: Option<String>,
    /// Sizes of all files. **Units**: bytes.
    pub bytes: u64,
    /// Room the files take. **Units**: bytes.
    pub allocated: u64,
    /// Files in it.
    pub files: u64,
}

/// Threads that read or write a tree at once.
pub(super) fn n_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST_THREADS))
}

/// Reads a tree.
///
/// **Errors**: an entry that cannot be read, or that changes meanwhile.
pub fn fingerprint(root: &Path, depth: Depth) -> Result<Fingerprint, TreeError> {
    of_entries(root, &walk(root)?, depth)
}

/// Reads a tree with its content; `None` where it has more entries or bytes than that.
///
/// **Errors**: an entry that cannot be read, or that changes meanwhile.
pub fn fingerprint_up_to(
    root: &Path,
    most_entries: usize,
    most_bytes: u64,
) -> Result<Option<Fingerprint>, TreeError> {
    let Some(entries) = walk_up_to(root, most_entries)? else {
        return Ok(None);
    };
    let files = entries.iter().filter(|entry| entry.kind == Kind::File);
    if files.map(|entry| entry.size).sum::<u64>() > most_bytes {
        return Ok(None);
    }
    of_entries(root, &entries, Depth::Content).map(Some)
}

fn of_entries(root: &Path, entries: &[Entry], depth: Depth) -> Result<Fingerprint, TreeError> {
    let contents = match depth {
        Depth::Shape => None,
        Depth::Content => Some(contents(root, entries)?),
    };
    let mut shape = Sha256::new();
    let mut content = Sha256::new();
    for (index, entry) in entries.iter().enumerate() {
        let line = line_of(root, entry)?;
        shape.update(&line);
        content.update(&line);
        if let Some(digest) = contents.as_ref().and_then(|all| all[index]) {
            content.update(digest);
        }
    }
    let files = || entries.iter().filter(|entry| entry.kind == Kind::File);
    Ok(Fingerprint {
        shape: hex(&shape.finalize()),
        content: contents.map(|_| hex(&content.finalize())),
        bytes: files().map(|entry| entry.size).sum(),
        allocated: files().map(|entry| entry.allocated).sum(),
        files: files().count() as u64,
    })
}

/// Everything of an entry but its content; lengths go before texts, so that no two trees read alike.
fn line_of(root: &Path, entry: &Entry) -> Result<Vec<u8>, TreeError> {
    let mut line = Vec::new();
    let mut text = |bytes: &[u8]| {
        line.extend((bytes.len() as u64).to_le_bytes());
        line.extend(bytes);
    };
    text(entry.path.as_os_str().as_bytes());
    if entry.kind == Kind::Link {
        let at = at_root(root, &entry.path);
        let target = fs_err::read_link(&at).map_err(TreeError::io("read", &at))?;
        text(target.as_os_str().as_bytes());
    }
    // The bits of a link mean nothing, and not every file system keeps them.
    let mode = if entry.kind == Kind::Link {
        0
    } else {
        entry.mode
    };
    line.push(entry.kind as u8);
    for number in [mode, entry.uid, entry.gid] {
        line.extend(number.to_le_bytes());
    }
    line.extend(entry.size.to_le_bytes());
    Ok(line)
}

/// The digest of each file's content, by entry.
fn contents(root: &Path, entries: &[Entry]) -> Result<Vec<Option<[u8; 32]>>, TreeError> {
    let mut pieces: Vec<(usize, u64)> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if entry.kind == Kind::File {
            let n_pieces = entry.size.div_ceil(PIECE_BYTES).max(1);
            pieces.extend((0..n_pieces).map(|piece| (index, piece * PIECE_BYTES)));
        }
    }
    let digests = in_parallel(pieces.len(), |piece| {
        let (index, from) = pieces[piece];
        piece_digest(
            &at_root(root, &entries[index].path),
            from,
            entries[index].size,
        )
    })?;
    let mut files: Vec<Option<Sha256>> = vec![None; entries.len()];
    for ((index, _), digest) in pieces.iter().zip(digests) {
        files[*index].get_or_insert_with(Sha256::new).update(digest);
    }
    let finish = |file: Option<Sha256>| file.map(|digest| digest.finalize().into());
    Ok(files.into_iter().map(finish).collect())
}

fn piece_digest(path: &Path, from: u64, size: u64) -> Result<[u8; 32], TreeError> {
    let file = fs_err::File::open(path).map_err(TreeError::io("open", path))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let end = size.min(from + PIECE_BYTES);
    let mut at = from;
    while at < end {
        let wanted = BUFFER_BYTES.min(usize::try_from(end - at).unwrap_or(BUFFER_BYTES));
        let n = file
            .file()
            .read_at(&mut buffer[..wanted], at)
            .map_err(TreeError::io("read", path))?;
        if n == 0 {
            return Err(TreeError::Changing {
                path: path.to_owned(),
            });
        }
        digest.update(&buffer[..n]);
        at += n as u64;
    }
    Ok(digest.finalize().into())
}

/// Does so many pieces of work on several threads; the results in order, or the first failure.
pub(super) fn in_parallel<T: Send>(
    n: usize,
    work: impl Fn(usize) -> Result<T, TreeError> + Sync,
) -> Result<Vec<T>, TreeError> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(n));
    let failure: Mutex<Option<TreeError>> = Mutex::new(None);
    let locked = |error: PoisonError<_>| error.into_inner();
    let serve = || {
        let mut own = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= n {
                break;
            }
            match work(index) {
                Ok(result) => own.push((index, result)),
                Err(error) => {
                    // Nobody takes another piece.
                    next.store(n, Ordering::Relaxed);
                    failure
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .get_or_insert(error);
                    break;
                }
            }
        }
        results.lock().unwrap_or_else(locked).extend(own);
    };
    std::thread::scope(|scope| {
        for _ in 1..n_threads().min(n) {
            scope.spawn(serve);
        }
        serve();
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
