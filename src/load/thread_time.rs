//! What the kernel says of a thread's time: on a CPU, and ready without one.
//!
//! **Source**: proc(5) and the kernel's `sched-stats` documentation: schedstat holds time on
//! the CPU and time in the run queue in ns; where the kernel was built without it, stat has
//! CPU time in ticks of 10 ms, and nobody knows of the waiting.

use std::time::Duration;

/// Sums since the thread began, or between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ThreadTime {
    /// On a CPU; zero where the kernel says nothing.
    pub(super) cpu: Duration,
    /// Ready to run and without a CPU; `None` where the kernel does not tell.
    pub(super) waited: Option<Duration>,
}

impl ThreadTime {
    /// Of the calling thread, up to now.
    pub(super) fn now() -> Self {
        let read = |name: &str| fs_err::read_to_string(format!("/proc/thread-self/{name}")).ok();
        read("schedstat")
            .and_then(|text| of_schedstat(&text))
            .or_else(|| of_stat(&read("stat")?))
            .unwrap_or_default()
    }

    /// Of all threads of another process, up to now; `None` once it has ended.
    ///
    /// What a thread waited that has ended since is lost: of threads that come and go all
    /// the time this tells too little, never too much.
    pub(super) fn of_process(id: i32) -> Option<Self> {
        let read = |path: &str| fs_err::read_to_string(format!("/proc/{id}/{path}")).ok();
        let cpu = of_stat(&read("stat")?)?.cpu;
        let threads = fs_err::read_dir(format!("/proc/{id}/task")).ok()?.flatten();
        let waited = threads.filter_map(|thread| {
            let name = thread.file_name();
            let text = read(&format!("task/{}/schedstat", name.to_str()?))?;
            of_schedstat(&text)?.waited
        });
        let waited = waited.reduce(|one, other| one + other);
        Some(Self { cpu, waited })
    }

    /// Whichever of both is more: of a process that ends, its threads go first.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            waited: self.waited.max(other.waited),
        }
    }

    /// What was added since an earlier moment.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            waited: self
                .waited
                .zip(earlier.waited)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// A thread that reads this has run: a zero is a kernel that keeps no account.
fn of_schedstat(text: &str) -> Option<ThreadTime> {
    let mut fields = text.split_whitespace().map(|field| field.parse().ok());
    let cpu_ns = fields.next()?.filter(|ns| *ns > 0)?;
    let waited_ns = fields.next().flatten();
    Some(ThreadTime {
        cpu: Duration::from_nanos(cpu_ns),
        waited: waited_ns.map(Duration::from_nanos),
    })
}

/// User and system time in a stat line; the thread's name in it may hold anything.
fn of_stat(stat: &str) -> Option<ThreadTime> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(ThreadTime {
        cpu: Duration::from_millis((user + system) * 10),
        waited: None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn both_of_the_kernels_accounts_are_understood() {
        let stat = "17002 (load) 0) R 16996 16996 13016 0 -1 4194304 2843 6585 16 2 51 3 2 0 20";
        let of_ms = |cpu: u64, waited: Option<u64>| {
            Some(ThreadTime {
                cpu: Duration::from_millis(cpu),
                waited: waited.map(Duration::from_millis),
            })
        };
        assert_eq!(of_stat(stat), of_ms(540, None));
        assert_eq!(of_schedstat("5000000 2000000 17\n"), of_ms(5, Some(2)));
        assert_eq!(of_schedstat("5000000\n"), of_ms(5, None));
        assert_eq!(of_schedstat("0 0 0\n"), None);
        let since = of_ms(9, Some(7)).unwrap().since(of_ms(5, Some(2)).unwrap());
        assert_eq!(Some(since), of_ms(4, Some(5)));
        let unknown = of_ms(9, Some(7)).unwrap().since(of_ms(5, None).unwrap());
        assert_eq!(Some(unknown), of_ms(4, None));
        let (first, last) = (of_ms(5, Some(7)).unwrap(), of_ms(6, Some(1)).unwrap());
        assert_eq!(Some(first.max(last)), of_ms(6, Some(7)));
    }

    #[test]
    fn a_process_has_the_time_of_all_its_threads() {
        let id = std::process::id().cast_signed();
        let of_thread = ThreadTime::now();
        let of_process = ThreadTime::of_process(id).unwrap();
        // Its CPU time is counted in ticks of 10 ms.
        assert!(of_process.cpu + Duration::from_millis(20) >= of_thread.cpu);
        assert!(of_process.waited >= of_thread.waited, "{of_process:?}");
        assert_eq!(ThreadTime::of_process(-1), None);
    }

    #[test]
    fn work_is_noticed() {
        let before = ThreadTime::now();
        let begun = Instant::now();
        while ThreadTime::now().since(before).cpu.is_zero() {
            assert!(begun.elapsed() < Duration::from_secs(20), "work is noticed");
        }
    }
}
