//! Where a run's files are, how a run is named and how it is found again.
//!
//! **Invariant**: a run's folder is made once and never written over by another
//! run; every text that goes into `inputs/` and `logs/` has its secrets taken out.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;

use super::ResultsError;
use super::manifest::write_whole;
use crate::secret::Secrets;

/// Runs that an error names when the one asked for is not there.
const NAMED_RUNS: usize = 5;

/// The name of a run: `<name>-<YYYYMMDD>-<HHMMSS>-<4 hex>`, in UTC.
///
/// Characters of `name` that are no letter, digit, `.`, `_` or `-` become `-`.
pub fn run_id(name: &str, time: Timestamp, random: u16) -> String {
    let safe: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                c
            } else {
                '-'
            }
        })
        .take(60)
        .collect();
    // `.` and `..` would be folders, and a leading dash an option.
    let safe = safe.trim_matches(|c| c == '-' || c == '.');
    let safe = if safe.is_empty() { "run" } else { safe };
    format!("{safe}-{}-{random:04x}", time.strftime("%Y%m%d-%H%M%S"))
}

/// The time in a run's id, as `YYYYMMDD-HHMMSS`, which sorts as text.
fn time_in_id(id: &str) -> Option<&str> {
    let (rest, random) = id.rsplit_once('-')?;
    let (rest, clock) = rest.rsplit_once('-')?;
    let (name, date) = rest.rsplit_once('-')?;
    let is_digits =
        |text: &str, n: usize| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
    let is_id = !name.is_empty()
        && is_digits(date, 8)
        && is_digits(clock, 6)
        && random.len() == 4
        && random.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| &id[name.len() + 1..id.len() - 5])
}

/// The two folders that hold all runs: `results/` and `charts/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunsFolder {
    results: PathBuf,
    charts: PathBuf,
}

impl RunsFolder {
    /// `results/` and `charts/` under a folder; neither has to exist yet.
    pub fn under(base: &Path) -> Self {
        Self {
            results: base.join("results"),
            charts: base.join("charts"),
        }
    }

    /// Makes a new run's folder with `inputs/`, `histograms/` and `logs/` in it.
    ///
    /// **Errors**: [`ResultsError::RunExists`], and the file system's.
    pub fn create(&self, run_id: &str) -> Result<RunFolder, ResultsError> {
        let run = self.run(run_id);
        fs_err::create_dir_all(&self.results)
            .map_err(ResultsError::file("create", &self.results))?;
        match fs_err::create_dir(&run.results) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(ResultsError::RunExists { path: run.results });
            }
            made => made.map_err(ResultsError::file("create", &run.results))?,
        }
        for folder in [run.inputs(), run.histograms(), run.logs()] {
            fs_err::create_dir(&folder).map_err(ResultsError::file("create", &folder))?;
        }
        Ok(run)
    }

    /// Finds a run by its id, its folder, or `latest`.
    ///
    /// **Errors**: [`ResultsError::NoRuns`], [`ResultsError::RunUnknown`], and the
    /// file system's.
    pub fn find(&self, run: &str) -> Result<RunFolder, ResultsError> {
        if run == "latest" {
            return self
                .list()?
                .into_iter()
                .next()
                .ok_or_else(|| ResultsError::NoRuns {
                    folder: self.results.clone(),
                });
        }
        let is_one_name = Path::new(run).components().count() == 1;
        if is_one_name && is_run(&self.results.join(run)) {
            return Ok(self.run(run));
        }
        let folder = Path::new(run);
        if is_run(folder) {
            return self.run_at(folder);
        }
        let near = self.list()?.into_iter().take(NAMED_RUNS);
        Err(ResultsError::RunUnknown {
            run: run.to_owned(),
            folder: self.results.clone(),
            near: near.map(|run| run.id).collect(),
        })
    }

    /// All runs, newest first; a `results/` that is not there holds none.
    ///
    /// A run's time is the one in its id, else when its folder last changed.
    ///
    /// **Errors**: the file system's.
    pub fn list(&self) -> Result<Vec<RunFolder>, ResultsError> {
        let failed = || ResultsError::file("list", &self.results);
        let entries = match fs_err::read_dir(&self.results) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed())?,
        };
        let mut runs = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed())?;
            if !is_run(&entry.path()) {
                continue;
            }
            let modified = entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .map_err(failed())?;
            let id = entry.file_name().to_string_lossy().into_owned();
            let time = time_in_id(&id).map_or_else(|| time_text(modified), str::to_owned);
            runs.push((time, modified, self.run(&id)));
        }
        runs.sort_by(|a, b| (&b.0, b.1, &b.2.id).cmp(&(&a.0, a.1, &a.2.id)));
        Ok(runs.into_iter().map(|(_, _, run)| run).collect())
    }

    fn run(&self, id: &str) -> RunFolder {
        RunFolder {
            id: id.to_owned(),
            results: self.results.join(id),
            charts: self.charts.join(id),
        }
    }

    /// A run that lies somewhere else; its charts go beside its own `results/`.
    fn run_at(&self, folder: &Path) -> Result<RunFolder, ResultsError> {
        let folder = fs_err::canonicalize(folder).map_err(ResultsError::file("open", folder))?;
        let id = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let charts = folder
            .parent()
            .filter(|parent| parent.ends_with("results"))
            .and_then(Path::parent)
            .map_or_else(
                || self.charts.join(&id),
                |base| base.join("charts").join(&id),
            );
        Ok(RunFolder {
            id,
            results: folder,
            charts,
        })
    }
}

fn is_run(folder: &Path) -> bool {
    ["trials.csv", "run.json"]
        .iter()
        .any(|file| folder.join(file).is_file())
}

fn time_text(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(
        |_| String::new(),
        |time| time.strftime("%Y%m%d-%H%M%S").to_string(),
    )
}

/// One run's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    id: String,
    results: PathBuf,
    charts: PathBuf,
}

impl RunFolder {
    /// The run's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The folder itself, under `results/`.
    pub fn path(&self) -> &Path {
        &self.results
    }

    /// Where its charts are drawn; made when they are.
    pub fn charts(&self) -> &Path {
        &self.charts
    }

    /// proofs.jsonl.
    pub fn proofs(&self) -> PathBuf {
        self.results.join("proofs.jsonl")
    }

    /// trials.csv.
    pub fn trials_csv(&self) -> PathBuf {
        self.results.join("trials.csv")
    }

    /// operations.csv.
    pub fn operations_csv(&self) -> PathBuf {
        self.results.join("operations.csv")
    }

    /// run.json.
    pub fn manifest(&self) -> PathBuf {
        self.results.join("run.json")
    }

    /// The files as they were read.
    pub fn inputs(&self) -> PathBuf {
        self.results.join("inputs")
    }

    /// Interval logs.
    pub fn histograms(&self) -> PathBuf {
        self.results.join("histograms")
    }

    /// Container logs.
    pub fn logs(&self) -> PathBuf {
        self.results.join("logs")
    }

    /// The interval log of one window, or of one step of it: `0001-1-ladder+2.hlog`.
    pub fn histogram_log(
        &self,
        trial: u32,
        attempt: u32,
        window: &str,
        step: Option<u32>,
    ) -> PathBuf {
        // No name of a window has a plus: it would be encoded.
        let step = step.map_or_else(String::new, |step| format!("+{step}"));
        let name = format!("{trial:04}-{attempt}-{}{step}.hlog", file_name_part(window));
        self.histograms().join(name)
    }

    /// Keeps a file as it was read, with secrets taken out; says where.
    ///
    /// `name` is the path as the user wrote it: `..` becomes `_up`, a root `_root`,
    /// so that the copy stays inside `inputs/`.
    ///
    /// **Errors**: the file system's.
    pub fn write_input(
        &self,
        name: &Path,
        bytes: &[u8],
        secrets: &Secrets,
    ) -> Result<PathBuf, ResultsError> {
        let path = self.inputs().join(inside(name));
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder).map_err(ResultsError::file("create", folder))?;
        }
        write_whole(&path, &redact_bytes(bytes, secrets))?;
        Ok(path)
    }

    /// Keeps a container's log, with secrets taken out; says where.
    ///
    /// **Errors**: the file system's.
    pub fn write_log(
        &self,
        trial: u32,
        attempt: u32,
        service: &str,
        text: &str,
        secrets: &Secrets,
    ) -> Result<PathBuf, ResultsError> {
        let name = format!("{trial:04}-{attempt}-{}.log", file_name_part(service));
        let path = self.logs().join(name);
        write_whole(&path, secrets.redact(text).as_bytes())?;
        Ok(path)
    }
}

/// A name as part of a file's name; different names stay different.
pub(super) fn file_name_part(name: &str) -> String {
    name.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'#') {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect::<Vec<_>>()
        .concat()
}

fn inside(name: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Prefix(_) | Component::RootDir => out.push("_root"),
            Component::ParentDir => out.push("_up"),
            Component::CurDir => {}
            Component::Normal(part) => out.push(part),
        }
    }
    out
}

/// Text is redacted as text; other bytes as if each were a character, which finds every ASCII secret.
fn redact_bytes(bytes: &[u8], secrets: &Secrets) -> Vec<u8> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return secrets.redact(text).into_bytes();
    }
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    secrets
        .redact(&text)
        .chars()
        .map(|c| u8::try_from(c).unwrap_or(b'?'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let mut secrets = Secrets::new([9; 16]);
        secrets.hide("hunter2-hunter2");
        secrets
    }

    #[test]
    fn a_run_id_is_safe_as_a_folder_and_carries_its_time() {
        let time: Timestamp = "2026-03-09T01:02:03Z".parse().unwrap();
        assert_eq!(run_id("demo", time, 0x00af), "demo-20260309-010203-00af");
        assert_eq!(run_id("../a b/ü", time, 1), "a-b-20260309-010203-0001");
        assert_eq!(run_id("..", time, 1), "run-20260309-010203-0001");
        assert_eq!(
            time_in_id("game-of-pools-20260309-010203-00af"),
            Some("20260309-010203")
        );
        assert_eq!(time_in_id("game-of-pools"), None);
        assert_eq!(time_in_id("x-2026030-010203-00af"), None);
    }

    #[test]
    fn a_run_is_never_written_over() {
        let base = tempfile::tempdir().unwrap();
        let runs = RunsFolder::under(base.path());
        runs.create("demo-20260309-010203-00af").unwrap();
        let error = runs.create("demo-20260309-010203-00af").unwrap_err();
        assert!(matches!(error, ResultsError::RunExists { .. }));
    }

    #[test]
    fn latest_is_the_newest_time_in_the_id_and_an_empty_folder_is_no_run() {
        let base = tempfile::tempdir().unwrap();
        let runs = RunsFolder::under(base.path());
        assert!(matches!(
            runs.find("latest"),
            Err(ResultsError::NoRuns { .. })
        ));
        for id in [
            "b-20260309-010203-00af",
            "a-20260310-000000-0001",
            "c-20250101-000000-0001",
        ] {
            let run = runs.create(id).unwrap();
            fs_err::write(run.trials_csv(), "").unwrap();
        }
        runs.create("z-20990101-000000-0001").unwrap();
        assert_eq!(runs.find("latest").unwrap().id(), "a-20260310-000000-0001");
        let by_id = runs.find("c-20250101-000000-0001").unwrap();
        let by_path = runs.find(&by_id.path().display().to_string()).unwrap();
        assert_eq!(by_path.id(), by_id.id());
        assert!(by_path.charts().ends_with("charts/c-20250101-000000-0001"));
        let error = runs.find("nothing").unwrap_err().to_string();
        assert!(
            error.contains("nothing") && error.contains("a-20260310-000000-0001"),
            "{error}"
        );
    }

    #[test]
    fn inputs_stay_inside_their_folder_and_hold_no_secret() {
        let base = tempfile::tempdir().unwrap();
        let run = RunsFolder::under(base.path()).create("r").unwrap();
        let text = b"PASSWORD=hunter2-hunter2\n";
        for (name, kept) in [
            ("bodies/p.json", "bodies/p.json"),
            ("../../up.env", "_up/_up/up.env"),
            ("/etc/x.yaml", "_root/etc/x.yaml"),
        ] {
            let path = run.write_input(Path::new(name), text, &secrets()).unwrap();
            assert_eq!(path, run.inputs().join(kept));
            let written = fs_err::read_to_string(path).unwrap();
            assert!(written.starts_with("PASSWORD=secret:"), "{written}");
        }
        let binary = [b"\xff\x00hunter2-hunter2".as_slice(), b"\xfe"].concat();
        let path = run
            .write_input(Path::new("b"), &binary, &secrets())
            .unwrap();
        let written = fs_err::read(path).unwrap();
        assert!(written.starts_with(b"\xff\x00secret:") && written.ends_with(b"\xfe"));
    }

    #[test]
    fn logs_and_histograms_are_named_by_trial_and_never_leave_the_folder() {
        let base = tempfile::tempdir().unwrap();
        let run = RunsFolder::under(base.path()).create("r").unwrap();
        let path = run
            .write_log(7, 2, "app", "login hunter2-hunter2 ok", &secrets())
            .unwrap();
        assert_eq!(path, run.logs().join("0007-2-app.log"));
        assert!(!fs_err::read_to_string(path).unwrap().contains("hunter2"));
        assert_eq!(
            run.histogram_log(12, 1, "../a b", None),
            run.histograms().join("0012-1-..%2Fa%20b.hlog")
        );
    }
}
