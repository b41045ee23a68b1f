//! Threads kept on given CPUs.
//!
//! **Source**: the manual page `sched_setaffinity(2)`. A thread inherits the CPUs of whoever starts it.

use std::io;

use rustix::thread::{CpuSet as Mask, Pid, sched_setaffinity};

use crate::cpus::CpuSet;

/// Keeps the calling thread on these CPUs.
pub(super) fn pin_this_thread(cpus: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(None, &mask_of(cpus)?)?)
}

/// Keeps every thread that this process has now on these CPUs; those they start follow.
///
/// **Errors**: the kernel's, such as CPUs outside of the process's control group.
pub fn pin_all_threads(cpus: &CpuSet) -> io::Result<()> {
    let mask = mask_of(cpus)?;
    for entry in fs_err::read_dir("/proc/self/task")? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        let Some(id) = id.and_then(Pid::from_raw) else {
            continue;
        };
        match sched_setaffinity(Some(id), &mask) {
            // It ended since the folder was read.
            Err(rustix::io::Errno::SRCH) => {}
            other => other?,
        }
    }
    Ok(())
}

fn mask_of(cpus: &CpuSet) -> io::Result<Mask> {
    let mut mask = Mask::new();
    for cpu in cpus.iter().map(|cpu| cpu as usize) {
        if cpu >= Mask::MAX_CPU {
            let what = format!(
                "CPU {cpu} is beyond the {} that can be named",
                Mask::MAX_CPU
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        mask.set(cpu);
    }
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs the calling thread may run on, as the kernel tells.
    fn allowed() -> CpuSet {
        let status = fs_err::read_to_string("/proc/thread-self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_and_those_it_starts_stay_where_they_were_put() {
        // On a thread of its own: other tests must not be slowed.
        let seen = std::thread::spawn(|| {
            let all = allowed();
            let last: CpuSet = all.iter().last().into_iter().collect();
            pin_this_thread(&last).unwrap();
            let child = std::thread::spawn(allowed).join().unwrap();
            let pinned = allowed();
            pin_this_thread(&all).unwrap();
            (pinned == last, child == last, allowed() == all)
        });
        assert_eq!(seen.join().unwrap(), (true, true, true));
        assert!(pin_this_thread(&CpuSet::from_iter([60_000])).is_err());
        assert!(
            pin_this_thread(&CpuSet::default()).is_err(),
            "no CPU at all"
        );
    }
}
