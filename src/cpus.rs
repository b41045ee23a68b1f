//! Sets of CPUs in the kernel's list form, and the two ways of limiting them.
//!
//! What the topology, the CPU plan, the stack's `cpuset` and the load threads
//! have in common. Pure; it knows no host.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// No kernel has a CPU beyond this; a range that ends above it is a mistake, and
/// must not cost memory.
const MOST_CPUS: u32 = 1 << 16;

/// CPUs by the kernel's numbers. Written as the kernel does: `0-2,5`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<u32>);

/// A text that is no list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a list of CPUs (allowed: such as 0-2,5)")]
pub struct CpuSetParseError {
    /// The text.
    pub text: String,
}

impl CpuSet {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From the lowest to the highest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Whether a CPU is one of them.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs that are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The CPUs of this one that are not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// The CPUs that are in either.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetParseError;

    /// Reads the kernel's list form; an empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || CpuSetParseError {
            text: text.to_owned(),
        };
        let mut cpus = BTreeSet::new();
        if text.trim().is_empty() {
            return Ok(Self(cpus));
        }
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| wrong())?;
            let last: u32 = last.trim().parse().map_err(|_| wrong())?;
            if last > MOST_CPUS || first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut is_first = true;
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            if !is_first {
                f.write_str(",")?;
            }
            is_first = false;
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How the subject's CPU limit is put into force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuMode {
    /// A quota per period, as Compose's `cpus` is; CPUs of its own where there are enough.
    #[default]
    Quota,
    /// As many CPUs as the limit says, and no quota.
    Cpuset,
}

impl CpuMode {
    /// As matrix files, flags and results spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Cpuset => "cpuset",
        }
    }
}

impl fmt::Display for CpuMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CpuMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "quota" => Ok(Self::Quota),
            "cpuset" => Ok(Self::Cpuset),
            _ => Err("it is quota or cpuset".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, written) in [
            ("0", "0"),
            ("0-2,5", "0-2,5"),
            ("5,0,1 , 2\n", "0-2,5"),
            ("0-1,1-3", "0-3"),
            ("", ""),
        ] {
            assert_eq!(set(text).to_string(), written, "{text}");
        }
        for text in ["a", "3-1", "1-", "-1", "0,,1", "0-70000", "99999999999"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn sets_are_joined_and_taken_apart() {
        let (left, right) = (set("0-3"), set("2-5"));
        assert_eq!(left.common(&right), set("2-3"));
        assert_eq!(left.without(&right), set("0-1"));
        assert_eq!(left.joined(&right), set("0-5"));
        assert_eq!(
            (left.len(), left.contains(3), left.contains(4)),
            (4, true, false)
        );
    }
}
