//! A k6 process: started with pipes to read it by, watched, ended with all it started.
//!
//! Samples come through a named pipe, since k6 writes progress to its standard
//! output. This program holds the pipe open for writing until k6 has ended, so
//! that reading it neither ends early nor waits for ever.
//!
//! **Invariant**: every way out ends the whole process group and removes the folder.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, mkfifoat};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::conductor::Heard;
use super::error::K6Error;
use super::log::{read_log_line, read_progress_line};
use super::samples::SampleReader;
use crate::load::thread_time::ThreadTime;

/// Time to end by itself when it is told to, before it is killed.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Longest line of k6's log that is kept. **Units**: bytes.
const MAX_LINE: usize = 64 * 1024;

/// A folder of our own that is removed when it is dropped.
#[derive(Debug)]
pub(super) struct TempFolder(PathBuf);

impl TempFolder {
    pub(super) fn new() -> Result<Self, K6Error> {
        static N_MADE: AtomicU64 = AtomicU64::new(0);
        let n = N_MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("nightsweep-k6-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // Left by a process of the same id that was killed.
        drop(fs_err::remove_dir_all(&path));
        builder.create(&path).map_err(|source| K6Error::Io {
            what: format!("make the folder {}", path.display()),
            source,
        })?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a configuration of k6, in place of the user's own; its path.
    pub(super) fn config(&self, text: &str) -> Result<PathBuf, K6Error> {
        let path = self.0.join("config.json");
        fs_err::write(&path, text).map_err(|source| K6Error::Io {
            what: "write k6's configuration".to_owned(),
            source,
        })?;
        Ok(path)
    }

    /// A folder in it with nothing inside; its path.
    pub(super) fn empty(&self, name: &str) -> Result<PathBuf, K6Error> {
        let path = self.0.join(name);
        fs_err::create_dir(&path).map_err(|source| K6Error::Io {
            what: format!("make the folder {}", path.display()),
            source,
        })?;
        Ok(path)
    }

    pub(super) fn empty_config(&self) -> Result<PathBuf, K6Error> {
        self.config("{}")
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // It is in the folder for temporary files; nobody is left to hear an error.
        drop(fs_err::remove_dir_all(&self.0));
    }
}

/// Takes out what would change a script's own options.
pub(super) fn clean_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("K6_")) {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1");
}

/// A k6 that runs.
#[derive(Debug)]
pub(super) struct Process {
    group: Pid,
    threads: Vec<JoinHandle<()>>,
    has_exited: bool,
    /// Nothing is ever sent: it is closed when all is over.
    ended: Receiver<()>,
    _folder: TempFolder,
}

impl Process {
    /// Starts a command, whose samples go to the path that `finish` is given.
    ///
    /// What it says goes to `heard`; `Heard::Exited` is the last.
    pub(super) fn start(
        mut command: Command,
        folder: TempFolder,
        thresholds: &[String],
        finish: impl FnOnce(&mut Command, &Path),
        heard: &Sender<Heard>,
    ) -> Result<Self, K6Error> {
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| K6Error::Io { what, source }
        };
        let path = folder.path().join("samples");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)
            .map_err(|error| io("make a named pipe for samples")(error.into()))?;
        let (samples, writer) = open_both(&path).map_err(io("open the pipe for samples"))?;
        finish(&mut command, &path);
        clean_environment(&mut command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().map_err(io("start k6"))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let Some(group) = group else {
            // No system gives such an id; without one the group cannot be ended.
            drop(child.kill());
            return Err(io("tell k6's process id")(std::io::ErrorKind::Other.into()));
        };
        let (ending, ended) = channel();
        let mut process = Self {
            group,
            threads: Vec::new(),
            has_exited: false,
            ended,
            _folder: folder,
        };
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let readers = [
            stdout.map(|pipe| lines_into(pipe, heard.clone(), read_progress_line)),
            stderr.map(|pipe| lines_into(pipe, heard.clone(), read_log_line)),
        ];
        let mut readers: Vec<JoinHandle<()>> = readers.into_iter().flatten().collect();
        let reader = SampleReader::new(samples, thresholds, heard.clone());
        readers.push(std::thread::spawn(move || reader.run()));
        let heard = heard.clone();
        process.threads.push(std::thread::spawn(move || {
            wait(child, group, writer, readers, &heard);
            drop(ending);
        }));
        Ok(process)
    }

    /// CPU time it has used and waited for so far; `None` once it has ended.
    pub(super) fn time(&self) -> Option<ThreadTime> {
        ThreadTime::of_process(self.group.as_raw_nonzero().get())
    }

    /// It has ended by itself, and all it said was taken.
    pub(super) fn has_exited(&mut self) {
        self.has_exited = true;
    }

    /// Ends it and whatever it started.
    pub(super) fn end(&mut self) {
        if !self.has_exited {
            // What has ended already needs no signal.
            let _ = kill_process_group(self.group, Signal::TERM);
            if self.ended.recv_timeout(END_LIMIT) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process_group(self.group, Signal::KILL);
            }
        }
        for thread in self.threads.drain(..) {
            // They only pass on what they read; a panic of theirs is not the load's.
            drop(thread.join());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Both ends of a named pipe: reading waits for the writing end, and opening does not.
fn open_both(path: &Path) -> std::io::Result<(File, File)> {
    let mut options = OpenOptions::new();
    options.read(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        OFlags::NONBLOCK.bits().cast_signed(),
    );
    let reader = options.open(path)?;
    let writer = OpenOptions::new().write(true).open(path)?;
    fcntl_setfl(&reader, fcntl_getfl(&reader)? - OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

/// Waits for the end of k6, ends what it left running, and lets the readers finish.
fn wait(
    mut child: Child,
    group: Pid,
    writer: File,
    readers: Vec<JoinHandle<()>>,
    heard: &Sender<Heard>,
) {
    // Seen and not yet reaped: until then nobody else can get its id, or its group's.
    let seen = waitid(
        WaitId::Pid(group),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    );
    if seen.is_ok() {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = child.wait();
    drop(writer);
    for reader in readers {
        drop(reader.join());
    }
    // Nobody listens when the load has been stopped.
    drop(heard.send(Heard::Exited(status.map_or(-1, code_of))));
}

/// The exit code; that of a signal as a shell says it.
fn code_of(status: ExitStatus) -> i32 {
    let signal = || 128 + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal)
}

/// Reads lines of any length; what of a line is over the limit is left out.
fn lines_into(
    pipe: impl std::io::Read + Send + 'static,
    heard: Sender<Heard>,
    understand: fn(&str) -> Option<Heard>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut is_end = true;
            // By hand, for a line without an end must not fill the memory.
            while let Ok(part) = pipe.fill_buf() {
                if part.is_empty() {
                    break;
                }
                is_end = false;
                let end = part.iter().position(|byte| *byte == b'\n');
                let n = end.unwrap_or(part.len());
                let room = MAX_LINE.saturating_sub(line.len());
                line.extend_from_slice(&part[..n.min(room)]);
                pipe.consume(n + usize::from(end.is_some()));
                if end.is_some() {
                    break;
                }
            }
            if is_end {
                return;
            }
            if let Some(word) = understand(&String::from_utf8_lossy(&line)) {
                // Read on when nobody listens: k6 must not wait for a full pipe.
                drop(heard.send(word));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script as if it were k6; `$1` is the samples' pipe.
    fn run(text: &str) -> (Process, Receiver<Heard>) {
        let (sender, heard) = channel();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text, "sh"]);
        let add = |command: &mut Command, path: &Path| {
            command.arg(path);
        };
        let process = Process::start(command, TempFolder::new().unwrap(), &[], add, &sender);
        (process.unwrap(), heard)
    }

    /// The exit code, which is said last.
    fn exit_code(heard: &Receiver<Heard>) -> i32 {
        loop {
            if let Heard::Exited(code) = heard.recv_timeout(Duration::from_secs(10)).unwrap() {
                return code;
            }
        }
    }

    #[test]
    fn one_that_never_opens_the_pipe_ends_all_the_same() {
        let (mut process, heard) = run("exit 104");
        assert_eq!(exit_code(&heard), 104);
        process.has_exited();
        process.end();
    }

    #[test]
    fn all_that_it_started_ends_with_it() {
        let (mut process, heard) =
            run("trap '' TERM; sleep 600 & echo $! interrupted iterations; wait; sleep 600");
        let first = heard.recv_timeout(Duration::from_secs(10)).unwrap();
        let Heard::Interrupted(child) = first else {
            panic!("{first:?}")
        };
        let child = Path::new("/proc").join(child.to_string());
        assert!(child.exists());
        process.end();
        let state = fs_err::read_to_string(child.join("stat"));
        // Reaped by whoever adopted it, be it a little later.
        assert!(
            state.is_err() || state.unwrap().contains(") Z "),
            "{} still runs",
            child.display()
        );
    }

    #[test]
    fn its_folder_goes_with_it() {
        let folder = TempFolder::new().unwrap();
        let path = folder.path().to_owned();
        folder.empty_config().unwrap();
        assert!(path.join("config.json").exists());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_dead_process_left_behind_ends_too() {
        let (mut process, heard) = run("sleep 600 & exit 3");
        assert_eq!(exit_code(&heard), 3);
        process.has_exited();
    }
}
