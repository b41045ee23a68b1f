//! Who owns what a trial created: a process, not a name.
//!
//! The label `nightsweep.owner` is `host/pid/starttime`. The host part is the
//! host name and the number of the process-id namespace, joined by a colon: two
//! containers on one host may share a host name, yet cannot see each other's
//! processes, so a pid alone would make a living owner look dead. The start
//! time (clock ticks since boot) tells a process from a later one with its pid.
//! **Invariant**: an owner that cannot be judged from here is never called dead.
//! Read `clean.rs` next.

use std::fmt;
use std::str::FromStr;

/// A process that owns containers, networks and volumes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    host: String,
    pid: u32,
    start_ticks: u64,
}

/// What can be said of an owner from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Alive,
    /// It ended.
    Dead,
    /// It ran on another host or in another container; only that one can tell.
    Elsewhere,
}

/// A text that is not an owner label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an owner (allowed: host/pid/starttime)")]
pub struct OwnerParseError(String);

impl Owner {
    /// This process.
    ///
    /// **Errors**: the process file system cannot be read.
    pub fn current() -> std::io::Result<Self> {
        let stat = fs_err::read_to_string("/proc/self/stat")?;
        let start_ticks = parse_stat(&stat)
            .map(|stat| stat.start_ticks)
            .ok_or_else(|| std::io::Error::other("/proc/self/stat has an unknown form"))?;
        Ok(Self {
            host: this_host()?,
            pid: std::process::id(),
            start_ticks,
        })
    }

    /// Whether the process runs now; `false` also when that cannot be told from here.
    pub fn is_alive(&self) -> bool {
        self.liveness() == Liveness::Alive
    }

    /// What can be said of the process from here.
    pub fn liveness(&self) -> Liveness {
        match this_host() {
            Ok(host) if host == self.host => {}
            Ok(_) | Err(_) => return Liveness::Elsewhere,
        }
        match fs_err::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => match parse_stat(&stat) {
                // A zombie holds its pid and does nothing more.
                Some(stat) if stat.start_ticks == self.start_ticks && !stat.is_ended => {
                    Liveness::Alive
                }
                Some(_) => Liveness::Dead,
                None => Liveness::Elsewhere,
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Liveness::Dead,
            // ESRCH while reading: it ended between open and read.
            Err(error) if error.raw_os_error() == Some(3) => Liveness::Dead,
            Err(_) => Liveness::Elsewhere,
        }
    }

    /// Host name and process-id namespace, as in the label.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Process id on that host.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.host, self.pid, self.start_ticks)
    }
}

impl FromStr for Owner {
    type Err = OwnerParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || OwnerParseError(text.to_owned());
        let mut parts = text.rsplitn(3, '/');
        let start_ticks = parts.next().and_then(|part| part.parse().ok());
        let pid = parts.next().and_then(|part| part.parse().ok());
        let host = parts.next().filter(|host| !host.is_empty());
        Ok(Self {
            host: host.ok_or_else(error)?.to_owned(),
            pid: pid.ok_or_else(error)?,
            start_ticks: start_ticks.ok_or_else(error)?,
        })
    }
}

fn this_host() -> std::io::Result<String> {
    let name = fs_err::read_to_string("/proc/sys/kernel/hostname")?;
    // The link reads `pid:[4026531836]`.
    let namespace = fs_err::read_link("/proc/self/ns/pid")?;
    let namespace: String = namespace
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    Ok(format!("{}:{namespace}", name.trim()))
}

struct ProcessStat {
    start_ticks: u64,
    is_ended: bool,
}

/// **Source**: proc(5), `/proc/pid/stat`: state is field 3, start time field 22.
fn parse_stat(text: &str) -> Option<ProcessStat> {
    // The command in field 2 may itself hold spaces and parentheses.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let start_ticks = fields.nth(22 - 4)?.parse().ok()?;
    Some(ProcessStat {
        start_ticks,
        is_ended: matches!(state, "Z" | "X" | "x"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_its_label_reads_back() {
        let owner = Owner::current().unwrap();
        assert!(owner.is_alive());
        assert_eq!(owner.to_string().parse::<Owner>().unwrap(), owner);
    }

    #[test]
    fn a_later_process_with_the_same_pid_is_not_the_owner() {
        let mut owner = Owner::current().unwrap();
        owner.start_ticks += 1;
        assert_eq!(owner.liveness(), Liveness::Dead);
    }

    #[test]
    fn a_pid_that_does_not_exist_is_dead_here_and_unknown_elsewhere() {
        let mut owner = Owner::current().unwrap();
        owner.pid = u32::MAX;
        assert_eq!(owner.liveness(), Liveness::Dead);
        owner.host = "other:4026531836".to_owned();
        assert_eq!(owner.liveness(), Liveness::Elsewhere);
        assert!(!owner.is_alive());
    }

    #[test]
    fn an_ended_child_that_nobody_waited_for_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let stat_path = format!("/proc/{}/stat", child.id());
        let stat = loop {
            let stat = parse_stat(&fs_err::read_to_string(&stat_path).unwrap()).unwrap();
            if stat.is_ended {
                break stat;
            }
            std::thread::yield_now();
        };
        let owner = Owner {
            pid: child.id(),
            start_ticks: stat.start_ticks,
            ..Owner::current().unwrap()
        };
        assert_eq!(owner.liveness(), Liveness::Dead);
        child.wait().unwrap();
    }

    #[test]
    fn a_command_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "12 (a) b) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9 10";
        assert_eq!(parse_stat(text).unwrap().start_ticks, 777);
    }

    #[test]
    fn texts_that_are_no_owner_are_refused() {
        for text in ["", "host", "host/1", "host/x/2", "/1/2", "host/1/x"] {
            assert!(text.parse::<Owner>().is_err(), "{text}");
        }
    }
}
